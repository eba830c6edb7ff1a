// A tensor copied: what an operator overwrites of it, where others still read it or it is stored narrow. Elsewhere the copy is left
// out of the program (graph/copy-elision.ts).

import shader from '../../shaders/copy-tensor/copy_tensor.wgsl?raw';
import type { ElementwiseProblem } from './activations.ts';
import { type Arrays, elementRows, type Kernel, read, write } from './kernel.ts';
import { elementwise } from './variants.ts';

/** x (size) -> y (size). */
export const copyTensor: Kernel<ElementwiseProblem> = {
  name: 'copyTensor',
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(shader),
  rows: elementRows('x', 'y'),
  flops: () => 0,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    y.set(x.subarray(0, size));
  },
};
