// The runs of this site: their records in IndexedDB, their files in folders of their own, and locks on those that are open. A run
// is open in one tab at a time, by a Web Lock that ends with the tab.

import { createStore, del, entries, get, update } from 'idb-keyval';
import { checkpointsOf } from '../formats/checkpoint.ts';
import { familyOf, shapeOf } from '../formats/families/index.ts';
import { heldLocks, holdLock, type Release } from '../runtime/browser/locks.ts';
import { type Host, join } from '../runtime/host.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import { deferred } from '../util/deferred.ts';
import { HoldfastError } from '../util/errors.ts';
import type { RunInfo, RunRecord } from './protocol.ts';
import { isRunId, readRecord } from './record.ts';
import { Unfinished } from './unfinished.ts';

const FOLDER = 'runs';
const lockName = (id: string) => `holdfast run ${id}`;
/** Milliseconds for a run that was left a moment ago to be free in all tabs. */
const PATIENCE = 500;

/** A run that is being made: it has no record yet. */
export interface Place {
  readonly id: string;
  readonly release: Release;
}

export class Runs {
  readonly #host: Host;
  readonly #records = createStore('holdfast', 'runs');
  readonly #unfinished: Unfinished;
  readonly #held = new Set<string>();
  /** Reads of runs that are under way here. */
  readonly #reads = new Map<string, Promise<void>>();

  constructor(host: Host) {
    this.#host = host;
    this.#unfinished = new Unfinished(host.files);
  }

  folder(id: string): string {
    return join(FOLDER, id);
  }

  newId(): string {
    return crypto.randomUUID().slice(0, 8);
  }

  /** Newest first. One that is damaged says so, and hides no other. */
  async list(): Promise<RunInfo[]> {
    const locked = await heldLocks();
    const stored = await entries<IDBValidKey, unknown>(this.#records);
    // Other keys are not ours: no page wrote them.
    const ours = stored.filter((entry): entry is [string, unknown] => typeof entry[0] === 'string');
    const found = await Promise.all(ours.map(([id, value]) => this.#read(id, value, locked)));
    return found.sort((a, b) => b.created - a.created);
  }

  /** Errors: HoldfastError where there is none. */
  async get(id: string): Promise<RunInfo> {
    const value = await get<unknown>(id, this.#records);
    if (value === undefined) throw noneOf(id);
    return this.#read(id, value, await heldLocks());
  }

  /** As `get`, of a run to go on with or to change. Errors: HoldfastError also for one that is damaged. */
  async whole(id: string): Promise<RunInfo> {
    const found = await this.get(id);
    if (found.status !== 'damaged') return found;
    throw new HoldfastError(
      `run ${id} is damaged (${found.error}); ${found.savedStep > 0 ? 'export it and import that, or remove it' : 'remove it'}`,
    );
  }

  /** Makes the record of a run, or another one; a name that it has been given since it was read stays. */
  async put({ open: _, ...record }: RunRecord & { open?: unknown }): Promise<void> {
    const withName = (stored: RunRecord | undefined) => ({ ...record, name: stored?.name ?? record.name });
    await update(record.id, withName, this.#records);
  }

  /** What other tabs change of it at the same time is kept. Errors: as `whole`. */
  async change(id: string, changes: Partial<RunRecord>): Promise<void> {
    await this.whole(id);
    const changed = (stored: RunRecord | undefined) => {
      if (stored === undefined) throw noneOf(id);
      return { ...stored, ...changes };
    };
    await update(id, changed, this.#records);
  }

  /** Removes its files, then its record. Errors: HoldfastError where it is open. */
  async remove(id: string): Promise<void> {
    const release = await this.hold(id);
    try {
      if (isRunId(id)) await this.#host.files.remove(this.folder(id));
      await del(id, this.#records);
    } finally {
      release();
    }
  }

  /** Keeps others out until it is released or this worker ends. Errors: HoldfastError where another has it. */
  async hold(id: string): Promise<Release> {
    while (this.#reads.has(id)) await this.#reads.get(id);
    return this.#take(id);
  }

  /**
   * What `read` finds, which is soon done, of a run that stays as it is meanwhile. In this tab, all else that holds it waits for
   * that. Errors: as `hold`.
   */
  async reading<T>(id: string, read: () => Promise<T>): Promise<T> {
    while (this.#reads.has(id)) await this.#reads.get(id);
    const done = deferred<void>();
    this.#reads.set(id, done.promise);
    try {
      const release = await this.#take(id);
      try {
        return await read();
      } finally {
        release();
      }
    } finally {
      this.#reads.delete(id);
      done.resolve();
    }
  }

  async #take(id: string): Promise<Release> {
    const release = await holdLock(lockName(id), this.#held.has(id) ? 0 : PATIENCE);
    if (!release) {
      const where = this.#held.has(id) ? 'in this tab already' : 'in another tab; go on there, or close that tab';
      throw new HoldfastError(`run ${id} is open ${where}`);
    }
    this.#held.add(id);
    return () => {
      this.#held.delete(id);
      release();
    };
  }

  /**
   * A new run, held until it is released. `source`: of a model from elsewhere, all that names its bytes; where an import of the
   * same was cut off, it is that run, with the files that it has. What another import has left is removed.
   */
  async newPlace(source?: string): Promise<Place> {
    if (source === undefined) return this.#freshPlace();
    const place = (await this.#placeLeft(source)) ?? (await this.#freshPlace());
    try {
      await this.#unfinished.note(place.id, source);
    } catch (error) {
      place.release();
      throw error;
    }
    return place;
  }

  /** A run that was made in its place has its record. */
  async finished(id: string): Promise<void> {
    await this.#unfinished.forget(id);
  }

  /** Removes what lies in the place of a run, where it has no record. What is open still goes at a later start. */
  async discard(id: string): Promise<void> {
    const remove = async () => {
      if (!(await this.#has(id))) await this.#host.files.remove(this.folder(id));
    };
    await remove().catch(() => {});
    await this.#unfinished.forget(id).catch(() => {});
  }

  /** Folders of runs that have no record: their start, import or removal was cut off, and cannot be gone on with. */
  async sweep(): Promise<void> {
    const { files } = this.#host;
    if (!(await files.stat(FOLDER))) return;
    const left = await this.#unfinished.find();
    for (const id of await files.list(FOLDER)) {
      if (id === left?.id || (await this.#has(id))) continue;
      // Its record comes last: while it is made, it is held.
      const release = await this.hold(id).catch(() => undefined);
      if (release) await this.discard(id);
      release?.();
    }
  }

  async #freshPlace(): Promise<Place> {
    const id = this.newId();
    return { id, release: await this.hold(id) };
  }

  /** Where an import of the same was cut off. */
  async #placeLeft(source: string): Promise<Place | undefined> {
    const left = await this.#unfinished.find();
    // Where it is held, that import is under way still.
    const release = left && (await this.hold(left.id).catch(() => undefined));
    if (!left || !release) return undefined;
    const isWhole = await this.#has(left.id);
    if (!isWhole && left.source === source) return { id: left.id, release };
    if (!isWhole) await this.discard(left.id);
    release();
    return undefined;
  }

  /** A damaged one too: its files stay until it is removed. */
  async #has(id: string): Promise<boolean> {
    return (await get<unknown>(id, this.#records)) !== undefined;
  }

  async #read(id: string, value: unknown, locked: ReadonlySet<string>): Promise<RunInfo> {
    const record = { ...readRecord(id, value), open: this.#open(id, locked) };
    if (record.status !== 'damaged' || !isRunId(id)) return record;
    // What its files still say.
    const checkpoints = await checkpointsOf(this.#host.files, this.folder(id)).catch(() => []);
    return { ...record, savedStep: checkpoints.at(-1)?.step ?? 0 };
  }

  #open(id: string, locked: ReadonlySet<string>): RunInfo['open'] {
    if (this.#held.has(id)) return this.#reads.has(id) ? 'no' : 'here';
    return locked.has(lockName(id)) ? 'in another tab' : 'no';
  }
}

const noneOf = (id: string) => new HoldfastError(`run ${id}: there is none; it may have been removed in another tab`);

/** What a run is called by default: "GPT-2 2 × 64". */
export function defaultRunName({ config }: Pick<RunSettings, 'config'>): string {
  const { layers, width } = shapeOf(config);
  return `${familyOf(config).label} ${layers} × ${width}`;
}
