// Copies by several threads: every byte of what is copied, and no other, from and into memory of every kind; behind them the
// process ends by itself.

import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CopyThreads } from '../../src/runtime/headless/copy-threads.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { Random } from '../../src/util/random.ts';

const MEBIBYTE = 2 ** 20;
const GUARD = 80;
const UNTOUCHED = 0xa5;

const MEMORIES: Readonly<Record<string, (bytes: number) => ArrayBufferLike>> = {
  'an ArrayBuffer': (bytes) => new ArrayBuffer(bytes),
  'a SharedArrayBuffer': (bytes) => new SharedArrayBuffer(bytes),
  'a WebAssembly memory': (bytes) =>
    new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536), maximum: 65536, shared: true }).buffer,
};

// Deno copies by itself.
describe.skipIf('Deno' in globalThis)('copies by several threads', () => {
  const made: CopyThreads[] = [];
  beforeAll(async () => {
    made.push(await CopyThreads.open(1), await CopyThreads.open(3));
  });
  afterAll(async () => {
    await Promise.all(made.map((threads) => threads.end()));
  });

  const random = new Random(1, 'copies');
  const drawn = (bytes: number) => {
    const values = new Uint8Array(bytes);
    for (let i = 0; i < bytes; i += 1 + random.below(97)) values[i] = random.below(256);
    return values;
  };

  it.each(Object.keys(MEMORIES).flatMap((from) => Object.keys(MEMORIES).map((to) => [from, to] as const)))(
    'are those of all bytes, and no other: from %s to %s',
    (from, to) => {
      const sizes = [0, 1, MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1, 3 * MEBIBYTE + 63, 4 * MEBIBYTE];
      for (const [i, bytes] of sizes.entries()) {
        const [left, right] = [random.below(GUARD), random.below(GUARD)];
        const source = new Uint8Array(MEMORIES[from]!(GUARD + bytes), left, bytes);
        source.set(drawn(bytes));
        const whole = new Uint8Array(MEMORIES[to]!(2 * GUARD + bytes)).fill(UNTOUCHED);
        made[i % 2]!.copy(whole.subarray(right), source);
        const wanted = new Uint8Array(whole.length).fill(UNTOUCHED);
        wanted.set(source, right);
        expect(Buffer.compare(whole, wanted)).toBe(0);
      }
    },
  );

  it('are each done when the next begins', () => {
    const values = Array.from({ length: 8 }, () => drawn(2 * MEBIBYTE + 8));
    const into = new Uint8Array(2 * MEBIBYTE + 8);
    for (let i = 0; i < 200; i++) {
      const value = values[i % values.length]!;
      made[i % 2]!.copy(into, value);
      expect(Buffer.compare(into, value)).toBe(0);
    }
  });

  it('are refused where there is too little room', () => {
    for (const { copy } of made) {
      expect(() => copy(new Uint8Array(MEBIBYTE), new Uint8Array(MEBIBYTE + 1))).toThrow(RangeError);
    }
  });

  it('are none into memory that was given up', () => {
    const gone = new Uint8Array(MEBIBYTE);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    for (const { copy } of made) {
      expect(() => copy(new Uint8Array(MEBIBYTE), gone)).toThrow(TypeError);
      expect(() => copy(gone, new Uint8Array(MEBIBYTE))).toThrow(TypeError);
    }
  });

  it('keep no process alive', async () => {
    const script = `
      import { headlessHost } from './dist/headless.js';
      const copyBytes = await headlessHost().startCopying();
      const [from, to] = [new Uint8Array(${4 * MEBIBYTE}).fill(7), new Uint8Array(${4 * MEBIBYTE})];
      for (let i = 0; i < 10; i++) copyBytes?.(to, from);
      console.log(copyBytes ? to.every((value) => value === 7) : 'too few processors');`;
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    const printed = (await headlessHost().startCopying?.()) ? 'true' : 'too few processors';
    expect([status, stdout.trim(), stderr]).toEqual([0, printed, '']);
  });
});
