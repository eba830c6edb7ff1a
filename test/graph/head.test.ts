// What the training program does not contain: the (B*T, V) logits, in one piece or hidden in a larger tensor,
// and copies of the residual stream's gradient.

import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { place } from '../../src/graph/liveness.ts';
import { rowTile, vocabularyTile } from '../../src/graph/operators/head-tiles.ts';
import { onTensors, type Program, type Tensor } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';

const gpt2 = (vocab_size: number) =>
  makeModel(
    parseConfig({ model_type: 'gpt2', vocab_size, n_positions: 64, n_embd: 16, n_head: 2, n_layer: 2 }, 'test'),
  );
const llama = (vocab_size: number) =>
  makeModel(
    parseConfig(
      {
        model_type: 'llama',
        vocab_size,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
      },
      'test',
    ),
  );

const tensorsOf = (program: Program) => new Set(onTensors(program).flatMap(({ operands }) => Object.values(operands)));
const activations = (program: Program): Tensor[] => [...tensorsOf(program)].filter(({ role }) => role === 'activation');

describe.each([
  ['gpt2', gpt2],
  ['llama', llama],
] as const)('%s', (_, make) => {
  // Vocabularies that tiles divide and do not, smaller and larger than one tile may be.
  it.each([11, 255, 1000, 8191, 50257])('no activation holds the logits of %d tokens', (vocabulary) => {
    const [batch, seq] = [2, 33];
    const model = make(vocabulary);
    const { first, next, evaluate } = traceStep(model, batch, seq);
    const widest = Math.max(vocabularyTile(vocabulary), 4 * 16);
    for (const program of [first, next, evaluate]) {
      for (const { name, size } of activations(program)) {
        expect(size, name).toBeLessThanOrEqual(batch * seq * widest);
        if (widest < vocabulary) expect(size, name).toBeLessThan(batch * seq * vocabulary);
      }
    }
  });

  it('holds at most one tile of logits at a time', () => {
    const [batch, seq, vocabulary] = [4, 32, 50257];
    const program = traceStep(make(vocabulary), batch, seq).first;
    const bytes = place(program, 2 ** 32).arenas.reduce((a, b) => a + b, 0);
    const tile = batch * seq * vocabularyTile(vocabulary) * 4;
    const small = traceStep(make(11), batch, seq).first;
    const rest = place(small, 2 ** 32).arenas.reduce((a, b) => a + b, 0);
    // Of several tiles each row has its largest logit and its sum so far.
    const soFar = 2 * batch * seq * 4;
    expect(bytes).toBeLessThanOrEqual(tile + soFar + rest);
  });
});

it('tiles cover the vocabulary, and depend on it alone', () => {
  for (const vocabulary of [2, 3, 11, 127, 128, 129, 255, 256, 257, 1024, 8192, 8193, 50257, 128256]) {
    const tile = vocabularyTile(vocabulary);
    const tiles = Math.ceil(vocabulary / tile);
    expect(tile).toBeLessThanOrEqual(8192);
    expect((tiles - 1) * tile).toBeLessThan(vocabulary);
  }
});

it('of many rows there are so many at a time that their logits fit into one binding of any adapter', () => {
  for (const vocabulary of [256, 50257, 151936, 262144]) {
    const tile = vocabularyTile(vocabulary);
    for (const rows of [1, 63, 64, 1024, 8192, 131072]) {
      const most = rowTile(rows, tile);
      expect(4 * most * tile).toBeLessThanOrEqual(2 ** 27);
      expect(most === rows || most % 64 === 0, `${most} of ${rows}`).toBe(true);
    }
  }
});
