// Embeddings in kernel tests: problems, and how far f32 may stray.

import {
  embedding,
  embeddingBackward,
  positionBackward,
  positionEmbedding,
  tokenIndex,
} from '../../../src/kernels/embedding.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { row } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: embedding,
    problems: [
      { rows: 1, width: 1, vocabulary: 1 },
      { rows: 15, width: 37, vocabulary: 11 },
      { rows: 65, width: 3, vocabulary: 129 },
      { rows: 74, width: 20, vocabulary: 7 },
      { rows: 37, width: 5, vocabulary: 11, scale: Math.sqrt(5) },
      // The rows of one tile of the table, of which y already holds the others.
      { rows: 65, width: 12, vocabulary: 129, firstRow: 37, rowCount: 65 },
    ],
    // Two ids lie outside the vocabulary.
    inputs: ({ rows, vocabulary }, random) => ({ ids: random.integers(rows, -1, vocabulary + 1) }),
    // Exact where the scale is 1.
    bound: ({ scale = 1 }, _before, { y }: Arrays<'y'>) => ({ y: (i) => (scale === 1 ? 0 : ULP * abs(y[i]!)) }),
  }),
  row({
    kernel: positionEmbedding,
    problems: [
      { rows: 1, seq: 1, width: 1, positions: 1 },
      { rows: 15, seq: 5, width: 37, positions: 8 },
      { rows: 74, seq: 37, width: 5, positions: 37 },
      { rows: 74, seq: 37, width: 20, positions: 37 },
      { rows: 74, seq: 37, width: 5, positions: 37, firstRow: 5, rowCount: 17 },
    ],
    // Position 3 takes the longest row past the table.
    inputs: () => ({ position: new Uint32Array([3]) }),
    bound: (_, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  }),
  row({
    kernel: embeddingBackward,
    problems: [
      { rows: 1, width: 1, vocabulary: 1 },
      { rows: 15, width: 37, vocabulary: 5 },
      { rows: 129, width: 3, vocabulary: 1000 },
      { rows: 129, width: 12, vocabulary: 11 },
      { rows: 129, width: 5, vocabulary: 11, scale: Math.sqrt(5) },
      { rows: 129, width: 3, vocabulary: 37, firstRow: 5, rowCount: 17 },
      { rows: 129, width: 4, vocabulary: 37, fromRow: 11, toRow: 30 },
      { rows: 129, width: 3, vocabulary: 37, firstRow: 5, rowCount: 17, fromRow: 7, toRow: 19 },
    ],
    inputs: ({ rows, vocabulary }, random) => ({ ...tokenIndex(random.integers(rows, 0, vocabulary)) }),
    bound(
      { rows, width, firstRow = 0, scale = 1 },
      { tokens, starts, order, dy, dweight }: Arrays<'tokens' | 'starts' | 'order' | 'dy' | 'dweight'>,
    ) {
      const slotOf = new Map<number, number>();
      for (let s = 0; s < rows; s++) slotOf.set(tokens[s]!, s);
      return {
        dweight: (i) => {
          const slot = slotOf.get(firstRow + Math.floor(i / width));
          if (slot === undefined) return 0;
          let sum = abs(dweight[i]!);
          for (let j = starts[slot]!; j < starts[slot + 1]!; j++) {
            sum += abs(scale * dy[order[j]! * width + (i % width)]!);
          }
          return (starts[slot + 1]! - starts[slot]! + 2) * ULP * sum;
        },
      };
    },
  }),
  row({
    kernel: positionBackward,
    problems: [
      { batch: 1, seq: 1, width: 1, positions: 1, accumulate: false },
      { batch: 3, seq: 5, width: 37, positions: 8, accumulate: false },
      { batch: 5, seq: 7, width: 3, positions: 65, accumulate: true },
      { batch: 3, seq: 37, width: 5, positions: 65, firstRow: 17, rowCount: 37, accumulate: false },
    ],
    bound({ batch, seq, width, accumulate, firstRow = 0 }, { dy, dweight }: Arrays<'dy' | 'dweight'>) {
      return {
        dweight: (i) => {
          const from = firstRow * width + i;
          if (from >= seq * width) return 0;
          let sum = accumulate ? abs(dweight[i]!) : 0;
          for (let b = 0; b < batch; b++) sum += abs(dy[b * seq * width + from]!);
          return (batch + 1) * ULP * sum;
        },
      };
    },
  }),
];
