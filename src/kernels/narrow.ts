// Floats rounded to bfloat16: what an activation is kept as for the backward pass, and read as by all that come after it.

import shader from '../../shaders/narrow/narrow.wgsl?raw';
import bf16 from '../../shaders/width/bf16.wgsl?raw';
import { narrowFloats } from '../values/floats.ts';
import { type Arrays, ceilDiv, elementRows, type Kernel, read, write } from './kernel.ts';
import { perItem } from './variants.ts';

export interface NarrowProblem {
  size: number;
}

/** x (size) -> y (size / 2 words, rounded up: two bfloat16 in each, to nearest, ties to even). */
export const narrow: Kernel<NarrowProblem> = {
  name: 'narrow',
  operands: ({ size }) => ({ x: read(size), y: write(ceilDiv(size, 2), 'u32') }),
  affectsSpeed: { size: true },
  variants: perItem(
    shader + bf16,
    ({ size }) => ceilDiv(size, 4),
    ({ size }) => ({ size }),
  ),
  rows: elementRows('x', 'y'),
  flops: () => 0,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    const words = new Uint32Array(y.length);
    narrowFloats('BF16', Float32Array.from(x.subarray(0, size)), new Uint16Array(words.buffer));
    y.set(words);
  },
};
