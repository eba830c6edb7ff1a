// Is a token's prediction over a cache of keys and values that of the whole row at once? Every family, by programs that
// take tokens one by one and in blocks, interpreted in float64: rotations and windows at every position, and no device.

import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { Graph } from '../../src/graph/graph.ts';
import { logits } from '../../src/graph/operators/cross-entropy.ts';
import { makeTokens } from '../../src/graph/operators/embedding.ts';
import { makeTensor, onTensors, type Tensor } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { onlyTokens } from '../../src/nn/inputs.ts';
import { lookup, parameterTensors } from '../../src/nn/model.ts';
import { traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { Random } from '../../src/util/random.ts';
import { DECODERS } from '../families.ts';
import { Memory } from '../interpret.ts';

/** A block of 16 tokens, and seven by themselves. */
const CONTEXT = 23;
const GPT2 = {
  model_type: 'gpt2',
  vocab_size: 11,
  n_positions: CONTEXT,
  n_embd: 6,
  n_head: 2,
  n_layer: 2,
  n_inner: 10,
};
const decoders = Object.entries(DECODERS).map(
  ([name, config]) => [name, { ...config, max_position_embeddings: CONTEXT }] as const,
);

/** Weights by name: each model of a test is given the same. */
function setWeights(memory: Memory, tensors: Iterable<Tensor>): void {
  for (const tensor of tensors) {
    const random = new Random(5, tensor.name);
    memory.set(
      tensor,
      Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
    );
  }
}

describe.each([['gpt2', GPT2] as const, ...decoders])('%s', (_, config) => {
  const model = makeModel(parseConfig(config, 'test'));
  const { vocabulary } = model.shape;
  const ids = Int32Array.from({ length: CONTEXT }, (_, i) => (7 * i * i + 3 * i) % vocabulary);

  /** (T, V): what follows each token, from one pass over the row. */
  function whole(ids: Int32Array): Float64Array {
    const g = new Graph('whole');
    const tokens = makeTokens(1, CONTEXT);
    const parameters = parameterTensors(model, false);
    const features = model.forward(g, onlyTokens(tokens), lookup(parameters));
    const all = makeTensor('all logits', [CONTEXT, vocabulary], 'persistent');
    logits(g, features.hidden, features.head, all);
    const memory = new Memory();
    setWeights(memory, parameters.values());
    memory.set(tokens.ids, ids);
    memory.set(tokens.position, [0]);
    memory.run(g.program());
    return memory.of(all);
  }

  it('predicts over a cache what it predicts for the whole row', () => {
    const wanted = whole(ids);
    const generation = traceGeneration(model, CONTEXT);
    // The parameters of a generation are its own tensors.
    const parameters = new Set(
      generation.programs.flatMap((program) =>
        onTensors(program).flatMap(({ operands }) =>
          Object.values(operands).filter(({ role }) => role === 'parameter'),
        ),
      ),
    );
    const memory = new Memory();
    setWeights(memory, parameters);
    const feed = (stage: number, position: number) => {
      const tokens = generation.inputs[stage];
      const program = generation.programs[stage];
      if (!tokens || !program) throw new Error(`no stage ${stage}`);
      memory.set(tokens.ids, ids.subarray(position, position + tokens.seq));
      memory.set(tokens.position, [position]);
      memory.run(program);
      const last = position + tokens.seq - 1;
      for (const [i, value] of memory.of(generation.logits).entries())
        expect(value, `logit ${i} behind token ${last}`).toBeCloseTo(wanted[last * vocabulary + i]!, 12);
    };
    expect(generation.inputs.map(({ seq }) => seq)).toEqual([16, 1]);
    feed(0, 0);
    for (let position = 16; position < CONTEXT; position++) feed(1, position);
    // A text that begins anew over the old cache, token by token.
    for (let position = 0; position < CONTEXT; position++) feed(1, position);
  });

  it('predicts of two texts at once, each at its own position, what it predicts of each', () => {
    const texts = [ids, ids.map((id) => (id + 3) % vocabulary)] as const;
    const wanted = texts.map(whole);
    const generation = traceGeneration(model, CONTEXT, undefined, 2);
    const memory = new Memory();
    const touched = generation.programs.flatMap((program) =>
      onTensors(program).flatMap(({ operands }) => Object.values(operands)),
    );
    setWeights(memory, new Set(touched.filter(({ role }) => role === 'parameter')));
    const at = [0, 0];
    /** A text that does not take part is given a wrong token. */
    const feed = (stage: number, taking: readonly number[]) => {
      const tokens = generation.inputs[stage];
      const program = generation.programs[stage];
      if (!tokens || !program) throw new Error(`no stage ${stage}`);
      const { seq, positions, places } = tokens;
      const given = texts.flatMap((text, b) => {
        const own = text.subarray(at[b]!, at[b]! + seq);
        return Array.from({ length: seq }, (_, i) => (taking.includes(b) ? own[i]! : 1));
      });
      memory.set(tokens.ids, given);
      for (const [b, position] of positions.entries()) memory.set(position, [at[b]!]);
      if (places)
        memory.set(
          places.ids,
          given.map((_, i) => Math.min(at[Math.floor(i / seq)]! + (i % seq), CONTEXT - 1)),
        );
      memory.run(program);
      for (const b of taking) {
        at[b]! += seq;
        for (let i = 0; i < vocabulary; i++) {
          const found = memory.of(generation.logits)[b * vocabulary + i];
          expect(found, `logit ${i} of text ${b} behind ${at[b]}`).toBeCloseTo(
            wanted[b]![(at[b]! - 1) * vocabulary + i]!,
            12,
          );
        }
      }
    };
    feed(0, [0]);
    feed(1, [0, 1]);
    feed(1, [1]);
    feed(0, [1]);
    while (at[0]! < CONTEXT) feed(1, at[1]! < CONTEXT ? [0, 1] : [0]);
    expect(at).toEqual([CONTEXT, CONTEXT]);
  });
});
