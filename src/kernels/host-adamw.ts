// AdamW on the host: the arithmetic of adamw.ts's kernel, in its order, with every operation rounded to f32, in WebAssembly
// SIMD. Not a kernel: there is no device in it. The reference beside it is what it must equal to the bit.
//
// Invariant: an element's new values are a function of its old ones, its gradient and the step's scalars alone.

import { at } from '../util/at.ts';
import { keyIn } from './moments.ts';
import { HYPER, STATE } from './step-control.ts';
import { BLOCK } from './sum-squares.ts';
import { type AdamWExports, instantiate, MOST_PAGES, PAGE_BYTES, type WasmHeap } from './wasm-heap.ts';

/** What changes from step to step: see HYPER, ROUNDING and STATE; and which blocks decay, a bit each. */
export interface HostScalars {
  readonly hyper: Float32Array;
  readonly state: Float32Array;
  readonly decayMask: Uint32Array;
}

/** The values of one range, side by side, as bytes of f32, or for moments of bf16, that start at a multiple of 4. */
export interface HostValues {
  readonly parameter: Uint8Array;
  readonly gradient: Uint8Array;
  readonly moment1: Uint8Array;
  readonly moment2: Uint8Array;
}

/** Elements of the values, and the bit of decayMask that is their first block's. */
export interface HostExtent {
  readonly size: number;
  readonly firstBlock: number;
  /** Elements of the values before these. @default 0 */
  readonly first?: number;
  /** Where moments are bf16: elements of theirs before these. `size` is a multiple of 4 then. @default they are f32 */
  readonly firstNarrow?: number;
}

/** Steps between two sweeps of the moments: see `sweepBelow`. */
const SWEEP_STEPS = 64;
/** The smallest value that is not subnormal. */
const LEAST_NORMAL = 2 ** -126;

/**
 * Where no gradient comes, moments shrink until they are subnormal, with which a CPU computes forty times slower, and stay
 * so. In some steps, which the number of updates alone decides, those below this become zero; undefined in the others. A
 * second moment below it is lost in the rounding of `sqrt(v) + epsilon`.
 */
export function sweepBelow({ hyper, state }: Pick<HostScalars, 'hyper' | 'state'>): number | undefined {
  if (at(state, STATE.updates) % SWEEP_STEPS !== 0) return undefined;
  return Math.max(LEAST_NORMAL, Math.fround((at(hyper, HYPER.epsilon) * 2 ** -24) ** 2));
}

/** Elements of each kind that are computed at once where they are not in a heap: together they stay in a core's cache. */
const WINDOW = 8192;

/** Updates values in place where they lie in its heap; elsewhere, window by window they are copied into a memory, and back. */
export class HostAdamW {
  readonly #heap: WasmHeap | undefined;
  readonly #instances: AdamWExports[] = [];
  #windows: { readonly exports: AdamWExports; readonly arrays: readonly Uint8Array[] } | undefined;

  constructor(heap?: WasmHeap) {
    this.#heap = heap;
  }

  /** Changes parameter and moments in place. */
  update(values: HostValues, extent: HostExtent, scalars: HostScalars): void {
    if (at(scalars.state, STATE.skip) !== 0) return;
    const order = [values.parameter, values.moment1, values.moment2, values.gradient];
    const places = this.#heap?.placesOf(order);
    if (!places) {
      this.#throughWindows(order, extent, scalars);
      return;
    }
    const { memory, number, offsets } = places;
    const exports = this.#instances[number] ?? instantiate(memory);
    this.#instances[number] = exports;
    call(exports, callsOf(offsets, extent, scalars));
  }

  #throughWindows(all: readonly Uint8Array[], { size, firstBlock, ...from }: HostExtent, scalars: HostScalars): void {
    this.#windows ??= makeWindows();
    const { exports, arrays } = this.#windows;
    const offsets = arrays.map(({ byteOffset }) => byteOffset);
    const { first = 0, firstNarrow } = from;
    for (let done = 0; done < size; done += WINDOW) {
      const count = Math.min(WINDOW, size - done);
      const parts = all.map((bytes, i) => {
        const isNarrow = firstNarrow !== undefined && MOMENTS.has(i);
        const [width, before] = isNarrow ? [2, firstNarrow] : [4, first];
        return bytes.subarray(width * (before + done), width * (before + done + count));
      });
      parts.forEach((part, i) => {
        at(arrays, i).set(part);
      });
      const narrow = firstNarrow === undefined ? {} : { firstNarrow: 0 };
      call(exports, callsOf(offsets, { size: count, firstBlock: firstBlock + done / BLOCK, ...narrow }, scalars));
      // All but the gradient.
      for (const i of [0, 1, 2]) at(parts, i).set(at(arrays, i).subarray(0, at(parts, i).length));
    }
  }
}

/** In the order of offsets. */
const MOMENTS: ReadonlySet<number> = new Set([1, 2]);

/** A call of a function of the module. */
export type Call = readonly [name: keyof AdamWExports, ...values: number[]];

/** What updates values at byte offsets of a memory: of parameter, both moments, gradient. */
export function callsOf(
  offsets: readonly number[],
  { size, firstBlock, first = 0, firstNarrow }: HostExtent,
  { hyper, state, decayMask }: HostScalars,
): Call[] {
  const least = sweepBelow({ hyper, state });
  const numbers = [
    at(hyper, HYPER.learningRate),
    at(hyper, HYPER.oneMinusBeta1),
    at(hyper, HYPER.oneMinusBeta2),
    at(hyper, HYPER.epsilon),
    at(hyper, HYPER.weightDecay),
    at(state, STATE.coefficient),
    at(state, STATE.correction1),
    at(state, STATE.correction2),
  ];
  const calls: Call[] = [];
  for (const { start, end, decays } of runsOf(decayMask, firstBlock, size)) {
    const [p = 0, m = 0, v = 0, g = 0] = offsets.map((offset, i) =>
      firstNarrow !== undefined && MOMENTS.has(i) ? offset + 2 * (firstNarrow + start) : offset + 4 * (first + start),
    );
    if (firstNarrow !== undefined) {
      const rounding = [...keyIn(hyper), firstBlock * BLOCK + start, least ?? 0];
      calls.push(['adamwNarrow', p, m, v, g, end - start, Number(decays), ...numbers, ...rounding]);
      continue;
    }
    calls.push(['adamw', p, m, v, g, end - start, Number(decays), ...numbers]);
    if (least !== undefined) calls.push(['sweep', m, end - start, least], ['sweep', v, end - start, least]);
  }
  return calls;
}

const call = (exports: AdamWExports, calls: readonly Call[]): void => {
  for (const [name, ...values] of calls) exports[name](...values);
};

function makeWindows() {
  const bytes = WINDOW * 4;
  const memory = new WebAssembly.Memory({ initial: (4 * bytes) / PAGE_BYTES, maximum: MOST_PAGES });
  const arrays = [0, 1, 2, 3].map((i) => new Uint8Array(memory.buffer, i * bytes, bytes));
  return { exports: instantiate(memory), arrays };
}

const floats = ({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array =>
  new Float32Array(buffer, byteOffset, byteLength / 4);

/** Elements in a row that all decay, or none of them. */
function* runsOf(mask: Uint32Array, firstBlock: number, size: number) {
  const bit = (block: number) => ((at(mask, block >> 5) >>> (block & 31)) & 1) === 1;
  for (let start = 0; start < size; ) {
    const decays = bit(firstBlock + start / BLOCK);
    let end = start + BLOCK;
    while (end < size && bit(firstBlock + end / BLOCK) === decays) end += BLOCK;
    yield { start, end: Math.min(end, size), decays };
    start = end;
  }
}

/** The same in JavaScript: f64 operations, each of them rounded. From the start of the values on. */
export function hostAdamWReference(values: HostValues, { size, firstBlock }: HostExtent, scalars: HostScalars): void {
  const { hyper, state, decayMask } = scalars;
  if (at(state, STATE.skip) !== 0) return;
  const r = Math.fround;
  const least = sweepBelow(scalars) ?? 0;
  const [p, g, m, v] = [values.parameter, values.gradient, values.moment1, values.moment2].map(floats) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const learningRate = at(hyper, HYPER.learningRate);
  const swept = (value: number) => (Math.abs(value) < least ? 0 : value);
  for (let i = 0; i < size; i++) {
    const block = firstBlock + Math.floor(i / BLOCK);
    const decays = ((at(decayMask, block >> 5) >>> (block & 31)) & 1) === 1;
    const gradient = r(at(g, i) * at(state, STATE.coefficient));
    const first = r(at(m, i) + r(at(hyper, HYPER.oneMinusBeta1) * r(gradient - at(m, i))));
    const second = r(at(v, i) + r(at(hyper, HYPER.oneMinusBeta2) * r(r(gradient * gradient) - at(v, i))));
    m[i] = swept(first);
    v[i] = swept(second);
    const value = at(p, i);
    const decayed = decays ? r(r(learningRate * at(hyper, HYPER.weightDecay)) * value) : 0;
    const root = r(Math.sqrt(r(second / at(state, STATE.correction2))));
    const denominator = r(root + at(hyper, HYPER.epsilon));
    const step = denominator > 0 ? r(r(learningRate * r(first / at(state, STATE.correction1))) / denominator) : 0;
    p[i] = r(value - r(decayed + step));
  }
}
