// Sums of squares over blocks of a flat range: the first half of a gradient norm. columnSum with width 1 adds
// the partials up. The block is fixed, so that the norm does not depend on how gradients lie in memory.

import asItIs from '../../shaders/sum-squares/as_it_is.wgsl?raw';
import fours from '../../shaders/sum-squares/by_fours.wgsl?raw';
import rounding from '../../shaders/sum-squares/rounding.wgsl?raw';
import items from '../../shaders/sum-squares/sum_squares.wgsl?raw';
import { narrow, widen } from '../util/floats.ts';
import { type Arrays, ceilDiv, type Kernel, read, update, write } from './kernel.ts';
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
    { items: asItIs + items, fours: asItIs + fours },
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

/**
 * x (size) -> y (size / 2 words: two bfloat16 in each, rounded to nearest, ties to even), and the partials of what they are.
 * `size`: a multiple of 4.
 */
export const roundAndSumSquares: Kernel<SumSquaresProblem> = {
  ...sumSquares,
  name: 'roundAndSumSquares',
  operands: (problem) => ({ ...sumSquares.operands(problem), y: write(problem.size / 2, 'u32') }),
  variants: perSum(
    { items: rounding + items, fours: rounding + fours },
    () => 4,
    ({ size }) => ceilDiv(size, BLOCK),
    () => BLOCK,
    ({ size, first }) => ({ size: size / 4, first }),
    { BLOCK },
  ),
  reference(problem, { x, partials, y }: Arrays<'x' | 'partials' | 'y'>) {
    const words = new Uint32Array(y.length);
    const halves = new Uint16Array(words.buffer);
    const floats = Float32Array.from(x);
    narrow('BF16', floats, halves);
    widen('BF16', halves, floats);
    y.set(words);
    sumSquares.reference(problem, { x: Float64Array.from(floats), partials });
  },
};
