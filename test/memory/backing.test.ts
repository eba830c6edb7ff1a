// The tiers below the GPU: each rule by an example, then all of them at random against a plain model, in which
// every chunk is the list of values it was given.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { type BackingOptions, leastDiskChunks, leastHostChunks } from '../../src/memory/tiers/tier-limits.ts';
import { at } from '../../src/util/at.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { CountingFile, turns } from './block-files.ts';

const BYTES = 1024;
const ZEROS = new Uint8Array(BYTES);

/** A value that differs from every other in every word. */
const value = (chunk: number, version: number) =>
  new Uint8Array(new Uint32Array(BYTES / 4).map((_, i) => (chunk + 1) * 2 ** 24 + version * 2 ** 10 + i).buffer);

const same = (a: Uint8Array | undefined, b: Uint8Array | undefined) => a && b && Buffer.compare(a, b) === 0;

interface Setup {
  chunks: number;
  slots: number;
  /** None: no disk. */
  blocks?: number | undefined;
  nextUse?: number[];
}

function setup({ chunks, slots, blocks, nextUse }: Setup, delay?: () => Promise<void> | undefined) {
  const file = new CountingFile(new MemoryBlockFile('/tier', (blocks ?? 0) * BYTES), delay);
  const disk = blocks === undefined ? undefined : file;
  const backing = new Backing({ chunks, chunkBytes: BYTES, hostLimit: slots * BYTES, disk });
  if (nextUse) backing.setOrder((chunk) => at(nextUse, chunk));
  const put = (...chunks: number[]) => backing.putAll(chunks.map((chunk) => ({ chunk, bytes: value(chunk, 0) })));
  const where = () => Array.from({ length: chunks }, (_, chunk) => backing.where(chunk)).join(' ');
  return { backing, file, put, where };
}

describe('limits', () => {
  it('that are too small are refused, with those that would do', () => {
    const make = (options: Partial<BackingOptions>, blocks?: number) =>
      new Backing({
        chunks: 10,
        chunkBytes: BYTES,
        hostLimit: 10 * BYTES,
        disk: blocks === undefined ? undefined : new MemoryBlockFile('/tier', blocks * BYTES),
        ...options,
      });
    expect(() => make({ hostLimit: 10 * BYTES - 1 })).toThrow('need at least 10240; raise it to that, or use a disk');
    expect(() => make({ hostLimit: 2 * BYTES - 1 }, 99)).toThrow('need at least 2048; raise it to that');
    expect(() => make({ hostLimit: 4 * BYTES }, 9)).toThrow(
      'disk limit 9216 bytes: 10 chunks of 1024 bytes need at least 10240 beside 4096 of host memory; ' +
        'raise it to that, or the host memory limit to 5120',
    );
    expect(() => make({ hostLimit: 4 * BYTES, diskLimit: 9 * BYTES }, 99)).toThrow('disk limit 9216 bytes');
    make({});
    make({}, 0);
    make({ hostLimit: Number.POSITIVE_INFINITY });
    make({ hostLimit: 2 * BYTES }, 12);
    make({ hostLimit: 4 * BYTES, diskLimit: 10 * BYTES }, 99);
    make({ hostLimit: 5 * BYTES }, 9);
    make({ hostLimit: 4 * BYTES, largestPut: 1 }, 7);
  });
});

describe('one chunk after another', () => {
  it('is visible at once when there is room', async () => {
    const { backing, put, where } = setup({ chunks: 3, slots: 3 });
    expect(where()).toBe('nothing nothing nothing');
    const done = put(0, 2);
    expect(where()).toBe('host nothing host');
    expect(backing.peek(2)).toEqual(value(2, 0));
    await done;
    expect(backing.ledger).toMatchObject({ hostBytes: 2 * BYTES, hostPeak: 2 * BYTES, diskBytes: 0 });
  });

  it('is made where it will lie, while there is a free slot, and takes the place of the old value when it is put', async () => {
    const { backing, put, where } = setup({ chunks: 2, slots: 3 });
    await put(0, 1);
    const room = backing.takeRoom();
    expect(backing.takeRoom()).toBeUndefined();
    room?.set(value(0, 1));
    backing.check();
    expect(backing.peek(0)).toEqual(value(0, 0));
    await backing.putAll([{ chunk: 0, bytes: room ?? expect.fail() }]);
    expect(backing.peek(0)).toBe(room);
    expect(backing.peek(0)).toEqual(value(0, 1));
    const again = backing.takeRoom();
    expect(again && again !== room).toBe(true);
    backing.giveRoomBack(again ?? expect.fail());
    backing.check();
    expect(where()).toBe('host host');
    expect(backing.ledger.hostPeak).toBe(3 * BYTES);
    await backing.close();
  });

  it('leaves host memory furthest next use first, and only those needed later than what comes', async () => {
    const { backing, put, where } = setup({ chunks: 5, slots: 2, blocks: 8, nextUse: [30, 10, 20, 40, 5] });
    await put(0, 1);
    await put(2);
    expect(where()).toBe('disk host host nothing nothing');
    await put(3);
    expect(where()).toBe('disk host host disk nothing');
    await put(4);
    expect(where()).toBe('disk host disk disk host');
    await backing.fetch(0);
    expect(where()).toBe('both disk disk disk host');
  });

  it('that is clean leaves before a dirty one needed as late, and is not written again', async () => {
    const { backing, file, put, where } = setup({ chunks: 4, slots: 2, blocks: 8, nextUse: [9, 9, 9, 9] });
    await put(0, 1);
    await put(2);
    expect(where()).toBe('host host disk nothing');
    await backing.fetch(2);
    await turns(3);
    expect(where()).toBe('disk host both nothing');
    const written = file.writtenBytes;
    await put(3);
    expect(where()).toBe('disk host disk host');
    expect(file.writtenBytes).toBe(written);
  });

  it('that is zeros takes no memory and moves nothing', async () => {
    const { backing, file, where } = setup({ chunks: 3, slots: 2, blocks: 5 });
    for (const chunk of [0, 1, 2]) backing.setZero(chunk);
    expect(where()).toBe('zero zero zero');
    expect(backing.ledger).toMatchObject({ hostBytes: 0, diskBytes: 0 });
    for (const chunk of [0, 1, 2, 0]) expect(await backing.fetch(chunk)).toEqual(ZEROS);
    expect([file.readBytes, file.writtenBytes]).toEqual([0, 0]);
  });

  it('that is discarded gives its slot and block back', async () => {
    const { backing, put, where } = setup({ chunks: 3, slots: 2, blocks: 5 });
    await put(0, 1);
    await put(2);
    expect(backing.ledger.diskBytes).toBe(BYTES);
    for (const chunk of [0, 1, 2]) backing.discard(chunk);
    expect(where()).toBe('nothing nothing nothing');
    expect(backing.ledger.diskBytes).toBe(0);
    await expect(backing.fetch(0)).rejects.toThrow('chunk 0 is fetched and holds no value');
  });

  it('is read ahead where something needed later can leave, and only there', async () => {
    const { backing, put, file, where } = setup({ chunks: 4, slots: 2, blocks: 6, nextUse: [1, 2, 3, 4] });
    await put(0, 1);
    await put(2, 3);
    backing.prefetch(3);
    backing.prefetch(2);
    await turns(9);
    expect(where()).toBe('host host disk disk');
    backing.setOrder((chunk) => at([9, 2, 1, 4], chunk));
    backing.prefetch(2);
    await turns(9);
    expect(where()).toBe('disk host both disk');
    const read = file.readBytes;
    expect(await backing.fetch(2)).toEqual(value(2, 0));
    expect(file.readBytes).toBe(read);
  });

  it('keeps its fetched bytes until all that waited have run, whatever comes', async () => {
    const { backing, put } = setup({ chunks: 4, slots: 2, blocks: 6, nextUse: [0, 0, 0, 0] });
    await put(0, 1);
    await put(2, 3);
    const fetched = [0, 1, 2, 3, 3, 2].map(async (chunk) => {
      const bytes = await (async () => (async () => backing.fetch(chunk))())();
      const other = (chunk + 1) % 4;
      if (chunk < 2) void backing.putAll([{ chunk: other, bytes: value(other, 0) }]);
      expect(bytes).toEqual(value(chunk, 0));
    });
    await Promise.all(fetched);
  });
});

describe('fetched bytes stay until the end of the turn', () => {
  const later = async (fetched: Promise<Uint8Array>) => {
    const bytes = await fetched;
    for (let i = 0; i < 100; i++) await undefined;
    return bytes;
  };

  it('when the chunk is discarded and another comes', async () => {
    const { backing, put } = setup({ chunks: 3, slots: 2, blocks: 5 });
    await put(0, 1);
    const seen = later(backing.fetch(0)).then((bytes) => expect(bytes).toEqual(value(0, 0)));
    backing.discard(0);
    const done = put(2);
    await seen;
    await done;
    expect(await backing.fetch(2)).toEqual(value(2, 0));
  });

  it('when the chunk is being written because another takes its slot', async () => {
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const { backing, put, where } = setup({ chunks: 3, slots: 2, blocks: 5, nextUse: [9, 1, 2] }, () => gate);
    await put(0, 1);
    const done = put(2);
    const seen = later(backing.fetch(0)).then((bytes) => expect(bytes).toEqual(value(0, 0)));
    open();
    await seen;
    await done;
    expect(where()).toBe('disk host host');
    expect(await backing.fetch(2)).toEqual(value(2, 0));
  });
});

describe('a put of several', () => {
  it('shows all of its values or none, at every moment', async () => {
    let delay = 0;
    const { backing } = setup({ chunks: 8, slots: 4, blocks: 8, nextUse: [4, 3, 2, 1, 8, 7, 6, 5] }, () =>
      turns(delay++ % 5),
    );
    const put = (chunks: number[], version: number) =>
      backing.putAll(chunks.map((chunk) => ({ chunk, bytes: value(chunk, version) })));
    await put([0, 1, 2, 3], 0);
    await put([4, 5, 6, 7], 0);
    for (let version = 1; version < 20; version++) {
      const chunks = [version % 8, (version + 3) % 8, (version + 5) % 8];
      let done = false;
      const putting = put(chunks, version).then(() => {
        done = true;
      });
      for (let i = 0; !done; i++) {
        const isNew = chunks.flatMap((chunk) => {
          const bytes = backing.peek(chunk);
          return bytes ? [same(bytes, value(chunk, version))] : [];
        });
        expect(new Set(isNew).size, `put ${version}, look ${i}`).toBeLessThanOrEqual(1);
        await turns(i % 4);
      }
      await putting;
      for (const chunk of chunks) expect(await backing.fetch(chunk)).toEqual(value(chunk, version));
      backing.check();
    }
  });
});

describe('closing', () => {
  it('waits for what is under way, fails what stands in line and removes the file', async () => {
    const { backing, file, put } = setup({ chunks: 6, slots: 2, blocks: 8 }, () => turns(5));
    await put(0, 1, 2, 3);
    const outcomes = [0, 1, 2, 3].map((chunk) =>
      backing.fetch(chunk).then(
        () => 'value',
        (error) => (error as Error).message,
      ),
    );
    await backing.close();
    expect(file.removed).toBe(true);
    expect(new Set(await Promise.all(outcomes))).toEqual(new Set(['value', 'the tiers below the GPU were closed']));
    expect(() => backing.peek(0)).toThrow('closed');
  });
});

// ---- At random -----------------------------------------------------------------------------------------------

const KINDS = ['fetch', 'fetch', 'fetch', 'prefetch', 'prefetch', 'discard', 'zero', 'wait', 'order'] as const;

const scenarios = fc.integer({ min: 1, max: 9 }).chain((chunks) => {
  const chunk = fc.nat({ max: chunks - 1 });
  const put = fc.uniqueArray(chunk, { minLength: 1, maxLength: Math.min(4, chunks) });
  const step = fc.oneof(
    fc.record({ kind: fc.constantFrom(...KINDS), chunk }),
    fc.record({ kind: fc.constant('put' as const), chunks: put }),
  );
  return fc.record({
    chunks: fc.constant(chunks),
    slots: fc.integer({ min: leastHostChunks(chunks, true), max: chunks }),
    spareBlocks: fc.option(fc.nat({ max: 3 })),
    nextUse: fc.array(fc.oneof(fc.nat({ max: 5 }), fc.constant(Number.POSITIVE_INFINITY)), {
      minLength: chunks,
      maxLength: chunks,
    }),
    delays: fc.array(fc.nat({ max: 5 }), { minLength: 1, maxLength: 20 }),
    steps: fc.array(step, { maxLength: 60 }),
  });
});

/** What was asked of a chunk, in order; `bytes` is undefined for a discard. */
interface Call {
  readonly bytes: Uint8Array | undefined;
  done: boolean;
}

class Model {
  readonly calls: Call[] = [{ bytes: undefined, done: true }];

  give(bytes: Uint8Array | undefined, done: boolean): Call {
    const call = { bytes, done };
    this.calls.push(call);
    return call;
  }

  get last(): Uint8Array | undefined {
    return this.calls.at(-1)?.bytes;
  }

  /** Of all calls since then: a value that may be seen is that of the last one done, or of one after it. */
  get mark(): number {
    return this.calls.findLastIndex(({ done }) => done);
  }

  allows(mark: number, seen: Uint8Array | undefined): boolean {
    return this.calls.slice(mark).some(({ bytes }) => (seen ? same(bytes, seen) : !bytes));
  }
}

describe('random calls, many at once', () => {
  it('end, bring the last value put, stay within the limits and count every byte', async () => {
    const run = async ({ chunks, slots, spareBlocks, nextUse, delays, steps }: Scenario) => {
      const hasDisk = spareBlocks !== null;
      const hostChunks = hasDisk ? slots : chunks;
      const blocks = hasDisk ? leastDiskChunks(chunks, slots) + spareBlocks : undefined;
      let moves = 0;
      const { backing, file } = setup({ chunks, slots: hostChunks, blocks, nextUse }, () => {
        checkLimits();
        return turns(at(delays, moves++ % delays.length));
      });
      const checkLimits = () => {
        expect(backing.ledger.hostBytes).toBeLessThanOrEqual(hostChunks * BYTES);
        expect(backing.ledger.diskBytes).toBeLessThanOrEqual((blocks ?? 0) * BYTES);
      };
      const check = () => {
        backing.check();
        checkLimits();
        models.forEach((model, chunk) => {
          const seen = backing.peek(chunk);
          if (seen) expect(model.allows(model.mark, seen), `peek at ${chunk}`).toBe(true);
        });
      };
      const models = Array.from({ length: chunks }, () => new Model());
      const fetch = async (chunk: number) => {
        const model = at(models, chunk);
        const { mark } = model;
        const seen = await backing.fetch(chunk).catch((error) => {
          expect(String(error)).toContain('holds no value');
          return undefined;
        });
        expect(model.allows(mark, seen), `fetch of ${chunk}`).toBe(true);
        check();
      };
      const put = async (chosen: number[]) => {
        const entries = chosen.map((chunk) => ({ chunk, bytes: value(chunk, at(models, chunk).calls.length) }));
        const calls = entries.map(({ chunk, bytes }) => at(models, chunk).give(bytes.slice(), false));
        await backing.putAll(entries);
        for (const call of calls) call.done = true;
        for (const { bytes } of entries) bytes.fill(0xff); // ours again
        check();
      };
      const running: Promise<void>[] = [];
      for (const step of steps) {
        if (step.kind === 'put') running.push(put(step.chunks));
        else if (step.kind === 'fetch') running.push(fetch(step.chunk));
        else if (step.kind === 'prefetch') backing.prefetch(step.chunk);
        else if (step.kind === 'wait') await turns(step.chunk);
        else if (step.kind === 'order') nextUse.push(nextUse.shift() as number);
        else {
          at(models, step.chunk).give(step.kind === 'zero' ? ZEROS : undefined, true);
          if (step.kind === 'zero') backing.setZero(step.chunk);
          else backing.discard(step.chunk);
        }
        check();
      }
      await Promise.all(running);
      for (const [chunk, { last }] of models.entries()) {
        if (last) expect(await backing.fetch(chunk), `chunk ${chunk}`).toEqual(last);
        else expect(backing.where(chunk)).toBe('nothing');
      }
      await backing.close();
      const { diskReadBytes, diskWriteBytes } = backing.ledger;
      expect([diskReadBytes, diskWriteBytes]).toEqual([file.readBytes, file.writtenBytes]);
    };
    await fc.assert(fc.asyncProperty(scenarios, run), { seed: 1, numRuns: 300 });
  });
});

type Scenario = typeof scenarios extends fc.Arbitrary<infer T> ? T : never;
