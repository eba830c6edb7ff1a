// What a library's user may forget or mix up, without a budget and within one: each is one line that says what to do,
// and the trainer is as it was.

import { beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { type BatchArray, evenWindows, RandomWindows } from '../../src/data/batches.ts';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { BatchGenerator } from '../../src/train/inference/batch-generator.ts';
import { Classifier } from '../../src/train/inference/classifier.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import type { SamplingOptions } from '../../src/train/inference/sampling.ts';
import { Evaluator } from '../../src/train/step/evaluator.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import type { TrainerOptions } from '../../src/train/step/trainer-options.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf, type TensorSource } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry, leading } from '../entry.ts';
import { expectMistake } from '../expect-mistake.ts';
import { testDevice } from '../harness.ts';
import { CHECKPOINT, savedRun } from '../saved-run.ts';
import { batchesOf, leastBudget, SMALLEST, type Work, write } from './runs.ts';

const IMAGES = { image: 4, patch: 2, channels: 3, classes: 3 };
const work: Work = { model: SMALLEST, batch: 2, seq: 8, accumulate: 2, steps: 1, between: true };

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
beforeEach(() => chooseVariants(1));

describe.each(['without a budget', 'within a budget'])('%s', (kind) => {
  test('weights that were never set, batches of another shape, values that are not there', async () => {
    const { batch, seq, accumulate, model } = work;
    const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
    const memory = kind === 'within a budget' ? { gpu: leastBudget(device, work) } : {};
    const trainer = await Trainer.create(device, model, { batch, seq, accumulate, schedule, memory, generates: true });
    try {
      const [right] = leading(1, batchesOf(work));
      const [one] = right;
      const evaluate = () => trainer.evaluate(one);
      const noWeights = /^the model has no weights yet \(wte.weight was never set\); .* setWeights$/;
      for (const early of [
        () => trainer.start(right),
        evaluate,
        () => write(trainer.generator as Generator),
        () => (trainer.generator as Generator).next(Int32Array.of(1)),
        () => collect(trainer.values('parameter')),
      ]) {
        await expectMistake(early, noWeights);
      }
      // Some of them are not all.
      const all = await collect(initialWeights(model, 3));
      await trainer.setValues('parameter', sourceOf(new Map([...all].filter(([name]) => name === 'wte.weight'))));
      await expectMistake(() => trainer.start(right), /no weights yet \(wpe.weight was never set\)/);

      await trainer.setWeights(initialWeights(model, 3));
      const before = await evaluate();
      const other = (changes: Record<string, BatchArray | number>) => () =>
        trainer.start([{ ...one, ...changes }, one]);
      await expectMistake(() => trainer.start([one]), /takes 2 micro-batches \(accumulate\), not 1$/);
      await expectMistake(other({ batch: 1 }), /a batch of 1 x 8 tokens: .* for 2 x 8 \(batch, seq\)$/);
      await expectMistake(other({ seq: 4, batch: 4 }), /a batch of 4 x 4 tokens: .* for 2 x 8/);
      await expectMistake(other({ ids: one.ids.subarray(1) }), /a batch of 2 x 8 with 15 ids: give 16$/);
      await expectMistake(other({ targets: Float32Array.from(one.targets) }), /no targets: give them as Int32Array$/);
      await expectMistake(other({ targets: new Int32Array(17) }), /with 17 targets: give 16$/);
      await expectMistake(
        other({ ids: one.ids.map(() => 40) }),
        /has 40 among its ids: for this model, they end at 39$/,
      );
      await expectMistake(other({ targets: one.targets.map(() => -1) }), /has -1 among its targets: .* end at 39$/);
      await expectMistake(() => trainer.evaluate({ ...one, seq: 4, batch: 4 }), /a batch of 4 x 4 tokens/);
      const shared = new Int32Array(new SharedArrayBuffer(one.ids.byteLength)) as unknown as BatchArray;
      await expectMistake(other({ ids: shared }), /ids lie in shared memory, .*; give a copy: slice\(\)$/);
      const strange = sourceOf(new Map([['wte.wieght', new Float32Array(1)]]));
      await expectMistake(
        () => trainer.setValues('moment1', strange),
        /no tensor wte.wieght in the model; there are wte.weight,/,
      );
      await expectMistake(() => collect(trainer.values('gradient')), /no gradient values now/);
      expect(trainer.step).toBe(0);
      expect(await evaluate()).toBe(before);
      expect((await trainer.start(right)).step).toBe(0);
    } finally {
      await trainer.destroy();
      vi.restoreAllMocks();
    }
  });

  test('tensors of another length, a restore while steps run, anything after the end', async () => {
    const { batch, seq, accumulate, model } = work;
    const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
    const memory = kind === 'within a budget' ? { gpu: leastBudget(device, work) } : {};
    const trainer = await Trainer.create(device, model, { batch, seq, accumulate, schedule, memory, generates: true });
    const generator = trainer.generator as Generator;
    const [right] = leading(1, batchesOf(work));
    const [one] = right;
    try {
      const all = await collect(initialWeights(model, 3));
      await trainer.setWeights(sourceOf(all));
      const before = await collect(trainer.values('parameter'));
      const size = entry(all, 'ln_f.weight').length;
      const ofLength = (length: number) =>
        sourceOf(
          new Map(
            [...all].map(([name, data]) => [name, new Float32Array(name === 'ln_f.weight' ? length : data.length)]),
          ),
        );
      for (const length of [0, size - 1, size + 1]) {
        const says = new RegExp(`^ln_f\\.weight has ${size} elements, ${length} were given$`);
        await expectMistake(() => trainer.setWeights(ofLength(length)), says);
        await expectMistake(() => trainer.setValues('moment1', ofLength(length)), says);
      }
      expect(await collect(trainer.values('parameter'))).toEqual(before);
      // Of a source that does not know its lengths.
      const piecewise = (length: number): TensorSource => {
        const { read } = ofLength(length);
        return { names: ['ln_f.weight'], read };
      };
      await expectMistake(
        () => trainer.setWeights({ ...piecewise(1), names: [...all.keys()] }),
        / elements, 1 were given$/,
      );
      await expectMistake(() => trainer.setValues('parameter', piecewise(size + 1)), /elements, more were given$/);
      await trainer.setWeights(sourceOf(all));

      const state = await trainer.state();
      const step = trainer.start(right);
      await expectMistake(() => trainer.restore({ ...state, step: 7 }), /^steps are under way; await them .* settle$/);
      expect((await step).step).toBe(0);
      expect(trainer.step).toBe(1);
      await trainer.settle();
      trainer.restore(state);
      expect((await trainer.start(right)).step).toBe(0);

      // A trainer's own goes with the trainer.
      await generator.close();
      expect(Number.isFinite(await trainer.evaluate(one))).toBe(true);
      // Asked for while steps are under way: of one of them.
      const under = [trainer.start(right), trainer.state(), trainer.start(right), trainer.state()] as const;
      await Promise.all(under);
      const idle = await trainer.state();
      for (const { step, control } of [await under[1], await under[3]])
        expect((control.at(-1) ?? 0) - step).toBe((idle.control.at(-1) ?? 0) - idle.step);
      const parameters = trainer.values('parameter');
      await trainer.destroy();
      for (const late of [
        () => trainer.start(right),
        () => trainer.evaluate(one),
        () => trainer.setWeights(sourceOf(all)),
        () => collect(parameters),
        () => trainer.settle(),
        () => trainer.state(),
        () => trainer.restore(state),
        () => write(generator),
        () => generator.next(Int32Array.of(1)),
        ...(memory.gpu === undefined ? [] : [() => trainer.setBudget(2 * (memory.gpu as number))]),
      ]) {
        await expectMistake(late, /^this trainer or generator was closed; make another$/);
      }
    } finally {
      await trainer.destroy();
      vi.restoreAllMocks();
    }
  });
});

describe('what is asked for is none', () => {
  const { batch, seq, accumulate, model } = work;
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
  const options = { batch, seq, accumulate, schedule };

  const memories: [object, RegExp][] = [
    [{ gpu: Number.NaN }, /^the memory options: gpu is NaN; it must be a number, 0 or more$/],
    [{ gpu: -1 }, /^the memory options: gpu is -1; it must be/],
    [{ gpu: 'all' }, /^the memory options: gpu is "all"; it must be/],
    [{ host: Number.NaN }, /^the memory options: host is NaN; it must be/],
    [{ disk: { open() {}, limit: -5 } }, /^the memory options: disk.limit is -5; it must be/],
    [{ policy: 'newest' }, /^the memory options: policy is "newest"; it must be one of "planned"/],
    [{ activations: 'drop' }, /^the memory options: activations is "drop"; it must be one of "keep"/],
    [{ accumulateOrder: 'none' }, /^the memory options: accumulateOrder is "none"; it must be one of/],
    [
      { recovery: 'never' },
      /^the memory options: recovery is "never"; it must be one of "auto", "step", "checkpoint"$/,
    ],
  ];
  const sizes: [object, RegExp][] = [
    [{ batch: 0 }, /batch of 0 sequences|batch is 0/],
    [{ batch: Number.NaN }, /batch of NaN sequences|batch is NaN/],
    [{ batch: 1.5 }, /batch of 1.5 sequences|batch is 1.5/],
    [{ seq: -8 }, /sequences of -8 tokens|seq is -8/],
    [{ seq: 1000 }, /^a sequence of 1000 tokens is longer than the model's context of \d+; use at most that$/],
    [{ batch: 1e9 }, /^a batch of 1000000000 sequences of 8 tokens: .* use at most \d+ sequences, or shorter ones$/],
  ];

  test.each<[object, RegExp]>([
    ...sizes,
    [{ batch: '2' }, /^the trainer options: batch is "2"; it must be a whole number, 1 or more$/],
    [{ accumulate: 0 }, /^the trainer options: accumulate is 0; it must be a whole number, 1 or more$/],
    [{ accumulate: 1e9 }, /^a step of 1000000000 micro-batches of this model has .* accumulate at most \d+$/],
    [{ seed: 0.5 }, /^the trainer options: seed is 0.5; it must be a whole number, 0 or more$/],
    [{ schedule: undefined }, /^the trainer options: schedule is missing; it must be an object$/],
    [{ schedule: { ...schedule, peak: Number.NaN } }, /^learning rate NaN: must be above 0/],
    [{ schedule: { ...schedule, peak: 1e39 } }, /^learning rate 1e\+39: .* float32 holds$/],
    [{ schedule: { ...schedule, min: Number.NaN } }, /^minimum learning rate NaN: must lie/],
    [{ schedule: { ...schedule, warmup: 0.5 } }, /^warm-up of 0.5 steps: must be/],
    [{ optimizer: { clip: -1 } }, /^the trainer options: optimizer.clip is -1; it must be a number, 0 or more/],
    [{ optimizer: { weightDecay: Number.NaN } }, /optimizer.weightDecay is NaN; it must be a number, 0 or more/],
    [{ optimizer: { beta1: 1 } }, /optimizer.beta1 is 1; it must be a number from 0 to 0.99/],
    [{ optimizer: { epsilon: Number.NaN } }, /optimizer.epsilon is NaN; it must be a number, 0 or more/],
    [{ optimizerDevice: 'tpu' }, /optimizerDevice is "tpu"; it must be one of "gpu"/],
    [{ activationDtype: 'f8' }, /activationDtype is "f8"; it must be one of "f32"/],
    [{ signal: new AbortController() }, /^the trainer options: signal is an object; it must be an AbortSignal$/],
    [{ signal: AbortSignal.abort() }, /^stopped before the trainer was made, and the first step; start again$/],
    [{ update: 'never' }, /update is "never"; it must be one of "at-end"/],
    ...memories.map(([memory, says]): [object, RegExp] => [{ memory }, says]),
  ])('of a trainer: %j', async (changes, says) => {
    const wrong = { ...options, ...changes } as TrainerOptions;
    await expectMistake(() => Trainer.create(device, model, wrong), says);
  });

  const adapter: [object, RegExp] = [{ adapter: 'defualt' }, /^the model has no adapter defualt; it has none$/];
  test.each([
    ...[adapter, ...sizes],
    ...memories.slice(0, 6).map(([memory, says]): [object, RegExp] => [{ memory }, says]),
  ])('of an evaluator: %j', async (changes, says) => {
    const open = () => Evaluator.open(device, model, initialWeights(model, 3), { batch, seq, ...changes });
    await expectMistake(open, says);
  });

  test.each([
    [{ capacity: 0 }, /^a capacity of 0 tokens: must be a whole number from 1 to \d+, the model's context$/],
    [{ capacity: Number.NaN }, /^a capacity of NaN tokens/],
    [{ capacity: 1e9 }, /^a capacity of 1000000000 tokens/],
    [{ batch: 0 }, /^a batch of 0 texts: must be a whole number of texts, 1 or more$/],
    [{ batch: 1e9 }, /^1000000000 texts at once: use at most \d+ with this model$/],
    ...memories.slice(0, 6).map(([memory, says]): [object, RegExp] => [{ memory }, says]),
  ])('of a generator: %j', async (changes, says) => {
    const weights = initialWeights(model, 3);
    await expectMistake(() => BatchGenerator.open(device, model, weights, { batch: 2, ...changes }), says);
    if ('batch' in changes) return;
    await expectMistake(() => Generator.open(device, model, weights, changes), says);
  });

  test('of text that is written', async () => {
    const generator = await Generator.open(device, model, initialWeights(model, 3));
    const writing = (count: number, sampling: SamplingOptions) => async () => {
      for await (const _ of generator.generate(Int32Array.of(1), count, sampling, new Random(1, 'samples')));
    };
    try {
      await expectMistake(writing(Number.NaN, {}), /^NaN tokens to write: must be a number, 0 or more$/);
      await expectMistake(writing(-1, {}), /^-1 tokens to write/);
      await expectMistake(writing(1, { temperature: Number.NaN }), /^temperature NaN: must be 0/);
      await expectMistake(writing(1, { topK: 0 }), /^top-k 0: must be a whole number of tokens/);
      await expectMistake(writing(1, { topP: Number.NaN }), /^top-p NaN: must be a probability/);
    } finally {
      await generator.close();
      vi.restoreAllMocks();
    }
  });

  test('of windows', async () => {
    const tokens = new Uint16Array(100);
    await expectMistake(() => new RandomWindows(tokens, 0, 8, 1), /^a batch of 0 sequences of 8 tokens: both must be/);
    await expectMistake(() => new RandomWindows(tokens, 2, Number.NaN, 1), /of NaN tokens: both must be whole numbers/);
    await expectMistake(() => evenWindows(tokens, 8, 1.5), /^a validation of 1.5 sequences of 8 tokens: both must be/);
  });

  test('of a budget that is changed', async () => {
    const gpu = leastBudget(device, work);
    const trainer = await Trainer.create(device, model, { ...options, memory: { gpu }, generates: true });
    try {
      await expectMistake(() => trainer.setBudget(Number.NaN), /^the memory options: gpu is NaN; it must be/);
      await expectMistake(() => trainer.setBudget(-1), /^the memory options: gpu is -1; it must be/);
      await expectMistake(() => trainer.setBudget(0), /^0 B of GPU memory are too little: .* needs \d+ bytes/);
      const set = trainer.setBudget as (given: unknown) => Promise<void>;
      for (const none of ['auto', undefined, '5'])
        await expectMistake(() => set.call(trainer, none), /^the GPU budget is .*; it must be a number of bytes$/);
      expect(trainer.session.memory.gpu).toBe(gpu);
    } finally {
      await trainer.destroy();
      vi.restoreAllMocks();
    }
  });
});

test('a budget of a trainer that has none: as much as can be had was enough for everything', async () => {
  const { batch, seq, model } = work;
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
  const trainer = await Trainer.create(device, model, { batch, seq, schedule, memory: { gpu: 'auto' } });
  try {
    await expectMistake(
      () => trainer.setBudget(1e8),
      /has no GPU budget, nor had one of 'auto' .* give it one in bytes/,
    );
  } finally {
    await trainer.destroy();
    vi.restoreAllMocks();
  }
});

test('weights that are not all there are refused by what evaluates, writes and tells classes as it opens', async () => {
  const { batch, seq, model } = work;
  const lacking = async (whole: Model) =>
    sourceOf(new Map([...(await collect(initialWeights(whole, 3)))].filter(([name]) => !name.endsWith('.bias'))));
  const weights = await lacking(model);
  const says = /^the weights have no h\.0\.ln_1\.bias, .*, \.\.\.; give every parameter of the model$/;
  await expectMistake(() => Evaluator.open(device, model, weights, { batch, seq }), says);
  await expectMistake(() => Generator.open(device, model, weights), says);
  await expectMistake(() => BatchGenerator.open(device, model, weights, { batch: 2 }), says);
  const seer = makeModel(configOfShape({ family: 'vit', layers: 1, width: 16, heads: 2, images: IMAGES }));
  const ofSeer = await lacking(seer);
  await expectMistake(() => Classifier.open(device, seer, ofSeer), /^the weights have no .*\.bias, .*; give every/);
  // What is frozen has an adapter, of which a model's file knows nothing.
  const whole = initialWeights(model, 3);
  const low = withLora(model, { rank: 2 });
  await expectMistake(() => Evaluator.open(device, low, whole, { batch, seq }), /^the weights have no .*lora_A/);
});

test('a tensor that is read by another name than it has', async () => {
  const { batch, seq, model } = work;
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
  const weights = initialWeights(model, 3);
  const trainer = await Trainer.create(device, model, { batch, seq, schedule });
  try {
    await trainer.setWeights(weights);
    const { files } = await savedRun();
    const read = (source: TensorSource, name: string) => async () => {
      for await (const _ of source.read(name));
    };
    const inMemory = sourceOf(await collect(weights));
    const sources: [string, TensorSource][] = [
      ['the model', weights],
      ['the source', inMemory],
      ['the parameter values of this model', trainer.values('parameter')],
      ['the moment1 values of this model', trainer.values('moment1')],
      [`${CHECKPOINT}/model.safetensors`, (await loadWeights(files, CHECKPOINT)).weights],
    ];
    for (const [holder, source] of sources) {
      const says = new RegExp(`^no tensor wte\\.weigth in ${holder}; there are wte\\.weight, .* and \\d+ more$`);
      await expectMistake(read(source, 'wte.weigth'), says);
    }
    await expectMistake(read(sourceOf(new Map()), 'a'), /^no tensor a in the source; there is none$/);
  } finally {
    await trainer.destroy();
    vi.restoreAllMocks();
  }
});
