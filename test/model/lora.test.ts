// Training low-rank updates on the device: no bit of the forward pass changes while B is 0, nor any of a step with budgets,
// tiers and activations made again; frozen chunks only go up; and runs of it save the update, resume, replay, go on from
// adapters and write text with and without.

import { beforeAll, describe, expect, test } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { Recording } from '../../src/engine/observe/recording.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { loadAdapter, loadCheckpoint, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { parse, serialize } from '../../src/formats/safetensors.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { mergedWeights, withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { replay } from '../../src/parity/replay-case.ts';
import { loadRun, replayRun } from '../../src/parity/replay-run.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { withModel } from '../../src/train/run/open-model.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { modelOf, type RunSettings } from '../../src/train/run/run-settings.ts';
import { forwardActivations } from '../../src/train/step/inspect.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { MemoryFiles, memoryClaims } from '../memory-files.ts';
import { batchesOf, expectSame, leastBudget, memoryDisk, openTrainer, run, type Work } from './runs.ts';

const LLAMA = makeModel(
  parseConfig(
    {
      ...{ model_type: 'llama', vocab_size: 90, max_position_embeddings: 16, hidden_size: 24, intermediate_size: 44 },
      ...{
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        tie_word_embeddings: true,
      },
    },
    'llama',
  ),
);
const GPT2 = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 24, n_head: 4, n_positions: 16, vocab_size: 90 }, 'gpt2'),
);
/** Norms of heads within the packed projection that is adapted; Gemma's norms behind adapted linears, and capped logits. */
const decoder = (fields: object) =>
  makeModel(
    parseConfig(
      {
        ...{ ...fields, vocab_size: 90, max_position_embeddings: 16, hidden_size: 24, intermediate_size: 44 },
        ...{ num_hidden_layers: 2, head_dim: 6 },
      },
      'test',
    ),
  );
const bits = (values: Float32Array | undefined) =>
  values && [...new Uint32Array(values.buffer, values.byteOffset, values.length)];

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(5);
});

/** Initial weights with a B that is not 0. */
async function learned(model: Model, seed: number): Promise<Values> {
  const weights = await collect(initialWeights(model, seed));
  const random = new Random(seed, 'B');
  for (const [name, values] of weights) {
    if (name.includes('lora_B')) for (let i = 0; i < values.length; i++) values[i] = 0.2 * random.normal();
  }
  return weights;
}

const GEMMA = decoder(GEMMA3);

const MODELS: [string, Model][] = [
  ['llama', LLAMA],
  ['gpt2', GPT2],
  ['gemma3', GEMMA],
  ['qwen3', decoder(QWEN3)],
];

describe.each(THOROUGH ? MODELS : MODELS.slice(0, 1))('%s', (_, base) => {
  const prompt = Int32Array.of(3, 1, 4, 1, 5);

  test('with B = 0, and without its adapter, has every bit of the model alone', async () => {
    const model = withLora(base, { rank: 3, alpha: 7, dropout: 0.5 });
    const ids = { ids: Int32Array.from({ length: 14 }, (_, i) => (7 * i) % 90), batch: 2, seq: 7 };
    const fresh = await collect(initialWeights(model, 4));
    const alone = await forwardActivations(device, base, fresh, ids);
    const found = await forwardActivations(device, model, fresh, ids);
    for (const [name, values] of alone) expect(bits(found.get(name)), name).toEqual(bits(values));
    const weights = await learned(model, 4);
    const changed = await forwardActivations(device, model, weights, ids);
    expect(bits(changed.get('logits'))).not.toEqual(bits(alone.get('logits')));
    const generator = await Generator.open(device, model, sourceOf(weights));
    const plain = await Generator.open(device, base, sourceOf(fresh));
    try {
      const wanted = await plain.next(prompt);
      expect(bits(await generator.next(prompt, { adapter: 'none' }))).toEqual(bits(wanted));
      expect(bits(await generator.next(prompt))).not.toEqual(bits(wanted));
      expect(bits(await generator.next(prompt, { adapter: 'none' }))).toEqual(bits(wanted));
      await expect(generator.next(prompt, { adapter: 'other' })).rejects.toThrow(
        'the model has no adapter other; it has default, none',
      );
    } finally {
      await generator.close();
      await plain.close();
    }
  });

  test('with several adapters writes with the one that is asked for', async () => {
    const options = [{ rank: 2 }, { rank: 4, targets: [base === GPT2 ? 'c_fc' : 'up_proj'] }] as const;
    const both = withLora(withLora(base, options[0]), options[1], 'other');
    const weights = await learned(both, 6);
    const generator = await Generator.open(device, both, sourceOf(weights));
    try {
      for (const [adapter, lora] of [
        ['default', options[0]],
        ['other', options[1]],
      ] as const) {
        const single = withLora(base, lora);
        const own = new Map(
          single.parameters.map(({ name }) => {
            const named = adapter === 'default' ? name : name.replace(/(lora_[AB])\./, '$1.other.');
            return [name, weights.get(named) ?? new Float32Array()];
          }),
        );
        const alone = await Generator.open(device, single, sourceOf(own));
        expect(bits(await generator.next(prompt, { adapter })), adapter).toEqual(bits(await alone.next(prompt)));
        await alone.close();
      }
    } finally {
      await generator.close();
    }
  });

  test('trains with the same bits in any memory, with activations kept or made again, and its base unchanged', async () => {
    // Of packed q, k and v, one is not adapted.
    const targets = base === GPT2 ? ['all-linear'] : ['q_proj', 'v_proj', 'o_proj', 'down_proj'];
    const model = withLora(base, { rank: 3, alpha: 4, targets, dropout: 0.2 });
    const work: Work = { model, batch: 2, seq: 8, accumulate: 2, steps: 4 };
    const { outcome, choices } = await run(device, work);
    expect(outcome.steps.every(([loss, norm]) => Number.isFinite(loss) && norm > 0)).toBe(true);
    const start = await collect(initialWeights(model, 3));
    for (const { name } of base.parameters)
      expect(bits(outcome.parameter.get(name)), name).toEqual(bits(start.get(name)));
    for (const { name } of model.parameters.filter(({ trainable = true }) => trainable))
      expect(bits(outcome.parameter.get(name)), name).not.toEqual(bits(start.get(name)));
    const least = leastBudget(device, work);
    const memories: MemoryOptions[] = [
      { gpu: least },
      { gpu: Math.floor(1.3 * least), recovery: 'checkpoint', activations: 'keep' },
      { gpu: Math.floor(1.3 * least), host: 60_000, disk: memoryDisk(), activations: 'recompute' },
      { activations: 'light' },
      { activations: 'recompute' },
      { gpu: Math.floor(1.3 * least), activations: 'spill' },
      { gpu: Math.floor(1.3 * least), activations: 'offload' },
    ];
    const nth = MODELS.findIndex(([, model]) => model === base);
    const sampled = memories.filter((_, i) => (i + nth) % 4 === 0);
    for (const memory of EVERY_CASE ? memories : THOROUGH ? sampled : memories.slice(0, 1)) {
      const found = await run(device, work, { memory, choices });
      expectSame(found.outcome, outcome, JSON.stringify(memory));
    }
  });

  test.runIf(EVERY_CASE || base === LLAMA || base === GEMMA)(
    'writes between steps with what it trains, and without it',
    async () => {
      const model = withLora(base, { rank: 2, dropout: 0.3 });
      const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 4, between: true };
      const trainer = await openTrainer(device, work, { memory: { gpu: 2 * leastBudget(device, work) } });
      const { generator } = trainer;
      try {
        const [before, batches] = [await generator?.next(prompt), batchesOf(work)];
        expect(bits(await generator?.next(prompt, { adapter: 'none' }))).toEqual(bits(before));
        for (const micro of batches) await trainer.start(micro);
        expect(bits(await generator?.next(prompt))).not.toEqual(bits(before));
        expect(bits(await generator?.next(prompt, { adapter: 'none' }))).toEqual(bits(before));
      } finally {
        await trainer.destroy();
      }
    },
  );

  test.runIf(EVERY_CASE || base === LLAMA || base === GPT2)(
    'writes no frozen chunk back, and takes no gradient or moment of one',
    async () => {
      const model = withLora(base, { rank: 2 });
      const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 5 };
      for (const recovery of ['step', 'checkpoint'] as const) {
        const trainer = await openTrainer(device, work, {
          memory: { gpu: leastBudget(device, work, recovery), recovery },
        });
        try {
          let recording: Recording | undefined;
          let arrived: Promise<void> | undefined;
          for (const micro of batchesOf(work)) {
            const recorded = (found: Recording, ended: Promise<void>) => {
              recording = found;
              arrived = ended;
            };
            await trainer.start(micro, { recorded });
          }
          await arrived;
          await trainer.settle();
          const { map } = trainer.session;
          // Numbers behind those of chunks are pieces of activations.
          const moved = (link: string) =>
            recording?.transfers
              .filter((t) => t.link === link)
              .flatMap(({ chunks }) => chunks.filter((c) => c < map.count).map((c) => map.holding(c).kind));
          expect(moved('h2d')).toContain('frozen');
          expect(moved('d2h')).not.toContain('frozen');
          if (recovery === 'step') expect(moved('d2h')).toContain('moment1');
          expect(map.list('gradient').chunks).toBe(map.trainable.chunks);
          expect([...map.trainable.pieces.keys()].every((name) => name.includes('lora_'))).toBe(true);
        } finally {
          await trainer.destroy();
        }
      }
    },
  );
});

// In the sample parity.test.ts has it.
test.runIf(EVERY_CASE)('the reference case passes in its smallest budget', async () => {
  const reference = await loadCase(testHost, 'test/fixtures/reference/llama-lora-all');
  const { model, batch, seq, accumulate } = reference;
  const gpu = smallestBudget(trainingWorkload(model, traceStep(model, batch, seq), accumulate), limitsOf(device));
  expect((await replay(device, reference, { memory: { gpu } })).worst).toBeLessThanOrEqual(1);
});

// ---- Runs ----------------------------------------------------------------------------------------------------

const TEXT = 'the quick brown fox jumps over the lazy dog, and then the dog sleeps on; '.repeat(40);
const config = parseConfig(
  {
    ...{ model_type: 'llama', vocab_size: 256, max_position_embeddings: 12, hidden_size: 24, intermediate_size: 40 },
    ...{ num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2 },
  },
  'test',
);
const settings: RunSettings = {
  ...{ config, from: 'base', data: ['text.txt'], batch: 2, seq: 12, accumulate: 2, steps: 8, lr: 3e-3, minLr: 1e-4 },
  ...{ schedule: 'cosine', warmup: 2, clip: 1, weightDecay: 0.1, seed: 5, evalEvery: 0, sampleEvery: 0, saveEvery: 0 },
  ...{ evalWindows: 2, sampleTokens: 4 },
  lora: { rank: 4, alpha: 8, targets: ['q_proj', 'v_proj', 'up_proj'], dropout: 0.1, rslora: false },
};

/** A folder with a base, as Hugging Face's libraries write it. */
async function withBase(files: MemoryFiles, folder: string, seed: number): Promise<void> {
  const model = makeModel(config);
  const weights = await collect(initialWeights(model, seed));
  const tensors = model.parameters.map(({ name, shape }) => {
    return [name, { shape, data: weights.get(name) ?? new Float32Array() }] as const;
  });
  await files.writeAtomic(`${folder}/config.json`, JSON.stringify(config));
  await files.writeAtomic(`${folder}/model.safetensors`, serialize(tensors, { format: 'pt' }));
}

async function bench(): Promise<{ files: MemoryFiles; host: typeof testHost }> {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  await withBase(files, 'base', 1);
  return { files, host: { ...testHost, ...memoryClaims, files, cacheFolder: '/dev/null/none' } };
}

const adapterOf = async (files: MemoryFiles, run: string): Promise<Values> =>
  collect((await loadAdapter(files, run, config)).weights);

describe('a run', () => {
  test('saves the adapter alone, in PEFT’s layout, and resumes, replays and goes on to the bit', async () => {
    const { files, host } = await bench();
    await trainRun(host, device, settings, 'whole');
    const folder = 'whole/checkpoint-8';
    expect(await files.list(folder)).toEqual([
      ...['SHA256SUMS', 'adapter_config.json', 'adapter_model.safetensors', 'config.json'],
      ...['holdfast_state.json', 'optimizer.safetensors', 'trainer_state.json'],
    ]);
    const stored = parse(await files.read(`${folder}/adapter_model.safetensors`), 'adapter');
    expect([...stored].map(([name, { shape }]) => `${name} ${shape}`)).toEqual(
      ['self_attn.q_proj 24,24', 'self_attn.v_proj 24,12', 'mlp.up_proj 24,40'].flatMap((linear) => {
        const [module, sides = ''] = linear.split(' ');
        const [inputs, outputs] = sides.split(',');
        const path = `base_model.model.model.layers.0.${module}`;
        return [`${path}.lora_A.weight 4,${inputs}`, `${path}.lora_B.weight ${outputs},4`];
      }),
    );
    const json = JSON.parse(new TextDecoder().decode(await files.read(`${folder}/adapter_config.json`)));
    expect(json).toMatchObject({ base_model_name_or_path: 'base', r: 4, lora_alpha: 8, lora_dropout: 0.1 });
    const moments = parse(await files.read(`${folder}/optimizer.safetensors`), 'moments');
    expect(moments.size).toBe(2 * stored.size);
    const size = (await files.stat(`${folder}/optimizer.safetensors`))?.bytes ?? 0;
    expect(size).toBeLessThan(2 * 4 * (4 * (24 + 24 + 24 + 12 + 24 + 40)) + 4096);

    // Stopped twice, and in a budget in between.
    await trainRun(host, device, settings, 'parts', { until: 3 });
    const least = smallestBudget(
      trainingWorkload(modelOf(settings), traceStep(modelOf(settings), 2, 12), 2),
      limitsOf(device),
    );
    await trainRun(host, device, settings, 'parts', { until: 5, resume: true, memory: { gpu: 2 * least } });
    await trainRun(host, device, settings, 'parts', { resume: true });
    const [whole, parts] = [await loadCheckpoint(files, 'whole'), await loadCheckpoint(files, 'parts')];
    for (const which of ['weights', 'moment1', 'moment2'] as const) {
      const [wanted, found] = [await collect(whole[which]), await collect(parts[which])];
      for (const [name, values] of wanted) expect(bits(found.get(name)), `${which} ${name}`).toEqual(bits(values));
    }
    const { sameBits, pass } = await replayRun(device, await loadRun(host, 'whole'));
    expect({ sameBits, pass }).toEqual({ sameBits: true, pass: true });

    // Another run goes on from the adapter.
    const on: RunSettings = {
      ...settings,
      lora: { ...settings.lora, adapter: 'whole' } as RunSettings['lora'] & object,
    };
    const losses: number[] = [];
    await trainRun(host, device, on, 'on', { until: 1, events: { step: ({ loss }) => void losses.push(loss) } });
    const trained = await adapterOf(files, 'whole');
    expect(await adapterOf(files, 'on')).not.toEqual(trained);
    const fresh: number[] = [];
    await trainRun(host, device, settings, 'fresh', {
      until: 1,
      events: { step: ({ loss }) => void fresh.push(loss) },
    });
    expect(losses[0]).not.toBe(fresh[0]);
    expect((await replayRun(device, await loadRun(host, 'on'))).sameBits).toBe(true);
  });

  test('refuses another base, and says when it is gone', async () => {
    const { files, host } = await bench();
    await trainRun(host, device, settings, 'run', { until: 2 });
    // Another value in one weight: the same shapes, the same names.
    const bytes = await files.read('base/model.safetensors');
    const last = bytes.length - 1;
    bytes[last] = (bytes[last] ?? 0) ^ 1;
    await files.writeAtomic('base/model.safetensors', bytes);
    const before = await files.list('run');
    const other = 'run: its adapter was trained on other weights than base has now';
    await expect(trainRun(host, device, settings, 'run', { resume: true })).rejects.toThrow(other);
    await expect(loadRun(host, 'run')).rejects.toThrow(other);
    bytes[last] = (bytes[last] ?? 0) ^ 1;
    await files.writeAtomic('base/model.safetensors', bytes);
    await trainRun(host, device, settings, 'run', { resume: true, until: 3 });
    await files.remove('base');
    await expect(trainRun(host, device, settings, 'run', { resume: true })).rejects.toThrow('base');
    await expect(withModel(files, 'run', {}, async () => {})).rejects.toThrow(
      'run: its adapter belongs to base, which is not here; name the folder of its model with --base',
    );
    expect(before).toHaveLength(1);
    // The same weights elsewhere are the same base.
    await withBase(files, 'moved', 1);
    await trainRun(host, device, { ...settings, from: 'moved' }, 'run', { resume: true });
  });

  test('writes text with its adapter, without it, and merged', async () => {
    const { files, host } = await bench();
    await trainRun(host, device, { ...settings, lr: 0.05, minLr: 0.01 }, 'run');
    const prompt = new TextEncoder().encode('the ');
    const next = async (model: Model, weights: Parameters<typeof Generator.open>[2], adapter?: string) => {
      const generator = await Generator.open(device, model, weights);
      const logits = await generator.next(Int32Array.from(prompt), { adapter });
      await generator.close();
      return logits;
    };
    const alone = await withModel(files, 'base', {}, ({ model, weights }) => next(model, weights));
    await withModel(files, 'run', {}, async ({ model, weights }) => {
      const adapted = await next(model, weights);
      expect(bits(await next(model, weights, 'none'))).toEqual(bits(alone));
      expect(bits(adapted)).not.toEqual(bits(alone));
      const named = await withModel(files, 'base', { adapters: { mine: 'run' } }, (opened) =>
        next(opened.model, opened.weights, 'mine'),
      );
      expect(bits(named)).toEqual(bits(adapted));
      // Rounding apart: f32 logits of sums of 24 to 40 terms, and weights that were rounded once more.
      const merged = await next(makeModel(config), await mergedWeights(model, weights));
      const size = adapted.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      const change = adapted.reduce((most, value, i) => Math.max(most, Math.abs(value - (alone[i] ?? 0))), 0);
      const off = adapted.reduce((most, value, i) => Math.max(most, Math.abs(value - (merged[i] ?? 0))), 0);
      expect(off).toBeLessThan(40 * 4 * 2 ** -24 * size);
      expect(change).toBeGreaterThan(100 * off);
    });
  });
});

describe('adapters that are none of the model', () => {
  const trained = async () => {
    const { files, host } = await bench();
    const model = modelOf(settings);
    const [info] = model.adapters ?? [];
    const names = new Set(info?.linears.flatMap(({ a, b }) => [a, b]));
    const weights = await collect(initialWeights(model, 2));
    const own = new Map([...weights].filter(([name]) => names.has(name)));
    await saveCheckpoint(files, 'made', 0, {
      ...{ config, weights: sourceOf(own), moment1: sourceOf(own), moment2: sourceOf(own), state: {} },
      shapes: new Map(model.parameters.map(({ name, shape }) => [name, shape])),
      ...(info && { adapter: { info, base: 'base' } }),
    });
    for (const name of ['adapter_config.json', 'adapter_model.safetensors'])
      await files.rename(`made/checkpoint-0/${name}`, `peft/${name}`);
    return { files, host };
  };
  const json = async (files: MemoryFiles, change: object) => {
    const old = JSON.parse(new TextDecoder().decode(await files.read('peft/adapter_config.json')));
    await files.writeAtomic('peft/adapter_config.json', JSON.stringify({ ...old, ...change }));
  };
  const tensors = async (
    files: MemoryFiles,
    change: (all: Map<string, { shape: readonly number[]; data: Float32Array<ArrayBuffer> }>) => void,
  ) => {
    const all = parse(await files.read('peft/adapter_model.safetensors'), 'adapter') as Map<
      string,
      { shape: readonly number[]; data: Float32Array<ArrayBuffer> }
    >;
    change(all);
    await files.writeAtomic('peft/adapter_model.safetensors', serialize(all));
  };
  const A = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
  const cases: [string, (files: MemoryFiles) => Promise<void>, string][] = [
    [
      'of another rank than it says',
      (files) => json(files, { r: 5 }),
      'peft: model.layers.0.self_attn.q_proj.lora_A.weight has shape [4, 24], its adapter_config.json and the model ask for [5, 24]',
    ],
    [
      'of unknown targets',
      (files) => json(files, { target_modules: ['q_proj', 'query'] }),
      'peft: low-rank updates: query is no linear of this model',
    ],
    [
      'of fewer targets',
      (files) => json(files, { target_modules: ['q_proj'] }),
      'peft: model.layers.0.self_attn.v_proj.lora_A.weight belongs to no target in its adapter_config.json',
    ],
    [
      'without a tensor',
      (files) => tensors(files, (all) => void all.delete(A)),
      'peft: there is no tensor model.layers.0.self_attn.q_proj.lora_A.weight',
    ],
    [
      'with a tensor more',
      (files) =>
        tensors(
          files,
          (all) =>
            void all.set('base_model.model.model.layers.7.x.lora_A.weight', { shape: [1], data: new Float32Array(1) }),
        ),
      'peft: model.layers.7.x.lora_A.weight belongs to no target',
    ],
    [
      'in mlx-lm’s layout',
      async (files) => {
        await files.rename('peft/adapter_model.safetensors', 'peft/adapters.safetensors');
      },
      'peft/adapters.safetensors: an adapter as mlx-lm writes it',
    ],
    [
      'cut short',
      async (files) => {
        const bytes = await files.read('peft/adapter_model.safetensors');
        await files.writeAtomic('peft/adapter_model.safetensors', bytes.slice(0, 100));
      },
      'peft/adapter_model.safetensors',
    ],
    [
      'that is no JSON',
      (files) => files.writeAtomic('peft/adapter_config.json', '{'),
      'peft/adapter_config.json: not JSON',
    ],
    ['of another model', (files) => withLargerBase(files), 'its adapter_config.json and the model ask for'],
  ];
  test.each(cases)('%s: one line', async (_, change, message) => {
    const { files } = await trained();
    await withModel(files, 'base', { adapters: { default: 'peft' } }, async ({ model }) => {
      expect(model.adapters).toHaveLength(1);
    });
    await change(files);
    const opened = withModel(files, 'base', { adapters: { default: 'peft' } }, async () => {});
    await expect(opened).rejects.toMatchObject({ name: 'HoldfastError', message: expect.stringContaining(message) });
    await expect(opened).rejects.toMatchObject({ message: expect.not.stringContaining('\n') });
  });

  test('are refused as models, and models as adapters', async () => {
    const { files, host } = await trained();
    await expect(loadAdapter(files, 'base', config)).rejects.toThrow('base: there is no adapter; name a folder with');
    await expect(trainRun(host, device, { ...settings, from: 'peft' }, 'out')).rejects.toThrow('peft');
    const { from: _, ...without } = settings;
    await expect(trainRun(host, device, without, 'out')).rejects.toThrow(
      'a low-rank update needs a model with weights',
    );
    const other: RunSettings = {
      ...settings,
      lora: { ...(settings.lora as NonNullable<RunSettings['lora']>), alpha: 3, adapter: 'peft' },
    };
    await expect(trainRun(host, device, other, 'out')).rejects.toThrow('peft: its alpha is 8, and 3 was asked for');
  });
});

/** The base becomes a wider one. */
async function withLargerBase(files: MemoryFiles): Promise<void> {
  const wide = parseConfig({ ...config, hidden_size: 32, head_dim: 8 }, 'test');
  const model = makeModel(wide);
  const weights = await collect(initialWeights(model, 1));
  await files.writeAtomic('base/config.json', JSON.stringify(wide));
  const all = model.parameters.map(
    ({ name, shape }) => [name, { shape, data: weights.get(name) ?? new Float32Array() }] as const,
  );
  await files.writeAtomic('base/model.safetensors', serialize(all));
}
