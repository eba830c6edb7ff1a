// Rotary position embedding (RoPE), in place. Half rotation, as in Hugging Face's Llama: pair i of a head is
// its elements i and i + headSize / 2. The inverse rotation is the backward pass.

import shader from '../../shaders/rope/rope.wgsl?raw';
import { type Arrays, type Kernel, read, update } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

export interface RopeProblem {
  rows: number;
  /** Rows of one sequence: row r has position position[0] + r % seq. */
  seq: number;
  heads: number;
  /** Even. */
  headSize: number;
  /** Elements from one row of x to the next. */
  stride: number;
  /** The column of the first head. */
  offset: number;
  /** Rows of the table; later positions read the last. */
  positions: number;
  inverse: boolean;
}

/** How a model is made to reach further than it was first trained for: by slower rotations, at every length. */
export type RopeScaling =
  /** All frequencies divided by `factor`. */
  | { readonly kind: 'linear'; readonly factor: number }
  /**
   * Llama 3.1: by the turns that a frequency makes in `positions`, the context of the first training. Those of fewer than
   * `low` are divided by `factor`, those of more than `high` stay, between the two the share that stays grows with the turns.
   */
  | {
      readonly kind: 'llama3';
      readonly factor: number;
      readonly low: number;
      readonly high: number;
      readonly positions: number;
    };

function scaledFrequency(frequency: number, scaling: RopeScaling | undefined): number {
  if (!scaling) return frequency;
  const slow = frequency / scaling.factor;
  if (scaling.kind === 'linear') return slow;
  const { low, high, positions } = scaling;
  const turns = (positions * frequency) / (2 * Math.PI);
  const stays = Math.min(1, Math.max(0, (turns - low) / (high - low)));
  return stays === 1 ? frequency : (1 - stays) * slow + stays * frequency;
}

/** Cosines, then sines, of angle t * theta^(-2i / headSize), its frequency scaled: (positions, 2, headSize / 2). */
export function ropeTable(
  positions: number,
  headSize: number,
  theta: number,
  scaling?: RopeScaling,
): Float32Array<ArrayBuffer> {
  const half = headSize / 2;
  const frequencies = Float64Array.from({ length: half }, (_, i) =>
    scaledFrequency(theta ** ((-2 * i) / headSize), scaling),
  );
  const table = new Float32Array(positions * headSize);
  for (let t = 0; t < positions; t++) {
    for (const [i, frequency] of frequencies.entries()) {
      const angle = t * frequency;
      table[t * headSize + i] = Math.cos(angle);
      table[t * headSize + half + i] = Math.sin(angle);
    }
  }
  return table;
}

/** table (positions, headSize), position (1) -> x (rows, stride), rotated in place. */
export const rope: Kernel<RopeProblem> = {
  name: 'rope',
  operands: ({ rows, heads, headSize, stride, offset, positions }) => ({
    table: read(positions * headSize),
    position: read(1, 'u32'),
    x: update(offset + (rows - 1) * stride + heads * headSize),
  }),
  affectsSpeed: {
    rows: true,
    seq: true,
    heads: true,
    headSize: true,
    stride: false,
    offset: false,
    positions: true,
    inverse: true,
  },
  variants: perElem(
    shader,
    ({ headSize, stride, offset }) => lanesOf(headSize / 2, stride, offset),
    ({ rows, heads, headSize }, lanes) => (rows * heads * headSize) / 2 / lanes,
    ({ rows, seq, heads, headSize, stride, offset, positions, inverse }, lanes) => ({
      rows,
      seq,
      heads,
      headSize: headSize / lanes,
      stride: stride / lanes,
      offset: offset / lanes,
      positions,
      direction: inverse ? -1 : 1,
    }),
  ),
  rows: (p, rows) =>
    p.rows === rows
      ? { unit: p.seq, strides: { x: p.stride }, part: (_, count) => ({ ...p, rows: count }) }
      : undefined,
  flops: ({ rows, heads, headSize }) => rows * heads * headSize * 3,
  reference(
    { rows, seq, heads, headSize, stride, offset, positions, inverse },
    { table, position, x }: Arrays<'table' | 'position' | 'x'>,
  ) {
    const half = headSize / 2;
    for (let r = 0; r < rows; r++) {
      const t = Math.min(position[0]! + (r % seq), positions - 1);
      for (let h = 0; h < heads; h++) {
        for (let k = 0; k < half; k++) {
          const i = r * stride + offset + h * headSize + k;
          const cosine = table[t * headSize + k]!;
          const sine = table[t * headSize + half + k]! * (inverse ? -1 : 1);
          const [a, b] = [x[i]!, x[i + half]!];
          x[i] = a * cosine - b * sine;
          x[i + half] = b * cosine + a * sine;
        }
      }
    }
  },
};
