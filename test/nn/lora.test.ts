// Low-rank updates without a device: which linears they take, by PEFT's rules; what trains and what is computed; what that
// takes in chunks; and the weights with an update made a part of them.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import type { LoraOptions } from '../../src/formats/adapter.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { familyOf } from '../../src/formats/families/index.ts';
import { adapterConfigOf, parseAdapterConfig, storedNames } from '../../src/formats/peft.ts';
import { Graph } from '../../src/graph/graph.ts';
import { logits } from '../../src/graph/operators/cross-entropy.ts';
import { makeTokens } from '../../src/graph/operators/embedding.ts';
import { onTensors } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { onlyTokens } from '../../src/nn/inputs.ts';
import { linearsOf, mergedWeights, withLora } from '../../src/nn/lora.ts';
import { lookup, type Model, parameterTensors, trainedCount } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { Memory } from '../interpret.ts';

const GPT2 = makeModel(
  parseConfig({ model_type: 'gpt2', vocab_size: 61, n_positions: 9, n_embd: 12, n_head: 3, n_layer: 2 }, 'test'),
);
const LLAMA_FIELDS = {
  ...{ model_type: 'llama', vocab_size: 61, max_position_embeddings: 9, hidden_size: 12, intermediate_size: 20 },
  ...{ num_hidden_layers: 2, num_attention_heads: 3, num_key_value_heads: 1, head_dim: 4, tie_word_embeddings: true },
};
const LLAMA = makeModel(parseConfig(LLAMA_FIELDS, 'test'));
const adapted = (model: Model, options: LoraOptions) =>
  withLora(model, options).adapters?.[0]?.linears.map(({ module }) => module);
const ofBlock0 = (modules: string[] | undefined) => modules?.filter((module) => /\.0\./.test(module));

describe('targets', () => {
  it('all-linear are all but the head and the embeddings, in the modules of Hugging Face’s class', () => {
    expect(ofBlock0(adapted(GPT2, { rank: 2 }))).toEqual(
      ['attn.c_attn', 'attn.c_proj', 'mlp.c_fc', 'mlp.c_proj'].map((name) => `transformer.h.0.${name}`),
    );
    const inBlock = ['q', 'k', 'v', 'o'].map((name) => `self_attn.${name}_proj`);
    const expected = [...inBlock, 'mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj'].map((n) => `model.layers.0.${n}`);
    expect(ofBlock0(adapted(LLAMA, { rank: 2, targets: ['all-linear'] }))).toEqual(expected);
    expect(adapted(LLAMA, { rank: 2 })).toHaveLength(14);
  });

  it('match whole names, or ends of them at a dot', () => {
    expect(ofBlock0(adapted(GPT2, { rank: 2, targets: ['c_proj'] }))).toEqual([
      'transformer.h.0.attn.c_proj',
      'transformer.h.0.mlp.c_proj',
    ]);
    expect(adapted(GPT2, { rank: 2, targets: ['h.1.mlp.c_proj'] })).toEqual(['transformer.h.1.mlp.c_proj']);
    expect(ofBlock0(adapted(LLAMA, { rank: 2, targets: ['v_proj', 'q_proj'] }))).toEqual([
      'model.layers.0.self_attn.q_proj',
      'model.layers.0.self_attn.v_proj',
    ]);
  });

  it.each<[LoraOptions, string]>([
    [{ rank: 2, targets: ['proj'] }, 'proj is no linear of this model; it has q_proj, k_proj, v_proj, o_proj,'],
    [{ rank: 2, targets: ['q_proj', 'c_attn'] }, 'c_attn is no linear of this model'],
    [{ rank: 2, targets: ['lm_head'] }, 'lm_head is an embedding or the head, which are not adapted here'],
    [{ rank: 2, targets: ['embed_tokens'] }, 'embed_tokens is an embedding or the head'],
    [{ rank: 2, targets: [] }, 'there are no targets'],
    [{ rank: 0 }, 'the rank is 0; it must be a whole number from 1 to 20'],
    [{ rank: 21 }, 'the rank is 21'],
    [{ rank: 2, alpha: 0 }, 'alpha is 0'],
    [
      { rank: 2, modulesToSave: ['lm_head'] },
      'lm_head cannot train whole beside one; only the head of a classifier can',
    ],
    [{ rank: 2, dropout: 1 }, 'the dropout is 1; it must be from 0 to below 1'],
  ])('%j is refused', (options, message) => {
    expect(() => withLora(LLAMA, options)).toThrow(message);
  });

  it('say how their weights lie', () => {
    expect(linearsOf(GPT2).every(({ fanInFanOut }) => fanInFanOut)).toBe(true);
    expect(linearsOf(LLAMA).some(({ fanInFanOut }) => fanInFanOut)).toBe(false);
    expect(linearsOf(GPT2)[0]).toMatchObject({ inputs: 12, outputs: 36 });
  });
});

describe('a model with a low-rank update', () => {
  it('trains A and B of PEFT’s shapes, and nothing else', () => {
    for (const base of [GPT2, LLAMA]) {
      const { parameters } = withLora(base, { rank: 3 });
      for (const { name, shape, initial, trainable = true } of parameters) {
        expect(trainable, name).toBe(/\.lora_[AB]\.weight$/.test(name));
        if (!trainable) continue;
        const weight = linearsOf(base).find(({ weight }) => name.startsWith(weight.replace(/weight$/, 'lora_')));
        const [inputs = 0, outputs = 0] = [weight?.inputs, weight?.outputs];
        if (name.endsWith('A.weight')) {
          expect(shape).toEqual([3, inputs]);
          // Kaiming's bound sqrt(6 / ((1 + 5) inputs)).
          expect(initial).toEqual({ uniform: 1 / Math.sqrt(inputs) });
        } else {
          expect(shape).toEqual([outputs, 3]);
          expect(initial).toEqual({ constant: 0 });
        }
      }
      expect(parameters.filter(({ trainable }) => trainable === false).map(({ name }) => name)).toEqual(
        base.parameters.map(({ name }) => name),
      );
    }
  });

  it('computes no gradient of an embedding, a head, a norm or a frozen weight', () => {
    for (const base of [GPT2, LLAMA, makeModel(parseConfig({ ...LLAMA_FIELDS, tie_word_embeddings: false }, 'test'))]) {
      const { first } = traceStep(
        withLora(base, { rank: 2, targets: ['c_attn', 'q_proj'].filter((t) => knows(base, t)) }),
        1,
        5,
      );
      const { head, embedding } = familyOf(base.config).stored;
      for (const { kernel, operands } of onTensors(first)) {
        expect(kernel.name).not.toMatch(/embeddingBackward|positionBackward|ParameterGrad/);
        for (const { role, name } of Object.values(operands)) {
          if (role !== 'gradient') continue;
          expect(name).toMatch(/lora_[AB]/);
          expect([head, embedding]).not.toContain(name);
        }
      }
    }
  });

  it('takes gradients and moments for its update alone, rounded to chunks', () => {
    const config = { model_type: 'gpt2', vocab_size: 999, n_positions: 64, n_embd: 128, n_head: 4, n_layer: 6 };
    const base = makeModel(parseConfig(config, 'test'));
    const model = withLora(base, { rank: 4 });
    const all = fitMemory(trainingWorkload(base, traceStep(base, 1, 16), 1), DEFAULT_LIMITS, undefined);
    for (const budget of [undefined, 4e6]) {
      const { map, slots } = fitMemory(trainingWorkload(model, traceStep(model, 1, 16), 1), DEFAULT_LIMITS, budget);
      const { chunks } = map.list('gradient');
      expect(map.list('moment1').chunks).toBe(chunks);
      expect(map.list('moment2').chunks).toBe(chunks);
      expect(map.trainable.held).toBe(trainedCount(model));
      // Up to what rounding to 1 KiB and to chunks adds.
      expect(chunks * map.chunkElements).toBeLessThan(1.1 * trainedCount(model) + 256 * 48 + map.chunkElements);
      expect(map.frozen.held).toBe(base.parameters.reduce((n, { shape }) => n + shape.reduce((a, b) => a * b, 1), 0));
      // Without a budget it takes hardly more than its parts: a fourth of what training all of it takes, and the update.
      if (budget === undefined)
        expect(slots * map.chunkBytes).toBeLessThan(
          1.1 * ((all.slots * all.map.chunkBytes) / 4 + 16 * trainedCount(model)),
        );
    }
  });

  it('has A of the distribution that PEFT draws it from', async () => {
    const wide = makeModel(parseConfig({ ...LLAMA_FIELDS, hidden_size: 400 }, 'test'));
    const weights = await collect(initialWeights(withLora(wide, { rank: 8, targets: ['q_proj'] }), 7));
    const a = weights.get('model.layers.0.self_attn.q_proj.lora_A.weight') ?? new Float32Array();
    const bound = 400 ** -0.5;
    expect(Math.max(...a.map(Math.abs))).toBeLessThanOrEqual(bound);
    // 3200 draws: the variance of a uniform distribution is bound^2 / 3, its estimate good to 5 standard errors.
    const variance = a.reduce((sum, value) => sum + value ** 2, 0) / a.length;
    expect(Math.abs(variance / (bound ** 2 / 3) - 1)).toBeLessThan((5 * Math.sqrt(4 / 5)) / Math.sqrt(a.length));
  });
});

const knows = (model: Model, target: string) => linearsOf(model).some(({ module }) => module.endsWith(`.${target}`));

/** Logits in float64, by the interpreter. */
function logitsOf(model: Model, weights: Values, adapter?: string): Float64Array {
  const tokens = makeTokens(1, 7);
  const g = new Graph('logits');
  const parameters = parameterTensors(model, false);
  const { hidden, head } = model.forward(g, onlyTokens(tokens), lookup(parameters), adapter ? { adapter } : {});
  const all = g.activation('logits', [7, model.shape.vocabulary]);
  logits(g, hidden, head, all);
  const memory = new Memory();
  for (const [name, tensor] of parameters) memory.set(tensor, weights.get(name) ?? []);
  memory.set(tokens.ids, [3, 1, 4, 1, 5, 9, 2]);
  memory.set(tokens.position, [0]);
  memory.run(g.program());
  return memory.of(all);
}

/** A neighbour in float32, above or below. */
function nextTo(value: number, random: Random): number {
  const bits = new Int32Array(Float32Array.of(value).buffer);
  const [word = 0] = bits;
  if (value !== 0) bits[0] = word + (random.below(2) === 0 ? 1 : -1);
  return new Float32Array(bits.buffer)[0] ?? 0;
}

describe('merging', () => {
  const cases = fc.record({
    llama: fc.boolean(),
    rank: fc.integer({ min: 1, max: 9 }),
    alpha: fc.integer({ min: 1, max: 40 }),
    rslora: fc.boolean(),
    some: fc.boolean(),
    pieceElements: fc.integer({ min: 1, max: 500 }),
    seed: fc.integer({ min: 0, max: 1000 }),
  });

  it('gives the weights with which the model alone computes what it computes with the adapter', async () => {
    const property = fc.asyncProperty(cases, async ({ llama, rank, alpha, rslora, some, pieceElements, seed }) => {
      const base = llama ? LLAMA : GPT2;
      const targets = some ? { targets: llama ? ['v_proj', 'down_proj'] : ['c_proj'] } : {};
      const model = withLora(base, { rank, alpha, rslora, ...targets });
      const random = new Random(seed, 'merging');
      const weights = await collect(initialWeights(model, seed));
      for (const [name, values] of weights)
        if (name.includes('lora_B'))
          values.forEach((_, i) => {
            values[i] = 0.1 * random.normal();
          });
      const merged = await collect(await mergedWeights(model, sourceOf(weights, pieceElements)));
      expect([...merged.keys()]).toEqual(base.parameters.map(({ name }) => name));
      const [wanted, found, alone] = [
        logitsOf(model, weights),
        logitsOf(base, merged),
        logitsOf(model, weights, 'none'),
      ];
      expect(logitsOf(base, weights)).toEqual(alone);
      // A merged weight is rounded once. A twin whose weights are off by such roundings says what they do to the logits;
      // as in parity, 4 times that is allowed.
      const twin = new Map([...merged].map(([name, values]) => [name, values.map((v) => nextTo(v, random))] as const));
      const off = (one: Float64Array, other: Float64Array) =>
        one.reduce((most, value, i) => Math.max(most, Math.abs(value - (other[i] ?? 0))), 0);
      expect(off(wanted, found)).toBeLessThan(4 * off(found, logitsOf(base, twin)));
      expect(off(wanted, alone)).toBeGreaterThan(1e-3);
    });
    await fc.assert(property, { seed: 3, numRuns: 20 });
  });
});

describe('adapter_config.json', () => {
  it('says what was said', () => {
    for (const base of [GPT2, LLAMA]) {
      for (const options of [{ rank: 3 }, { rank: 4, alpha: 5, dropout: 0.25, rslora: true }]) {
        const info = withLora(base, options).adapters?.[0];
        if (!info) throw new Error('an adapter');
        const file = adapterConfigOf(info, base.config, 'models/base');
        expect(file['fan_in_fan_out']).toBe(base === GPT2);
        expect(file).toMatchObject({ peft_type: 'LORA', r: options.rank, bias: 'none', task_type: 'CAUSAL_LM' });
        const read = parseAdapterConfig(JSON.parse(JSON.stringify(file)), 'a.json');
        expect(read.base).toBe('models/base');
        const { targets: _, ...rest } = info.options;
        expect(read.options).toMatchObject(rest);
        // Of the same linears, by the same names in the file.
        const again = withLora(base, read.options).adapters?.[0];
        expect(again?.linears).toEqual(info.linears);
        expect([...storedNames(info).values()][0]).toMatch(
          base === GPT2
            ? 'base_model.model.transformer.h.0.attn.c_attn.lora_A.weight'
            : 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight',
        );
      }
    }
  });

  const good = { peft_type: 'LORA', r: 4, lora_alpha: 8, target_modules: ['q_proj'] };
  it.each<[object, string]>([
    [{ peft_type: 'LOHA' }, 'a.json: peft_type is "LOHA"; supported: "LORA"'],
    [{ peft_type: undefined, fine_tune_type: 'lora' }, 'a.json: an adapter as mlx-lm writes it'],
    [
      { use_dora: true },
      'a.json: use_dora is true; adapters with it are not supported: merge it into its model with PEFT',
    ],
    [{ rank_pattern: { q_proj: 8 } }, 'a.json: rank_pattern is an object; adapters with it are not supported'],
    [{ alpha_pattern: { q_proj: 8 } }, 'a.json: alpha_pattern is an object'],
    [{ modules_to_save: 'classifier' }, 'a.json: modules_to_save is "classifier"; it must be a list of names'],
    [{ layers_to_transform: [1] }, 'a.json: layers_to_transform is a list of 1'],
    [{ bias: 'all' }, 'a.json: bias is "all"; supported: "none"'],
    [{ init_lora_weights: 'pissa' }, 'a.json: init_lora_weights is "pissa"'],
    [
      { target_modules: '.*proj' },
      'a.json: target_modules is ".*proj", a regular expression; it must be a list of names',
    ],
    [{ target_modules: [] }, 'a.json: target_modules is a list of 0'],
    [{ target_modules: undefined }, 'a.json: target_modules is missing'],
    [{ r: 0 }, 'a.json: r is 0; it must be a whole number above 0'],
    [{ lora_alpha: -1 }, 'a.json: lora_alpha is -1'],
    [{ lora_dropout: 1 }, 'a.json: lora_dropout is 1; it must be from 0 to below 1'],
    [{ 'some\nfield': 3 }, 'a.json: some field is 3; adapters with it are not supported'],
    [{ some_new_field: 3 }, 'a.json: some_new_field is 3; adapters with it are not supported'],
  ])('%j is refused', (change, message) => {
    expect(parseAdapterConfig(good, 'a.json').options).toMatchObject({ rank: 4, alpha: 8 });
    expect(() => parseAdapterConfig({ ...good, ...change }, 'a.json')).toThrow(message);
  });
});
