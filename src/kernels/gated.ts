// The middle of a gated MLP, forward and backward: y = activation(gate) * up. The activation is a part of the shader:
// silu(g) = g / (1 + exp(-g)) makes SwiGLU, the tanh GELU makes GeGLU.

import backwardShader from '../../shaders/gated/backward.wgsl?raw';
import forwardShader from '../../shaders/gated/forward.wgsl?raw';
import geluShader from '../../shaders/gated/gelu.wgsl?raw';
import siluShader from '../../shaders/gated/silu.wgsl?raw';
import { ACTIVATIONS, type ElementwiseProblem } from './activations.ts';
import { type Arrays, elementRows, type Kernel, read, update, write } from './kernel.ts';
import { elementwise } from './variants.ts';

/** What a gated MLP applies to its gate: `silu` makes SwiGLU, `gelu` GeGLU. */
export type GateActivation = 'silu' | 'gelu';

/** An activation of a gate: its text, and itself in float64. */
interface Gate {
  readonly text: string;
  /** Operations an element, forward and backward. */
  readonly flops: readonly [number, number];
  value(g: number): number;
  slope(g: number): number;
}

/** gate, up (size) -> y (size). */
const forward = (name: string, { text, flops, value }: Gate): Kernel<ElementwiseProblem> => ({
  name,
  operands: ({ size }) => ({ gate: read(size), up: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(forwardShader + text),
  rows: elementRows('gate', 'up', 'y'),
  flops: ({ size }) => size * flops[0],
  reference({ size }, { gate, up, y }: Arrays<'gate' | 'up' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = value(gate[i]!) * up[i]!;
  },
});

/** up (size) -> dgate, dup (size), in place: dgate holds gate, dup holds the gradient of y. */
const backward = (name: string, { text, flops, value, slope }: Gate): Kernel<ElementwiseProblem> => ({
  name,
  operands: ({ size }) => ({ up: read(size), dgate: update(size), dup: update(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(backwardShader + text),
  rows: elementRows('up', 'dgate', 'dup'),
  flops: ({ size }) => size * flops[1],
  reference({ size }, { up, dgate, dup }: Arrays<'up' | 'dgate' | 'dup'>) {
    for (let i = 0; i < size; i++) {
      const [gate, dy] = [dgate[i]!, dup[i]!];
      dgate[i] = dy * up[i]! * slope(gate);
      dup[i] = dy * value(gate);
    }
  },
});

const sigmoid = (g: number) => 1 / (1 + Math.exp(-g));

const SILU: Gate = {
  text: siluShader,
  flops: [5, 12],
  value: (g) => g / (1 + Math.exp(-g)),
  slope: (g) => sigmoid(g) * (1 + g * (1 - sigmoid(g))),
};

const GELU: Gate = { ...ACTIVATIONS.gelu, text: geluShader + ACTIVATIONS.gelu.text, flops: [9, 20] };

export const swiglu = forward('swiglu', SILU);
export const swigluBackward = backward('swigluBackward', SILU);
export const geglu = forward('geglu', GELU);
export const gegluBackward = backward('gegluBackward', GELU);

/** The kernels of each. */
export const GATED = {
  silu: { forward: swiglu, backward: swigluBackward },
  gelu: { forward: geglu, backward: gegluBackward },
} as const satisfies Record<GateActivation, object>;
