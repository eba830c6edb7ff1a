// Sums of squares over blocks of a flat range: the first half of a gradient norm. columnSum with width 1 adds
// the partials up. The block is fixed, so that the norm does not depend on how gradients lie in memory.

import shader from '../../shaders/sum-squares/sum_squares.wgsl?raw';
import { type Arrays, ceilDiv, type Kernel, read, update, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

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
  variants: perElem(
    shader,
    ({ size }) => lanesOf(size),
    ({ size }) => ceilDiv(size, BLOCK),
    ({ size, first }, lanes) => ({ size: size / lanes, first }),
    { BLOCK },
  ),
  flops: ({ size }) => size * 2,
  reference({ size, first }, { x, partials }: Arrays<'x' | 'partials'>) {
    partials.fill(0, first);
    for (let i = 0; i < size; i++) partials[first + Math.floor(i / BLOCK)]! += x[i]! ** 2;
  },
};
