// Threads of the optimizer on the host: the same bits however many there are; one that dies is one clear error.

import { afterEach, expect, test } from 'vitest';
import { HostThreads } from '../../src/engine/run/host-threads.ts';
import type { ThreadWork } from '../../src/kernels/adamw-thread.ts';
import { type HostValues, hostAdamWReference } from '../../src/kernels/host-adamw.ts';
import { HYPER, STATE } from '../../src/kernels/step-control.ts';
import { BLOCK } from '../../src/kernels/sum-squares.ts';
import { WasmHeap } from '../../src/kernels/wasm-heap.ts';
import type { Thread, Threads } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { entry } from '../entry.ts';
import { testHost } from '../host.ts';

const SIZE = 70 * BLOCK;
const hyper = Float32Array.of(1e-3, 0.1, 0.05, 1e-8, 0.1, 1, 1);
const state = new Float32Array(STATE.size);
state.set([0.19, 0.0975, 0.5], STATE.correction1);
state[STATE.updates] = 64;
const scalars = { hyper, state, decayMask: Uint32Array.of(0x5a5a1234, 0xff00ff00, 0x77) };
expect(hyper).toHaveLength(HYPER.size);

function valuesIn(allocate: (bytes: number) => Uint8Array): HostValues {
  const random = new Random(1, 'threads');
  const make = () => {
    const bytes = allocate(4 * SIZE);
    const floats = new Float32Array(bytes.buffer, bytes.byteOffset, SIZE);
    floats.forEach((_, i) => {
      floats[i] = Math.abs(random.normal());
    });
    return bytes;
  };
  return { parameter: make(), gradient: make(), moment1: make(), moment2: make() };
}

const same = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i]);
const heap = WasmHeap.make() as WasmHeap;
const own = entry(new Map([['threads', testHost.threads as Threads]]), 'threads');

let open: HostThreads | undefined;
afterEach(() => open?.end());

test.each([1, 2, 3])('%s threads bring what the reference brings, to the bit', async (count) => {
  open = new HostThreads({ ...own, count }, heap);
  const found = valuesIn((bytes) => heap.allocate(bytes));
  const wanted = valuesIn((bytes) => new Uint8Array(bytes));
  for (let step = 0; step < 3; step++) {
    await open.update(found, { size: SIZE - 3, firstBlock: 0 }, scalars);
    hostAdamWReference(wanted, { size: SIZE - 3, firstBlock: 0 }, scalars);
  }
  for (const kind of ['parameter', 'gradient', 'moment1', 'moment2'] as const) {
    expect(same(found[kind], wanted[kind]), kind).toBe(true);
  }
});

test('what does not lie in one shared memory is computed in this thread', async () => {
  open = new HostThreads({ count: 2, start: () => Promise.reject(new Error('no thread is needed')) }, heap);
  const found = valuesIn((bytes) => new Uint8Array(bytes));
  const wanted = valuesIn((bytes) => new Uint8Array(bytes));
  await open.update(found, { size: SIZE, firstBlock: 0 }, scalars);
  hostAdamWReference(wanted, { size: SIZE, firstBlock: 0 }, scalars);
  expect(same(found.parameter, wanted.parameter)).toBe(true);
});

test('a thread keeps the process alive until it has done all that it was given', async () => {
  let works = 0;
  const told: [isAlive: boolean, works: number][] = [];
  const watched: Threads = {
    count: 1,
    start: async (worker, { message, ...others }) => {
      const answered = (reply: unknown) => {
        works--;
        message(reply);
      };
      const thread = await own.start(worker, { message: answered, ...others });
      const keepAlive = (isAlive: boolean) => {
        told.push([isAlive, works]);
        thread.keepAlive(isAlive);
      };
      const post = (work: unknown) => {
        works++;
        thread.post(work);
      };
      return { ...thread, keepAlive, post };
    },
  };
  open = new HostThreads(watched, heap);
  const values = [1, 2, 3].map(() => valuesIn((bytes) => heap.allocate(bytes)));
  await Promise.all(values.map((each) => open?.update(each, { size: SIZE, firstBlock: 0 }, scalars)));
  await expect.poll(() => told.at(-1)).toEqual([false, 0]);
  for (const [isAlive, works] of told) if (!isAlive) expect(works).toBe(0);
});

const faults = {
  'cannot do its work': (thread: Thread, message: unknown) =>
    thread.post({ ...(message as ThreadWork), calls: [['unknown']] }),
  ends: (thread: Thread) => void thread.end(),
};
// A browser does not tell of a worker that ends.
const inBrowser = !/^(Node|Deno)/.test(testHost.name);

test.each(Object.entries(faults).slice(0, inBrowser ? 1 : 2))(
  'a thread that %s is one error that says what to do, then and later',
  async (_, fail) => {
    let started = 0;
    const failing: Threads = {
      count: 2,
      start: async (worker, told) => {
        const thread = await own.start(worker, told);
        const isLast = ++started === 2;
        return { ...thread, post: (message) => (isLast ? fail(thread, message) : thread.post(message)) };
      },
    };
    open = new HostThreads(failing, heap);
    const found = valuesIn((bytes) => heap.allocate(bytes));
    const update = () => open?.update(found, { size: SIZE, firstBlock: 0 }, scalars);
    for (const _ of [1, 2]) {
      const error = await update()?.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(HoldfastError);
      expect((error as Error).message).toMatch(
        /a thread of the optimizer on the host failed \(.*\); resume from the last checkpoint/,
      );
    }
  },
);
