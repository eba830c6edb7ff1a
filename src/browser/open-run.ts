// `OpenRun`: the run that is open in this worker, at most one: how it begins and ends, and whose weights write. The run itself
// is ActiveRun (active-run.ts), what is asked of runs that do not train IdleModel's (idle-model.ts).
//
// Invariant: a run is open while it is held (runs.ts), and nothing else computes while it begins.

import type { BrowserHost } from '../runtime/browser.ts';
import { HoldfastError } from '../util/errors.ts';
import { ActiveRun } from './active-run.ts';
import { templateOf } from './conversations.ts';
import type { CurrentDevice } from './current-device.ts';
import { IdleModel } from './idle-model.ts';
import type { Outbox } from './outbox.ts';
import type { RunInfo, RunRecord } from './protocol.ts';
import type { Runs } from './runs.ts';
import type { Speeds } from './speed.ts';
import { Teller } from './teller.ts';
import { Writer } from './writer.ts';

export class OpenRun {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #speeds: Speeds;
  readonly #device: CurrentDevice;
  readonly #outbox: Outbox;
  readonly #idle: IdleModel;
  #active: ActiveRun | undefined;

  constructor(host: BrowserHost, runs: Runs, speeds: Speeds, device: CurrentDevice, outbox: Outbox) {
    this.#host = host;
    this.#runs = runs;
    this.#speeds = speeds;
    this.#device = device;
    this.#outbox = outbox;
    this.#idle = new IdleModel(host, runs, () => device.open());
  }

  get active(): ActiveRun | undefined {
    return this.#active;
  }

  /** Errors: HoldfastError where none is open. */
  get needed(): ActiveRun {
    if (this.#active) return this.#active;
    throw new HoldfastError('no run is open here; start one, or resume one');
  }

  /**
   * Starts a run whose record is made once it is held here, and kept once nothing is in its way: where the start fails, a new
   * run leaves nothing behind, and another one is as it was. Errors: HoldfastError where one is open.
   */
  async train(id: string, make: () => Promise<RunRecord>, paused = false): Promise<RunInfo> {
    this.#refuseSecond();
    const release = await this.#runs.hold(id);
    try {
      await this.#begin(await make(), release, paused);
    } catch (error) {
      await this.#runs.discard(id);
      release();
      throw error;
    }
    return this.#runs.get(id);
  }

  /** Saves and ends it. Errors: HoldfastError where none is open. */
  async stop(): Promise<void> {
    const active = this.needed;
    active.stop();
    await active.ended;
  }

  /** Text by a run: by the open one, which waits meanwhile, or by another where none is. */
  async write<T>(id: string, work: (writer: Writer) => Promise<T>): Promise<T> {
    if (this.#active?.id === id) return this.#active.write(work);
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it before another one writes`);
    const idle = await this.#idle.open(id, () => this.#active !== undefined);
    // Since then a run may have begun.
    if (!idle) return this.write(id, work);
    const writer = await idle.opened;
    if (writer instanceof Writer) return work(writer);
    throw new HoldfastError('this model tells classes apart and writes no text');
  }

  /** The classes of pictures and texts by a run, where none is open. */
  async tell<T>(id: string, work: (teller: Teller) => Promise<T>): Promise<T> {
    const refuse = () => {
      if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it before classes are told`);
    };
    refuse();
    const idle = await this.#idle.open(id, () => this.#active !== undefined);
    refuse();
    const teller = await idle?.opened;
    if (teller instanceof Teller) return work(teller);
    throw new HoldfastError('this model tells no classes apart; ask one that does (BERT, ViT)');
  }

  /** Nothing computes with a run that is not open, until it is asked again. */
  closeIdle(): Promise<void> {
    return this.#idle.close();
  }

  async #begin(record: RunRecord, release: () => void, paused: boolean): Promise<void> {
    this.#refuseSecond();
    const active = new ActiveRun(record, {
      host: this.#host,
      runs: this.#runs,
      device: () => this.#device.open(),
      emit: (event) => this.#outbox.push(event),
      template: () => templateOf(this.#host.files, record, this.#runs.folder(record.id)),
    });
    this.#active = active;
    try {
      // From here on, nothing else begins to compute.
      await this.#idle.close();
      await this.#device.open();
      await this.#speeds.idle();
      await this.#runs.put(record);
    } catch (error) {
      this.#active = undefined;
      throw error;
    }
    if (paused) active.gate.pause();
    void active.run().finally(() => {
      this.#active = undefined;
      release();
      active.announceEnd();
    });
  }

  #refuseSecond(): void {
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it first`);
  }
}
