// Attention in kernel tests: problems, and how far f32 may stray.

import { type AttentionProblem, attention } from '../../../src/kernels/attention.ts';
import { keysSeen } from '../../../src/kernels/attention-mask.ts';
import { scaleOf } from '../../../src/kernels/attention-tiles.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { fields } from '../../entry.ts';
import { attentions, cached, dotError, type MaskArrays, maskInputs, packed, positionOf } from '../attention-cases.ts';
import { row } from '../inputs.ts';
import { byRow, expUlps, TINY, ULP } from '../rounding.ts';

const { abs, max, exp, log } = Math;

export const cases = [
  row({
    kernel: attention,
    problems: [...attentions.map(packed), ...cached],
    // Rows of the cache that no query of any batch sees hold NaN.
    inputs(p, random) {
      const position = positionOf(p);
      const { k, v } = fields(attention.operands(p), 'k', 'v');
      const keys = random.normals(k.size);
      const values = random.normals(v.size);
      const masks = maskInputs(p, random);
      const arrays = Object.fromEntries(Object.entries(masks).map(([name, list]) => [name, Float64Array.from(list)]));
      const seen = Array.from({ length: p.batch * p.seq }, (_, i) => keysSeen(p.mask, { ...p, position }, i, arrays));
      for (let row = 0; row < p.batch * p.kvRows; row++) {
        const key = row % p.kvRows;
        // Padding is read, and weighs nothing.
        if (p.mask === 'padding' || seen.some((keys) => keys.includes(key))) continue;
        keys.fill(Number.NaN, row * p.kStride, (row + 1) * p.kStride);
        values.fill(Number.NaN, row * p.vStride, (row + 1) * p.vStride);
      }
      return { k: keys, v: values, position: new Uint32Array([position]), ...masks };
    },
    // y = sum w v / sum w with w = exp(score - top), whose top cancels. Each time the top rises, on at most every
    // fourth key, what was summed is multiplied by exp(old - new): the exponents of one key add up to its own.
    bound(
      p: AttentionProblem,
      { q, k, v, position, ...masks }: Arrays<'q' | 'k' | 'v' | 'position'> & MaskArrays,
      { lse }: Arrays<'lse'>,
    ) {
      const { heads, headSize: size } = p;
      const group = heads / p.kvHeads;
      const rowErrors = (i: number) => {
        const row = Math.floor(i / heads);
        const column = Math.floor((i % heads) / group) * size;
        const placed = { seq: p.seq, kvRows: p.kvRows, position: position[0]! };
        const seen = keysSeen(p.mask, placed, row, masks);
        const kvRow = Math.floor(row / p.seq) * p.kvRows;
        const keys = seen.length;
        const pairs = seen.map((key) => {
          const at = (kvRow + key) * p.kStride + p.kOffset + column;
          return dotError(size, q, row * p.qStride + p.qOffset + (i % heads) * size, k, at, scaleOf(p));
        });
        const top = max(...pairs.map(({ value }) => value));
        const rises = Math.ceil(keys / 4);
        const relative = pairs.map(({ value, error }) => error + ULP * (2 * expUlps(top - value, 1) + 4 * rises));
        const weight = pairs.map(({ value }) => exp(value - lse[2 * i]! - lse[2 * i + 1]!));
        const mean = weight.reduce((sum, w, j) => sum + w * relative[j]!, 0);
        const topError = max(...pairs.map(({ error }) => error));
        const valuesAt = seen.map((key) => (kvRow + key) * p.vStride + p.vOffset + column);
        return { keys, weight, relative, mean, topError, valuesAt };
      };
      return {
        y: byRow(size, (i) => {
          const { keys, weight, relative, mean, valuesAt } = rowErrors(i);
          return (d) => {
            let bound = TINY;
            for (let j = 0; j < keys; j++) {
              const term = weight[j]! * abs(v[valuesAt[j]! + d]!);
              bound += term * (relative[j]! + mean + (2 * keys + 1 + 2.5) * ULP);
            }
            return bound;
          };
        }),
        // The top is good to its own error; where it errs, the log of the sum makes up for it.
        lse: (i) => {
          const { keys, mean, topError } = rowErrors(i >> 1);
          if (i % 2 === 0) return topError;
          return topError + mean + keys * ULP + max(2 ** -21, 3 * ULP * log(keys));
        },
      };
    },
  }),
];
