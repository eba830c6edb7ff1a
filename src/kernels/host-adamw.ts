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
  /** Whether decayMask has a word for each block: see `numberedBlock`. @default one bit */
  readonly numbered?: boolean;
}

/** What parameters are computed with in, which their gradients have, and what moments are kept as. */
export interface HostWidths {
  readonly dtype: 'f32' | 'bf16' | 'f16';
  readonly momentDtype: 'f32' | 'bf16';
}

/**
 * The values of one range, side by side, as bytes that start at a multiple of 4. In bf16 `parameter` has the upper halves of
 * float32 and `beside` the lower ones; in f16 `parameter` is float32 and `beside` its copy.
 */
export interface HostValues {
  readonly parameter: Uint8Array;
  readonly gradient: Uint8Array;
  readonly moment1: Uint8Array;
  readonly moment2: Uint8Array;
  readonly beside?: Uint8Array | undefined;
  /** Where the new values go, of the same kinds. @default in place of the old ones */
  readonly into?: NewHostValues | undefined;
}

/** Computes AdamW over values in host memory, here or in threads. */
export interface HostUpdater {
  /** Changes all but the gradient in place, or beside. */
  update(values: HostValues, extent: HostExtent, scalars: HostScalars): Promise<void> | void;
  /** Frees what it has. */
  end?(): Promise<void>;
}

/** Of HostValues, what an update changes. */
export type NewHostValues = Pick<HostValues, ChangedOperand>;

/** Elements of the values, and the bit of decayMask that is their first block's. */
export interface HostExtent {
  /** A multiple of 4 where anything is of sixteen bits. */
  readonly size: number;
  readonly firstBlock: number;
  /** Elements of values of 32 bits before these. @default 0 */
  readonly first?: number;
  /** Elements of values of sixteen bits before these. @default 0 */
  readonly firstNarrow?: number;
  /** @default all in f32 */
  readonly widths?: HostWidths;
}

const WIDE: HostWidths = { dtype: 'f32', momentDtype: 'f32' };

/** In the order in which the module takes them. Its second is there for sixteen bits alone. */
const OPERANDS = ['parameter', 'beside', 'moment1', 'moment2', 'gradient'] as const satisfies (keyof HostValues)[];
type HostOperand = (typeof OPERANDS)[number];
type ChangedOperand = Exclude<HostOperand, 'gradient'>;
/** Of these, in the same order, those that an update changes. */
const CHANGED = ['parameter', 'beside', 'moment1', 'moment2'] as const satisfies readonly ChangedOperand[];

/** Bytes of an element. */
function widthOf(operand: HostOperand, { dtype, momentDtype }: HostWidths): number {
  switch (operand) {
    case 'parameter':
      return dtype === 'bf16' ? 2 : 4;
    case 'beside':
      return 2;
    case 'gradient':
      return dtype === 'f32' ? 4 : 2;
    case 'moment1':
    case 'moment2':
      return momentDtype === 'f32' ? 4 : 2;
    default:
      return operand satisfies never;
  }
}

/** In the order of OPERANDS, those that there are; behind them, in the same order, where the new ones go that go elsewhere. */
export const bytesIn = (values: HostValues): Uint8Array[] => [
  ...OPERANDS.flatMap((operand) => values[operand] ?? []),
  ...CHANGED.flatMap((operand) => values.into?.[operand] ?? []),
];

/** The operands that there are, in that order. */
const operandsIn = ({ dtype }: HostWidths): readonly HostOperand[] =>
  OPERANDS.filter((operand) => dtype !== 'f32' || operand !== 'beside');

/** Of these, in that order, those that an update changes. */
const changedIn = (widths: HostWidths): readonly ChangedOperand[] =>
  CHANGED.filter((operand) => operandsIn(widths).includes(operand));

/** In bytes, of the first element of an operand. */
const startIn = (operand: HostOperand, { first = 0, firstNarrow = 0, widths = WIDE }: HostExtent): number => {
  const width = widthOf(operand, widths);
  return width * (width === 2 ? firstNarrow : first);
};

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

  /** Changes all but the gradient, in place or beside. */
  update(values: HostValues, extent: HostExtent, scalars: HostScalars): void {
    // A copy in f16 of what stays as it is may have been given up.
    if (at(scalars.state, STATE.skip) !== 0 && !values.beside) return;
    const places = this.#heap?.placesOf(bytesIn(values));
    if (!places) {
      this.#throughWindows(values, extent, scalars);
      return;
    }
    const { memory, number, offsets } = places;
    const exports = this.#instances[number] ?? instantiate(memory);
    this.#instances[number] = exports;
    call(exports, callsOf(offsets, extent, scalars));
  }

  #throughWindows(values: HostValues, extent: HostExtent, scalars: HostScalars): void {
    this.#windows ??= makeWindows();
    const { exports, arrays } = this.#windows;
    const { size, firstBlock, widths = WIDE } = extent;
    const operands = operandsIn(widths);
    const all = bytesIn(values);
    const news = values.into ? bytesIn({ ...values, ...values.into }) : all;
    const offsets = operands.map((_, i) => at(arrays, i).byteOffset);
    for (let done = 0; done < size; done += WINDOW) {
      const count = Math.min(WINDOW, size - done);
      const partOf = (some: readonly Uint8Array[], operand: HostOperand, i: number) => {
        const width = widthOf(operand, widths);
        const start = startIn(operand, extent) + width * done;
        return at(some, i).subarray(start, start + width * count);
      };
      operands.forEach((operand, i) => {
        at(arrays, i).set(partOf(all, operand, i));
      });
      call(exports, callsOf(offsets, { size: count, firstBlock: firstBlock + done / BLOCK, widths }, scalars));
      operands.forEach((operand, i) => {
        if (operand === 'gradient') return;
        const part = partOf(news, operand, i);
        part.set(at(arrays, i).subarray(0, part.length));
      });
    }
  }
}

/** A call of a function of the module. */
export type Call = readonly [name: keyof AdamWExports, ...values: number[]];

/** Ways in which parameters and moments are kept, as the module numbers them. */
const WAYS = {
  f32: { f32: 0, bf16: 1 },
  bf16: { f32: 2, bf16: 3 },
  f16: { f32: 4, bf16: 5 },
} as const satisfies Record<HostWidths['dtype'], Record<HostWidths['momentDtype'], number>>;

/** What updates values at byte offsets of a memory: of those of `bytesIn`. A step that is skipped changes nothing in place alone. */
export function callsOf(offsets: readonly number[], extent: HostExtent, scalars: HostScalars): Call[] {
  const { hyper, state } = scalars;
  const { size, firstBlock, widths = WIDE } = extent;
  const operands = operandsIn(widths);
  const changed = changedIn(widths);
  const offsetIn = (operand: HostOperand, element: number) =>
    startIn(operand, extent) + widthOf(operand, widths) * element;
  const placeOf = (operand: HostOperand, element = 0) =>
    at(offsets, operands.indexOf(operand)) + offsetIn(operand, element);
  const isInPlace = offsets.length === operands.length;
  const newPlaceOf = (operand: ChangedOperand, element = 0) =>
    isInPlace
      ? placeOf(operand, element)
      : at(offsets, operands.length + changed.indexOf(operand)) + offsetIn(operand, element);
  if (at(state, STATE.skip) !== 0) {
    return widths.dtype === 'f16' ? [['copyNarrowed', placeOf('parameter'), placeOf('beside'), size]] : [];
  }
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
  const isRounded = widths.momentDtype === 'bf16';
  const calls: Call[] = [];
  for (const { start, end, decays, element } of runsOf(scalars, firstBlock, size)) {
    const places = OPERANDS.map((operand) => (operands.includes(operand) ? placeOf(operand, start) : 0));
    const newPlaces = CHANGED.map((operand) => (changed.includes(operand) ? newPlaceOf(operand, start) : 0));
    const rounding = isRounded ? [...keyIn(hyper), element, least ?? 0] : [0, 0, 0, 0];
    const way = WAYS[widths.dtype][widths.momentDtype];
    calls.push(['adamw', way, ...places, ...newPlaces, end - start, Number(decays), ...numbers, ...rounding]);
    if (isRounded || least === undefined) continue;
    for (const moment of ['moment1', 'moment2'] as const) {
      calls.push(['sweep', newPlaceOf(moment, start), end - start, least]);
    }
  }
  return calls;
}

const call = (exports: AdamWExports, calls: readonly Call[]): void => {
  for (const [name, ...values] of calls) exports[name](...values);
};

function makeWindows() {
  const bytes = WINDOW * 4;
  const all = OPERANDS.length * bytes;
  const memory = new WebAssembly.Memory({ initial: Math.ceil(all / PAGE_BYTES), maximum: MOST_PAGES });
  const arrays = OPERANDS.map((_, i) => new Uint8Array(memory.buffer, i * bytes, bytes));
  return { exports: instantiate(memory), arrays };
}

const floats = ({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array =>
  new Float32Array(buffer, byteOffset, byteLength / 4);

/** Elements in a row that all decay, or none of them, and the number of the first among all that train. */
function* runsOf({ decayMask, numbered = false }: HostScalars, firstBlock: number, size: number) {
  const factsOf = numbered
    ? (block: number) => ({ decays: at(decayMask, block) >>> 31 === 1, number: at(decayMask, block) & 0x7fffffff })
    : (block: number) => ({ decays: ((at(decayMask, block >> 5) >>> (block & 31)) & 1) === 1, number: block });
  for (let start = 0; start < size; ) {
    const { decays, number } = factsOf(firstBlock + start / BLOCK);
    let end = start + BLOCK;
    for (; end < size; end += BLOCK) {
      const next = factsOf(firstBlock + end / BLOCK);
      if (next.decays !== decays || next.number !== number + (end - start) / BLOCK) break;
    }
    yield { start, end: Math.min(end, size), decays, element: number * BLOCK };
    start = end;
  }
}

/** The oracle of HostAdamW in JavaScript, of float32: f64 operations, each of them rounded. From the start of the values on. */
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
