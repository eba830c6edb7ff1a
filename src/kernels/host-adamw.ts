// AdamW on the host: the arithmetic of adamw.ts's kernel, in its order, with every operation rounded to f32, in WebAssembly
// SIMD. Not a kernel: it knows no device. The reference beside it is what it must equal to the bit.
//
// Invariant: an element's new values are a function of its old ones, its gradient and the step's scalars alone.

import MODULE from '../../assembly/adamw.ts?wasm';
import { at } from '../util/at.ts';
import { HYPER, STATE } from './step-control.ts';
import { BLOCK } from './sum-squares.ts';

/** What changes from step to step: see HYPER and STATE; and which blocks decay, a bit each. */
export interface HostScalars {
  readonly hyper: Float32Array;
  readonly state: Float32Array;
  readonly decayMask: Uint32Array;
}

/** The values of one range, side by side, as bytes of f32 that start at a multiple of 4. */
export interface HostValues {
  readonly parameter: Uint8Array;
  readonly gradient: Uint8Array;
  readonly moment1: Uint8Array;
  readonly moment2: Uint8Array;
}

/** Elements from the start of the values on, and the bit of decayMask that is their first block's. */
export interface HostExtent {
  readonly size: number;
  readonly firstBlock: number;
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

/** Elements of each kind that are computed at once: together they stay in a core's cache. */
const WINDOW = 8192;
const PAGE = 65536;

interface Exports {
  adamw(...values: number[]): void;
  sweep(values: number, count: number, least: number): void;
  traffic(parameter: number, m: number, v: number, gradient: number, count: number): void;
}

/** Updates values wherever they lie: window by window they are copied into a memory of its own, and back. */
export class HostAdamW {
  readonly #exports: Exports;
  readonly #windows: readonly Float32Array[];

  constructor() {
    const bytes = WINDOW * 4;
    const memory = new WebAssembly.Memory({ initial: (4 * bytes) / PAGE, maximum: PAGE });
    this.#exports = new WebAssembly.Instance(compiled(), { env: { memory } }).exports as unknown as Exports;
    this.#windows = [0, 1, 2, 3].map((i) => new Float32Array(memory.buffer, i * bytes, WINDOW));
  }

  /** Changes parameter and moments in place. */
  update(values: HostValues, { size, firstBlock }: HostExtent, scalars: HostScalars): void {
    const { hyper, state, decayMask } = scalars;
    if (at(state, STATE.skip) !== 0) return;
    const least = sweepBelow(scalars);
    const [parameter, gradient, moment1, moment2] = [
      floats(values.parameter),
      floats(values.gradient),
      floats(values.moment1),
      floats(values.moment2),
    ];
    const all = [parameter, moment1, moment2, gradient];
    for (let first = 0; first < size; first += WINDOW) {
      const count = Math.min(WINDOW, size - first);
      all.forEach((from, i) => {
        at(this.#windows, i).set(from.subarray(first, first + count));
      });
      for (const { start, end, decays } of runsOf(decayMask, firstBlock + first / BLOCK, count)) {
        const [p, m, v, g] = [0, 1, 2, 3].map((i) => 4 * (i * WINDOW + start)) as [number, number, number, number];
        this.#exports.adamw(
          ...[p, m, v, g, end - start, Number(decays)],
          at(hyper, HYPER.learningRate),
          at(hyper, HYPER.oneMinusBeta1),
          at(hyper, HYPER.oneMinusBeta2),
          at(hyper, HYPER.epsilon),
          at(hyper, HYPER.weightDecay),
          at(state, STATE.coefficient),
          at(state, STATE.correction1),
          at(state, STATE.correction2),
        );
        if (least === undefined) continue;
        this.#exports.sweep(m, end - start, least);
        this.#exports.sweep(v, end - start, least);
      }
      [parameter, moment1, moment2].forEach((to, i) => {
        to.set(at(this.#windows, i).subarray(0, count), first);
      });
    }
  }
}

const floats = ({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array =>
  new Float32Array(buffer, byteOffset, byteLength / 4);

let module: WebAssembly.Module | undefined;

function compiled(): WebAssembly.Module {
  module ??= new WebAssembly.Module(Uint8Array.from(atob(MODULE), (character) => character.charCodeAt(0)));
  return module;
}

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

/** The same in JavaScript: f64 operations, each of them rounded. */
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
