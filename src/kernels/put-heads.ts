// Packed rows of some heads put into packed rows of more, in place of what was there: what lets the gradients of a few heads at a
// time take the place of their queries, keys and values (graph/head-groups.ts).

import shader from '../../shaders/put-heads/put_heads.wgsl?raw';
import { type Arrays, type Kernel, read, update } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

/** The columns of a row are q (heads), k and v (kvHeads each). */
export interface PutHeadsProblem {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
  /** Of a row of y: kv heads before these, and in all. */
  kvHeadsBefore: number;
  allKvHeads: number;
}

function columnsOf({ heads, kvHeads, headSize, kvHeadsBefore, allKvHeads }: PutHeadsProblem) {
  const group = heads / kvHeads;
  const kTo = (group * allKvHeads + kvHeadsBefore) * headSize;
  return {
    x_width: (heads + 2 * kvHeads) * headSize,
    y_width: (group + 2) * allKvHeads * headSize,
    k_at: heads * headSize,
    v_at: (heads + kvHeads) * headSize,
    q_to: group * kvHeadsBefore * headSize,
    k_to: kTo,
    v_to: kTo + allKvHeads * headSize,
  };
}

/** x (rows, packed) of these heads -> their columns of y (rows, packed) of all. */
export const putHeads: Kernel<PutHeadsProblem> = {
  name: 'putHeads',
  operands(p) {
    const { x_width, y_width } = columnsOf(p);
    const rows = p.batch * p.seq;
    return { x: read(rows * x_width), y: update(rows * y_width) };
  },
  affectsSpeed: {
    ...{ batch: true, seq: true, heads: true, kvHeads: true, headSize: true },
    ...{ kvHeadsBefore: false, allKvHeads: false },
  },
  variants: perElem(
    shader,
    ({ headSize }) => lanesOf(headSize),
    (p, lanes) => (p.batch * p.seq * columnsOf(p).x_width) / lanes,
    (p, lanes) => {
      const inElem = Object.entries(columnsOf(p)).map(([name, count]) => [name, count / lanes]);
      return { rows: p.batch * p.seq, ...Object.fromEntries(inElem) };
    },
  ),
  rows(p, rows) {
    const { batch, seq } = p;
    if (batch * seq !== rows) return undefined;
    const { x_width, y_width } = columnsOf(p);
    return { unit: seq, strides: { x: x_width, y: y_width }, part: (_, count) => ({ ...p, batch: count / seq }) };
  },
  flops: () => 0,
  reference(p, { x, y }: Arrays<'x' | 'y'>) {
    const { x_width, y_width, k_at, v_at, q_to, k_to, v_to } = columnsOf(p);
    const toOf = (c: number) => (c < k_at ? q_to + c : c < v_at ? k_to + c - k_at : v_to + c - v_at);
    for (let i = 0; i < p.batch * p.seq * x_width; i++)
      y[Math.floor(i / x_width) * y_width + toOf(i % x_width)] = x[i]!;
  },
};
