// SwiGLU, forward and backward: y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).

import backwardShader from '../../shaders/swiglu/backward.wgsl?raw';
import forwardShader from '../../shaders/swiglu/forward.wgsl?raw';
import type { ElementwiseProblem } from './gelu.ts';
import { type Arrays, type Kernel, read, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

/** gate, up (size) -> y (size). */
export const swiglu: Kernel<ElementwiseProblem> = {
  name: 'swiglu',
  operands: ({ size }) => ({ gate: read(size), up: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: perElem(
    forwardShader,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => size / lanes,
    ({ size }, lanes) => ({ size: size / lanes }),
  ),
  flops: ({ size }) => size * 5,
  reference({ size }, { gate, up, y }: Arrays<'gate' | 'up' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = (gate[i]! / (1 + Math.exp(-gate[i]!))) * up[i]!;
  },
};

/** dy, gate, up (size) -> dgate, dup (size). */
export const swigluBackward: Kernel<ElementwiseProblem> = {
  name: 'swigluBackward',
  operands: ({ size }) => ({
    dy: read(size),
    gate: read(size),
    up: read(size),
    dgate: write(size),
    dup: write(size),
  }),
  affectsSpeed: { size: true },
  variants: perElem(
    backwardShader,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => size / lanes,
    ({ size }, lanes) => ({ size: size / lanes }),
  ),
  flops: ({ size }) => size * 12,
  reference({ size }, { dy, gate, up, dgate, dup }: Arrays<'dy' | 'gate' | 'up' | 'dgate' | 'dup'>) {
    for (let i = 0; i < size; i++) {
      const s = 1 / (1 + Math.exp(-gate[i]!));
      dgate[i] = dy[i]! * up[i]! * s * (1 + gate[i]! * (1 - s));
      dup[i] = dy[i]! * gate[i]! * s;
    }
  },
};
