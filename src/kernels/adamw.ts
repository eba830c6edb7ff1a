// AdamW with decoupled decay, on a flat range of parameters that lies alike in all its operands. Learning rate,
// corrections, clipping and skipping come from `hyper` and `state` (see step-control.ts). Parameters are float32, or lie as
// their halves, the upper of which other kernels read as bfloat16 (values/split-floats.ts): the same float32, and its bits. Or
// they are float32 beside a copy in binary16, which other kernels read. Moments are float32, or bfloat16 rounded by chance
// (moments.ts).

import shader from '../../shaders/adamw/adamw.wgsl?raw';
import blocksInOrder from '../../shaders/adamw/blocks_in_order.wgsl?raw';
import blocksNumbered from '../../shaders/adamw/blocks_numbered.wgsl?raw';
import momentsBF16 from '../../shaders/adamw/moments_bf16.wgsl?raw';
import momentsFloats from '../../shaders/adamw/moments_floats.wgsl?raw';
import parameterFloats from '../../shaders/adamw/parameter_floats.wgsl?raw';
import parameterHalves from '../../shaders/adamw/parameter_halves.wgsl?raw';
import parameterMaster from '../../shaders/adamw/parameter_master.wgsl?raw';
import words from '../../shaders/shared/splitmix32.wgsl?raw';
import f16 from '../../shaders/width/f16.wgsl?raw';
import { narrowFloats, widen } from '../values/floats.ts';
import { joinHalves, lowerHalves, upperHalves } from '../values/split-floats.ts';
import { type Arrays, ceilDiv, type Kernel, read, update, write } from './kernel.ts';
import { keyIn, roundMoments } from './moments.ts';
import { controlConstants, HYPER, ROUNDING, STATE } from './step-control.ts';
import { BLOCK } from './sum-squares.ts';
import { lanesOf, perElem } from './variants.ts';

/** What one invocation updates, in elem: enough that the scalars of the step are read for many at once. */
const STEPS = 4;

export interface AdamWProblem {
  size: number;
  /**
   * The bit of decayMask that belongs to the first block of this range.
   * @default 0
   */
  maskOffset?: number;
}

/** gradient (size), decayMask (one bit per BLOCK elements) -> parameter, m, v (size). */
export const adamw: Kernel<AdamWProblem> = {
  name: 'adamw',
  operands: ({ size, maskOffset = 0 }) => ({
    gradient: read(size),
    hyper: read(HYPER.size),
    state: read(STATE.size),
    decayMask: read(ceilDiv(maskOffset + ceilDiv(size, BLOCK), 32), 'u32'),
    m: update(size),
    v: update(size),
    parameter: update(size),
  }),
  affectsSpeed: { size: true, maskOffset: false },
  variants: perElem(
    shader + blocksInOrder + momentsFloats + parameterFloats,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => ceilDiv(size / lanes, STEPS),
    ({ size, maskOffset = 0 }, lanes) => ({ size: size / lanes, maskOffset }),
    { BLOCK, STEPS, ...controlConstants },
  ),
  flops: ({ size }) => size * 19,
  reference(
    { size, maskOffset = 0 },
    {
      gradient,
      hyper,
      state,
      decayMask,
      parameter,
      m,
      v,
    }: Arrays<'gradient' | 'hyper' | 'state' | 'decayMask' | 'parameter' | 'm' | 'v'>,
  ) {
    if (state[STATE.skip] !== 0) return;
    const lr = hyper[HYPER.learningRate]!;
    const rest1 = hyper[HYPER.oneMinusBeta1]!;
    const rest2 = hyper[HYPER.oneMinusBeta2]!;
    for (let i = 0; i < size; i++) {
      const block = maskOffset + Math.floor(i / BLOCK);
      const decays = Math.floor(decayMask[block >> 5]! / 2 ** (block & 31)) % 2 === 1;
      if (decays) parameter[i]! *= 1 - lr * hyper[HYPER.weightDecay]!;
      const g = gradient[i]! * state[STATE.coefficient]!;
      m[i] = (1 - rest1) * m[i]! + rest1 * g;
      v[i] = (1 - rest2) * v[i]! + rest2 * g * g;
      const denominator = Math.sqrt(v[i]! / state[STATE.correction2]!) + hyper[HYPER.epsilon]!;
      if (denominator > 0) parameter[i]! -= (lr * (m[i]! / state[STATE.correction1]!)) / denominator;
    }
  },
};

/** gradient (size), decayMask -> high, low (size / 2 words: two halves in each), m, v (size). `size`: a multiple of 4. */
export const adamwOnHalves: Kernel<AdamWProblem> = {
  ...adamw,
  name: 'adamwOnHalves',
  operands: (problem) => {
    const { parameter: _, ...others } = adamw.operands(problem);
    const words = update(problem.size / 2, 'u32');
    return { ...others, high: words, low: words };
  },
  variants: perElem(
    shader + blocksInOrder + momentsFloats + parameterHalves,
    () => 4,
    ({ size }) => ceilDiv(size / 4, STEPS),
    ({ size, maskOffset = 0 }) => ({ size: size / 4, maskOffset }),
    { BLOCK, STEPS, ...controlConstants },
  ),
  reference(problem, data: Arrays<'gradient' | 'hyper' | 'state' | 'decayMask' | 'high' | 'low' | 'm' | 'v'>) {
    const [high, low] = [Uint32Array.from(data.high), Uint32Array.from(data.low)];
    const [upper, lower] = [new Uint16Array(high.buffer), new Uint16Array(low.buffer)];
    const floats = new Float32Array(problem.size);
    joinHalves(upper, lower, floats);
    const parameter = Float64Array.from(floats);
    adamw.reference(problem, { ...data, parameter });
    floats.set(parameter);
    upperHalves(floats, upper);
    lowerHalves(floats, lower);
    data.high.set(high);
    data.low.set(low);
  },
};

/** gradient (size), decayMask -> parameter, m, v (size), copy (size / 2 words: two binary16 in each). `size`: a multiple of 4. */
export const adamwWithCopy: Kernel<AdamWProblem> = {
  ...adamw,
  name: 'adamwWithCopy',
  // There may be none before: that of a step that is skipped is made, too.
  operands: (problem) => ({ ...adamw.operands(problem), copy: write(problem.size / 2, 'u32') }),
  variants: perElem(
    shader + blocksInOrder + momentsFloats + parameterMaster + f16,
    () => 4,
    ({ size }) => ceilDiv(size / 4, STEPS),
    ({ size, maskOffset = 0 }) => ({ size: size / 4, maskOffset }),
    { BLOCK, STEPS, ...controlConstants },
  ),
  reference(problem, data: Arrays<'gradient' | 'hyper' | 'state' | 'decayMask' | 'parameter' | 'copy' | 'm' | 'v'>) {
    adamw.reference(problem, data);
    const words = new Uint32Array(data.copy.length);
    narrowFloats('F16', Float32Array.from(data.parameter), new Uint16Array(words.buffer));
    data.copy.set(words);
  },
};

/** Of moments that are rounded by chance. */
export interface NarrowMomentsProblem extends AdamWProblem {
  /**
   * Whether the blocks are some of all that train: decayMask then has a word for each (`numberedBlock`), since chance goes by
   * which of all a block is.
   * @default they are all, in their order
   */
  numbered?: boolean;
}

/** The word of a block that is some block of all that train. */
export const numberedBlock = (number: number, decays: boolean): number => number + (decays ? DECAYS : 0);
const DECAYS = 2 ** 31;

/**
 * `kernel` with m, v (size / 2 words: two bfloat16 in each), rounded by chance with the key in hyper (ROUNDING.size).
 * `parameters`: its fragment of them, with four lanes. `size`: a multiple of 4.
 */
const withNarrowMoments = (kernel: Kernel<AdamWProblem>, parameters: string): Kernel<NarrowMomentsProblem> => ({
  ...kernel,
  name: `${kernel.name}NarrowMoments`,
  operands({ numbered = false, ...problem }) {
    const { size, maskOffset = 0 } = problem;
    const moments = update(size / 2, 'u32');
    const words = numbered && { decayMask: read(maskOffset + ceilDiv(size, BLOCK), 'u32') };
    return { ...kernel.operands(problem), ...words, hyper: read(ROUNDING.size), m: moments, v: moments };
  },
  affectsSpeed: { ...kernel.affectsSpeed, numbered: false },
  variants: perElem(
    ({ numbered }) => shader + (numbered ? blocksNumbered : blocksInOrder) + momentsBF16 + parameters + words,
    () => 4,
    ({ size }) => ceilDiv(size / 4, STEPS),
    ({ size, maskOffset = 0 }) => ({ size: size / 4, maskOffset }),
    { BLOCK, STEPS, ...controlConstants, HYPER_ROUNDING_KEY: ROUNDING.roundingKey },
  ),
  flops: ({ size }) => kernel.flops({ size }) + 24 * size,
  reference({ numbered, ...problem }, data: Arrays<'hyper' | 'state' | 'decayMask' | 'm' | 'v'>) {
    const { size, maskOffset = 0 } = problem;
    const halvesOf = (list: Float64Array) => new Uint16Array(Uint32Array.from(list).buffer);
    const [m, v] = [data.m, data.v].map((list) => {
      const floats = new Float32Array(size);
      widen('BF16', halvesOf(list), floats);
      return Float64Array.from(floats);
    }) as [Float64Array, Float64Array];
    const decayMask = numbered ? bitsOf(data.decayMask) : data.decayMask;
    kernel.reference(problem, { ...data, decayMask, m, v });
    if (data.state[STATE.skip] !== 0) return;
    const key = keyIn(data.hyper);
    const floats = [Float32Array.from(m), Float32Array.from(v)] as const;
    const into = [new Uint16Array(size), new Uint16Array(size)] as const;
    for (let first = 0; first < size; first += BLOCK) {
      const block = maskOffset + first / BLOCK;
      const number = numbered ? data.decayMask[block]! % DECAYS : block;
      const inBlock = <L extends Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>>([one, other]: readonly [L, L]) =>
        [one.subarray(first, first + BLOCK) as L, other.subarray(first, first + BLOCK) as L] as const;
      roundMoments(key, number * BLOCK, inBlock(floats), inBlock(into));
    }
    data.m.set(new Uint32Array(into[0].buffer));
    data.v.set(new Uint32Array(into[1].buffer));
  },
});

/** One bit a block. */
function bitsOf(blocks: Float64Array): Float64Array {
  const bits = new Float64Array(ceilDiv(blocks.length, 32));
  blocks.forEach((word, block) => {
    if (word >= DECAYS) bits[block >> 5]! += 2 ** (block & 31);
  });
  return bits;
}

/** As adamw, adamwOnHalves and adamwWithCopy, with moments in bf16. */
export const adamwNarrowMoments = withNarrowMoments(adamw, parameterFloats);
export const adamwOnHalvesNarrowMoments = withNarrowMoments(adamwOnHalves, parameterHalves);
export const adamwWithCopyNarrowMoments = withNarrowMoments(adamwWithCopy, parameterMaster + f16);
