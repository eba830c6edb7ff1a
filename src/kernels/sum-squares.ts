// Sums of squares over blocks of a flat range: the first half of a gradient norm. columnSum with width 1 adds
// the partials up. The block is fixed, so that the norm does not depend on how gradients lie in memory.

import inverseScale from '../../shaders/step-control/inverse_scale.wgsl?raw';
import asItIs from '../../shaders/sum-squares/as_it_is.wgsl?raw';
import eights from '../../shaders/sum-squares/by_eights.wgsl?raw';
import rounding from '../../shaders/sum-squares/rounding.wgsl?raw';
import scaled from '../../shaders/sum-squares/scaled.wgsl?raw';
import items from '../../shaders/sum-squares/sum_squares.wgsl?raw';
import unscaled from '../../shaders/sum-squares/unscaled.wgsl?raw';
import bf16 from '../../shaders/width/bf16.wgsl?raw';
import f16 from '../../shaders/width/f16.wgsl?raw';
import { type HalfDtype, narrowFloats, widen } from '../values/floats.ts';
import { type Arrays, ceilDiv, type Kernel, read, update, write } from './kernel.ts';
import { DECIDED, SCALER } from './step-control.ts';
import { lanesOf, perSum } from './variants.ts';

/** Elements of one partial sum, and of one bit of adamw's decayMask. */
export const BLOCK = 256;

export interface SumSquaresProblem {
  size: number;
  /** The partial of the first block; those before it are left as they are. */
  first: number;
}

/** x (size) -> partials (first + ceil(size / BLOCK)), from `first` on. */
export const sumSquares: Kernel<SumSquaresProblem> = {
  name: 'sumSquares',
  operands: ({ size, first }) => {
    const end = first + ceilDiv(size, BLOCK);
    return { x: read(size), partials: first > 0 ? update(end) : write(end) };
  },
  affectsSpeed: { size: true, first: false },
  variants: perSum(
    { items: asItIs + items, spread: asItIs + eights, sums: 8 },
    ({ size }) => lanesOf(size),
    ({ size }) => ceilDiv(size, BLOCK),
    () => BLOCK,
    ({ size, first }, lanes) => ({ size: size / lanes, first }),
    { BLOCK },
  ),
  flops: ({ size }) => size * 2,
  reference({ size, first }, { x, partials }: Arrays<'x' | 'partials'>) {
    partials.fill(0, first);
    for (let i = 0; i < size; i++) partials[first + Math.floor(i / BLOCK)]! += x[i]! ** 2;
  },
};

const toBF16 = rounding + bf16 + unscaled;
const toF16 = rounding + f16 + scaled + inverseScale;

/**
 * x (size) -> y (size / 2 words: two bfloat16 in each, rounded to nearest, ties to even), and the partials of what they are.
 * `size`: a multiple of 4.
 */
export const roundAndSumSquares: Kernel<SumSquaresProblem> = {
  ...sumSquares,
  name: 'roundAndSumSquares',
  operands: (problem) => ({ ...sumSquares.operands(problem), y: write(problem.size / 2, 'u32') }),
  variants: perSum(
    { items: toBF16 + items, spread: toBF16 + eights, sums: 8 },
    () => 4,
    ({ size }) => ceilDiv(size, BLOCK),
    () => BLOCK,
    ({ size, first }) => ({ size: size / 4, first }),
    { BLOCK },
  ),
  reference(problem, data: Arrays<'x' | 'partials' | 'y'>) {
    roundedSums(problem, 'BF16', 1, data);
  },
};

export interface ScaledSumProblem extends SumSquaresProblem {
  /** Whether `state` is that behind the decision of their step, which may have changed the scale for the next one. @default before */
  isDecided?: boolean;
}

/** As `roundAndSumSquares` in binary16, of x times the scale of gradients in `state`; the partials are of what is scaled back. */
export const scaleAndSumSquares: Kernel<ScaledSumProblem> = {
  ...roundAndSumSquares,
  name: 'scaleAndSumSquares',
  operands: (problem) => ({
    ...roundAndSumSquares.operands(problem),
    state: read(problem.isDecided ? DECIDED.size : SCALER.size),
  }),
  affectsSpeed: { ...roundAndSumSquares.affectsSpeed, isDecided: false },
  variants: perSum(
    { items: toF16 + items, spread: toF16 + eights, sums: 8 },
    () => 4,
    ({ size }) => ceilDiv(size, BLOCK),
    () => BLOCK,
    ({ size, first }) => ({ size: size / 4, first }),
    ({ isDecided }) => ({ BLOCK, SCALE: scaleIn(isDecided) }),
  ),
  reference({ isDecided, ...problem }, { state, ...data }: Arrays<'x' | 'partials' | 'y' | 'state'>) {
    roundedSums(problem, 'F16', state[scaleIn(isDecided)]!, data);
  },
};

const scaleIn = (isDecided = false): number => (isDecided ? DECIDED.stepScale : SCALER.gradientScale);

function roundedSums(
  problem: SumSquaresProblem,
  dtype: HalfDtype,
  scale: number,
  { x, partials, y }: Arrays<'x' | 'partials' | 'y'>,
): void {
  const words = new Uint32Array(y.length);
  const halves = new Uint16Array(words.buffer);
  const floats = Float32Array.from(x, (value) => value * scale);
  narrowFloats(dtype, floats, halves);
  widen(dtype, halves, floats);
  y.set(words);
  sumSquares.reference(problem, { x: Float64Array.from(floats, (value) => value / scale), partials });
}
