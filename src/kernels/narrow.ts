// Floats rounded to sixteen bits: what an activation is kept as for the backward pass, and read as by all that come after it.

import shader from '../../shaders/narrow/narrow.wgsl?raw';
import bf16 from '../../shaders/width/bf16.wgsl?raw';
import f16 from '../../shaders/width/f16.wgsl?raw';
import { narrowFloats } from '../values/floats.ts';
import { type Arrays, ceilDiv, elementRows, type Kernel, read, write } from './kernel.ts';
import { perItem } from './variants.ts';

export interface NarrowProblem {
  size: number;
}

/** Of a width. `text`: WGSL that rounds to it; `type`: the host's name of it. */
const narrow = (name: string, text: string, type: 'BF16' | 'F16'): Kernel<NarrowProblem> => ({
  name,
  operands: ({ size }) => ({ x: read(size), y: write(ceilDiv(size, 2), 'u32') }),
  affectsSpeed: { size: true },
  variants: perItem(
    shader + text,
    ({ size }) => ceilDiv(size, 4),
    ({ size }) => ({ size }),
  ),
  rows: elementRows('x', 'y'),
  flops: () => 0,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    const words = new Uint32Array(y.length);
    narrowFloats(type, Float32Array.from(x.subarray(0, size)), new Uint16Array(words.buffer));
    y.set(words);
  },
});

/**
 * x (size) -> y (size / 2 words, rounded up: two of sixteen bits in each, to nearest, ties to even; what is past the largest becomes
 * infinite).
 */
export const narrowToBF16 = narrow('narrowToBF16', bf16, 'BF16');
export const narrowToF16 = narrow('narrowToF16', f16, 'F16');

/** By what is rounded to. */
export const NARROW = { bf16: narrowToBF16, f16: narrowToF16 } as const;

const all = new Set<unknown>(Object.values(NARROW));
export const isNarrowing = (kernel: unknown): boolean => all.has(kernel);
