// Models by their names on the hub whose import is cut off: by a tab that is closed at any change to its files, and by a network
// that fails at any piece. The next import of the same asks for what is missing and ends in the same bytes; nothing of the
// first is shown, and nothing is left.

import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Exports } from '../../src/browser/exports.ts';
import { KeptRuns } from '../../src/browser/kept-runs.ts';
import { Runs } from '../../src/browser/runs.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { ResumedFile } from '../../src/runtime/host.ts';
import { deferred } from '../../src/util/deferred.ts';
import { entry, only } from '../entry.ts';
import { floats, shardedFolder } from '../formats/raw-tensors.ts';
import { records } from '../idb-keyval.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

vi.mock('idb-keyval', () => import('../idb-keyval.ts'));

const PIECE_BYTES = 4000;
const CONFIG = { model_type: 'gpt2', vocab_size: 256, n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2 } as const;

/** Of one shape, whatever the value. */
function modelOf(value: number): ReadonlyMap<string, Uint8Array> {
  const { parameters } = makeModel(parseConfig(CONFIG, 'test'));
  const stored = parameters.map(({ name, shape }) => {
    const count = shape.reduce((a, b) => a * b, 1);
    return [
      name,
      floats(
        shape,
        new Float32Array(count).map((_, i) => value + i),
      ),
    ] as const;
  });
  const shards = { 'a.safetensors': new Map(stored.slice(0, 3)), 'b.safetensors': new Map(stored.slice(3)) };
  const files = { 'm/config.json': JSON.stringify(CONFIG), ...shardedFolder('m', shards) };
  return new Map(
    Object.entries(files).map(([path, file]) => [
      path.slice(2),
      typeof file === 'string' ? new TextEncoder().encode(file) : file,
    ]),
  );
}

/** A hub that `fetch` leads to. */
class Hub {
  sha = 'a'.repeat(40);
  model = modelOf(1);
  /** Shards that were asked for, from a byte on to their end. */
  asked: string[] = [];
  /** It is gone after so many. */
  pieces = Number.POSITIVE_INFINITY;
  /** What new answers wait for. */
  until: Promise<void> | undefined;
  /** The model whose sums it tells, where that is another. */
  told: ReadonlyMap<string, Uint8Array> | undefined;
  /** Called when a shard is asked for. */
  begun = () => {};

  readonly fetch = async (address: string, init?: RequestInit): Promise<Response> => {
    if (this.pieces <= 0) throw new TypeError('there is no network');
    const { pathname } = new URL(address);
    if (pathname.startsWith('/api/')) {
      const siblings = [...(this.told ?? this.model)].map(([rfilename, file]) => ({
        rfilename,
        ...(rfilename.endsWith('s') && { lfs: { sha256: createHash('sha256').update(file).digest('hex') } }),
      }));
      return Response.json({ sha: this.sha, siblings });
    }
    expect(pathname).toContain(`/owner/one/resolve/${this.sha}/`);
    const name = pathname.replace(/^.*\//, '');
    const file = entry(this.model, name);
    const [, from, last] = (/^bytes=(\d+)-(\d+)$/.exec(new Headers(init?.headers).get('range') ?? '') ?? []).map(
      Number,
    );
    if (from === undefined || last === undefined) throw new Error(`${name} was asked for without a range`);
    if (name.endsWith('s') && last === file.length - 1) {
      this.asked.push(`${name} ${from}`);
      this.begun();
    }
    const { until } = this;
    let at = from;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          await until;
          if (this.pieces-- <= 0) return controller.error(new TypeError('the network is gone'));
          const to = Math.min(at + PIECE_BYTES, last + 1);
          controller.enqueue(file.slice(at, to));
          at = to;
          if (at > last) controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const headers = { 'content-range': `bytes ${from}-${last}/${file.length}`, etag: '"1"' };
    return new Response(body, { status: 206, headers });
  };
}

/** Files that can be changed so often; then their tab is closed. */
class Disk extends MemoryFiles {
  #left: number;
  /** Files of runs cannot be closed, and not removed. */
  isStuck = false;

  constructor(changes = Number.POSITIVE_INFINITY, before = new MemoryFiles()) {
    super(Object.fromEntries(before.contents));
    this.#left = changes;
  }

  /** What lies on it, of a model's file in the only folder of a run. */
  bytesOf(name: string): number {
    const [found] = [...this.contents].filter(([path]) => new RegExp(`^runs/\\w+/${name}(\\.incoming)?$`).test(path));
    return found?.[1].length ?? 0;
  }

  override async writeAtomic(path: string, bytes: string) {
    this.#change();
    this.contents.set(path, new TextEncoder().encode(bytes));
  }

  override async rename(from: string, to: string) {
    this.#change();
    await super.rename(from, to);
  }

  override async remove(path: string) {
    this.#change();
    if (this.isStuck && path.startsWith('runs/')) throw new Error('it cannot be removed');
    await super.remove(path);
  }

  async resume(path: string): Promise<ResumedFile> {
    const partial = `${path}.incoming`;
    const there = this.contents.get(partial) ?? new Uint8Array();
    this.#change();
    this.contents.set(partial, there);
    return {
      written: there.length,
      write: async (bytes) => {
        this.#change();
        this.contents.set(partial, Uint8Array.from([...entry(this.contents, partial), ...bytes]));
      },
      restart: async () => {
        this.contents.set(partial, new Uint8Array());
      },
      commit: () => this.rename(partial, path),
      close: async () => {
        if (this.isStuck) throw new Error('it cannot be closed');
      },
    };
  }

  #change(): void {
    if (--this.#left < 0) throw new Error('the tab is closed');
  }
}

/** A tab on these files, which has been opened. */
async function tabOn(disk: Disk) {
  const host = {
    ...memoryHost(disk, { resumeFile: (path) => disk.resume(path) }),
    ...{ isolated: false, room: async () => ({ quota: 1, used: 0, persisted: false }), close() {} },
    fileAt: () => Promise.reject(new Error('nothing is handed to the page')),
  };
  const runs = new Runs(host);
  await runs.sweep();
  const kept = new KeptRuns(host, runs, await Exports.open(disk), () => undefined);
  return { runs, bring: () => kept.importModel({ hub: 'owner/one', endpoint: 'https://hub.test' }, undefined) };
}

/** Its files are those of the hub, and there are no others. */
async function expectWhole(disk: Disk, runs: Runs, { model }: Hub, count = 1): Promise<void> {
  const listed = await runs.list();
  expect(listed.map(({ name, status }) => [name, status])).toEqual(Array(count).fill(['one', 'imported']));
  const wanted = listed.flatMap(({ id }) => [...model].map(([name, file]) => [`${runs.folder(id)}/${name}`, file]));
  expect(Object.fromEntries(disk.contents)).toEqual(Object.fromEntries(wanted));
}

/** What the next import has to ask for. */
const missing = (disk: Disk, { model }: Hub): string[] =>
  ['a.safetensors', 'b.safetensors'].flatMap((name) => {
    const there = disk.bytesOf(name);
    return there < entry(model, name).length ? [`${name} ${there}`] : [];
  });

let hub: Hub;

beforeEach(() => {
  records.clear();
  hub = new Hub();
  const held = new Set<string>();
  const request = async (name: string, _: unknown, work: (lock: { name: string } | null) => Promise<void>) => {
    if (held.has(name)) return work(null);
    held.add(name);
    return Promise.resolve(work({ name })).finally(() => held.delete(name));
  };
  vi.stubGlobal('navigator', {
    locks: { request, query: async () => ({ held: [...held].map((name) => ({ name })) }) },
  });
  vi.stubGlobal('fetch', hub.fetch);
  const { setTimeout } = globalThis;
  // No pause before another try.
  vi.stubGlobal('setTimeout', (work: () => void, ms: number) => setTimeout(work, ms < 10_000 ? 0 : ms));
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test.each([
  ['its tab is closed at any change to its files', (n: number) => new Disk(n)],
  [
    'the network fails at any piece',
    (n: number) => {
      hub.pieces = n;
      return new Disk();
    },
  ],
])('%s: the next import goes on', async (_, cutAt) => {
  const starts = new Set<string>();
  for (let n = 1, over = false; !over; n++) {
    records.clear();
    hub.asked = [];
    const before = cutAt(n);
    const first = await tabOn(before);
    over = await first.bring().then(
      () => true,
      () => false,
    );
    const disk = new Disk(Number.POSITIVE_INFINITY, before);
    const { runs, bring } = await tabOn(disk);
    hub.pieces = Number.POSITIVE_INFINITY;
    if (!over) {
      // It may have been cut off when all was there.
      const rest = records.size > 0 ? ['a.safetensors 0', 'b.safetensors 0'] : missing(disk, hub);
      for (const each of rest) starts.add(each);
      hub.asked = [];
      await bring();
      expect(hub.asked, `cut off at ${n}`).toEqual(rest);
    }
    await expectWhole(disk, runs, hub, records.size);
  }
  const bytes = [...hub.model.values()].reduce((sum, { length }) => sum + length, 0);
  expect(starts.size).toBeGreaterThan(bytes / PIECE_BYTES - 3);
});

/** A disk with half a model, and its tab. */
async function halfBrought() {
  const disk = new Disk();
  const tab = await tabOn(disk);
  hub.begun = () => {
    hub.pieces = 1;
  };
  await expect(tab.bring()).rejects.toThrow(/a\.safetensors: there is no network, 7 times in a row; try again$/);
  expect(await tab.runs.list()).toEqual([]);
  hub.begun = () => {};
  hub.pieces = Number.POSITIVE_INFINITY;
  hub.asked = [];
  expect(disk.bytesOf('a.safetensors')).toBe(PIECE_BYTES);
  return { disk, ...tab };
}

test('of another commit, nothing is gone on with, and what was there goes first', async () => {
  const { disk, runs, bring } = await halfBrought();
  hub.sha = 'b'.repeat(40);
  hub.model = modelOf(2);
  await bring();
  expect(hub.asked).toEqual(['a.safetensors 0', 'b.safetensors 0']);
  await expectWhole(disk, runs, hub);
});

test('what a week has passed over is removed at the next start', async () => {
  const { disk } = await halfBrought();
  const now = Date.now();
  vi.spyOn(Date, 'now').mockReturnValue(now + 6.9 * 24 * 3600e3);
  await tabOn(disk);
  expect(disk.bytesOf('a.safetensors')).toBeGreaterThan(0);
  vi.spyOn(Date, 'now').mockReturnValue(now + 7 * 24 * 3600e3);
  await tabOn(disk);
  expect([...disk.contents.keys()].filter((path) => path.startsWith('runs/'))).toEqual([]);
});

test('what proves wrong is not gone on with', async () => {
  const { disk, runs, bring } = await halfBrought();
  // As after a loss of power.
  only([...disk.contents].filter(([path]) => path.endsWith('.incoming')))[1].fill(0);
  await expect(bring()).rejects.toThrow('a.safetensors: what arrived has another SHA-256 than it should');
  expect([...disk.contents]).toEqual([]);
  hub.asked = [];
  await bring();
  expect(hub.asked).toEqual(['a.safetensors 0', 'b.safetensors 0']);
  await expectWhole(disk, runs, hub);
});

test('a file of another sum than the hub tells is refused when it arrives in one go, too, and is not kept', async () => {
  hub.told = modelOf(2);
  const disk = new Disk();
  const { runs, bring } = await tabOn(disk);
  await expect(bring()).rejects.toThrow('a.safetensors: what arrived has another SHA-256 than it should');
  expect(hub.asked).toEqual(['a.safetensors 0']);
  expect([...disk.contents]).toEqual([]);
  expect(await runs.list()).toEqual([]);
});

describe('on a disk that closes and removes no file of a run', () => {
  test('a lost network is what is told, and the next import goes on', async () => {
    const disk = new Disk();
    const { bring } = await tabOn(disk);
    hub.begun = () => {
      hub.pieces = 1;
      disk.isStuck = true;
    };
    await expect(bring()).rejects.toThrow(/a\.safetensors: there is no network, 7 times in a row; try again$/);
    disk.isStuck = false;
    hub.begun = () => {};
    hub.pieces = Number.POSITIVE_INFINITY;
    hub.asked = [];
    await bring();
    expect(hub.asked).toEqual([`a.safetensors ${PIECE_BYTES}`, 'b.safetensors 0']);
  });

  test('a wrong file is what is told, and the next start removes it', async () => {
    const disk = new Disk();
    const { bring } = await tabOn(disk);
    hub.told = modelOf(2);
    hub.begun = () => {
      disk.isStuck = true;
    };
    await expect(bring()).rejects.toThrow('a.safetensors: what arrived has another SHA-256 than it should');
    disk.isStuck = false;
    await tabOn(disk);
    expect([...disk.contents.keys()].filter((path) => path.startsWith('runs/'))).toEqual([]);
  });
});

test('while one import is under way, another of the same is one of its own', async () => {
  const disk = new Disk();
  const [one, other] = [await tabOn(disk), await tabOn(disk)];
  const [begun, goOn] = [deferred<void>(), deferred<void>()];
  hub.begun = () => {
    hub.until = goOn.promise;
    begun.resolve();
  };
  const first = one.bring();
  await begun.promise;
  hub.until = undefined;
  hub.begun = () => {};
  await other.bring();
  expect(await other.runs.list()).toHaveLength(1);
  goOn.resolve();
  await first;
  await expectWhole(disk, one.runs, hub, 2);
});
