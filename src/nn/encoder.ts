// Parts that encoders have in common as models: linears and norms with biases, made and applied by the names of their
// modules. Not their order in a block, which is each one's own.

import type { Graph } from '../graph/graph.ts';
import { linear } from '../graph/operators/linear.ts';
import { layernorm } from '../graph/operators/norm.ts';
import type { Tensor } from '../graph/program.ts';
import { at } from '../util/at.ts';
import type { Initial, Parameter, Weights } from './model.ts';

export const PROJECTIONS = ['query', 'key', 'value'] as const;
export const stored = 'out,in';

/** The parameters of an encoder, in the order of use; weights begin as `normal` says. */
export class EncoderParameters {
  readonly list: Parameter[] = [];
  readonly #normal: Initial;

  constructor(normal: Initial) {
    this.#normal = normal;
  }

  add(name: string, shape: readonly number[], initial = this.#normal): void {
    this.list.push({ name, shape, initial });
  }

  /** A linear: its weight, of this shape, and its bias, if it has one. */
  dense(name: string, shape: readonly number[], biased = true): void {
    this.add(`${name}.weight`, shape);
    if (biased) this.add(`${name}.bias`, shape.slice(0, 1), { constant: 0 });
  }

  norm(name: string, width: number): void {
    this.add(`${name}.weight`, [width], { constant: 1 });
    this.add(`${name}.bias`, [width], { constant: 0 });
  }
}

/** A linear by the name of its module. */
export const project = (
  g: Graph,
  x: Tensor,
  w: Weights,
  name: string,
  options: { activation?: 'geluErf'; residual?: Tensor } = {},
): Tensor => linear(g, x, w(`${name}.weight`), { stored, bias: w(`${name}.bias`), ...options });

/** The heads whose queries, keys and values lie side by side (B, T, 3 C): all, or those of this rank. */
export function headsIn(qkv: Tensor, headSize: number): { heads: number; kvHeads: number; headSize: number } {
  const heads = at(qkv.shape, 2) / (PROJECTIONS.length * headSize);
  return { heads, kvHeads: heads, headSize };
}

/** A LayerNorm by the name of its module. */
export const normed = (g: Graph, x: Tensor, w: Weights, name: string, eps: number): Tensor =>
  layernorm(g, x, w(`${name}.weight`), w(`${name}.bias`), eps);
