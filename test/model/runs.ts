// What the tests of budgets and faults share: tiny models of every family, and one small training of them, with
// evaluations, text and weights read between its steps, whose every number is kept.

import { expect } from 'vitest';
import type { TokenBatch } from '../../src/data/batches.ts';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { Recovery } from '../../src/engine/compile/recovery.ts';
import type { Workload } from '../../src/engine/compile/workload.ts';
import { limitsOf, type MemoryOptions, optionsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import { backwardPassesOf, type OptimizerDeviceChoice, type Update } from '../../src/graph/operators/optimizer.ts';
import { trainingDtypeOf } from '../../src/memory/layout/chunk-map.ts';
import { leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { type Model, optimizedOn } from '../../src/nn/model.ts';
import type { BlockFile, Threads } from '../../src/runtime/host.ts';
import { traceGeneration } from '../../src/train/inference/generation-workload.ts';
import type { Generator } from '../../src/train/inference/generator.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import type { TrainerOptions } from '../../src/train/step/trainer-options.ts';
import { type TrainingPasses, trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { collect, type TensorSource, type Values } from '../../src/values/tensor-source.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { LLAMA } from '../families/llama.ts';
import { MISTRAL } from '../families/mistral.ts';
import { QWEN2 } from '../families/qwen2.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { THOROUGH } from '../host.ts';
import { MemoryBlockFile } from '../memory-files.ts';

const gpt2 = (n_layer: number, n_embd: number, vocab_size: number, tie_word_embeddings = true) =>
  parseConfig(
    { model_type: 'gpt2', n_layer, n_embd, n_head: 4, n_positions: 16, vocab_size, tie_word_embeddings },
    'gpt2',
  );

const decoder = (config: object, num_hidden_layers = 1) =>
  makeModel(
    parseConfig(
      {
        ...config,
        vocab_size: 120,
        max_position_embeddings: 16,
        hidden_size: 32,
        intermediate_size: 80,
        num_hidden_layers,
        head_dim: 8,
      },
      'decoder',
    ),
  );

export const MODELS = {
  'gpt2, tied': makeModel(gpt2(2, 32, 150)),
  'gpt2, untied': makeModel(gpt2(1, 24, 300, false)),
  'gpt2 with low-rank updates': withLora(makeModel(gpt2(1, 32, 90)), { rank: 4, alpha: 8, dropout: 0.1 }),
  'llama, grouped heads': decoder(LLAMA),
  'mistral, a window': decoder(MISTRAL),
  'qwen2, biases': decoder(QWEN2),
  'qwen3, norms of heads': decoder(QWEN3),
  'gemma3, every switch': decoder(GEMMA3, 2),
} as const satisfies Record<string, Model>;

/** One of them where a runtime repeats what Node runs whole. */
export const SAMPLED_MODELS = Object.entries(MODELS).filter(([name]) => THOROUGH || name === 'llama, grouped heads');

/** Model data of 21 chunks of the smallest size a kind: room for a tenth of it. */
export const LARGEST = makeModel(gpt2(3, 48, 97));
/** Nine chunks in all. */
export const SMALLEST = makeModel(gpt2(1, 16, 40));

export interface Work {
  readonly model: Model;
  readonly batch: number;
  readonly seq: number;
  readonly accumulate: number;
  readonly steps: number;
  /** Whether rows hold several documents; of a model without positions to learn. @default false */
  readonly packed?: boolean;
  /** What happens between steps: each changes what is on the GPU, and nothing else. */
  readonly between?: boolean;
  /** @default 'gpu' */
  readonly optimizerDevice?: OptimizerDeviceChoice;
  /** Of `auto`. */
  readonly optimizerSplit?: number;
  /** @default 'at-end' */
  readonly update?: Update;
  /** @default 1 */
  readonly clip?: number;
  /** @default 'f32' */
  readonly activationDtype?: ActivationDtype;
}

/** Everything that a run brings; two that did the same work are equal in all of it, to the bit. */
export interface Outcome {
  readonly steps: readonly (readonly [loss: number, gradNorm: number, skipped: boolean])[];
  readonly evaluations: readonly number[];
  readonly texts: readonly (readonly number[])[];
  readonly between: readonly Values[];
  readonly parameter: Values;
  readonly moment1: Values;
  readonly moment2: Values;
}

const workloads = new Map<Work, Workload<TrainingPasses>>();

export function workloadOf(work: Work): Workload<TrainingPasses> {
  const known = workloads.get(work);
  if (known) return known;
  const { batch, seq, accumulate, between = false, optimizerDevice = 'gpu', activationDtype } = work;
  const model = optimizedOn(work.model, optimizerDevice, work.optimizerSplit);
  const { packed = false, update = 'at-end', clip = 1 } = work;
  const generation = between ? traceGeneration(model, seq) : undefined;
  const programs = traceStep(model, batch, seq, {
    packed,
    activationDtype,
    passes: backwardPassesOf(update, { clip, dtype: trainingDtypeOf(model.parameters) }),
  });
  const workload = trainingWorkload(model, programs, accumulate, generation);
  workloads.set(work, workload);
  return workload;
}

export const leastBudget = (device: Device, work: Work, recovery: Recovery = 'step'): number =>
  smallestBudget(workloadOf(work), limitsOf(device), { recovery });

/** The budget that leaves this part of the model data room on the GPU, or the smallest where that is more. */
export function budgetFor(device: Device, work: Work, part: number, recovery: Recovery = 'step'): number {
  const workload = workloadOf(work);
  const all = fitMemory(workload, limitsOf(device), undefined);
  const bytes =
    4 *
    all.map.lists.reduce((sum, { first, chunks }) => {
      for (let i = 0; i < chunks; i++) sum += all.map.used(first + i);
      return sum;
    }, 0);
  const { arenas, persistent } = all.nonModel;
  return Math.max(leastBudget(device, work, recovery), Math.ceil(arenas + persistent + bytes * part));
}

/** Chunks and their size under a budget. */
export function chunksUnder(device: Device, work: Work, memory: MemoryOptions): { chunks: number; bytes: number } {
  const { map } = fitUnder(device, work, memory);
  return { chunks: map.count, bytes: map.chunkBytes };
}

/** Host memory above a disk that is the least of what is fitted with it: as long as that is refused, what the refusal asks for. */
export function leastHostUnder(device: Device, work: Work, memory: MemoryOptions): number {
  const least = (limits: MemoryOptions) => leastHostBytes(needBelow(fitUnder(device, work, limits)), true);
  let host = least(memory);
  for (;;) {
    const needed = least({ ...memory, host, disk: memoryDisk() });
    if (needed <= host) return host;
    host = needed;
  }
}

const fitUnder = (device: Device, work: Work, memory: MemoryOptions) =>
  fitMemory(workloadOf(work), limitsOf(device), memory.gpu as number | undefined, optionsOf(memory));

/** A disk tier in memory. */
export const memoryDisk = (wrap: (file: BlockFile) => BlockFile = (file) => file) => ({
  open: async (bytes: number) => wrap(new MemoryBlockFile('/tier/block-file', bytes)),
});

/** A step's micro-batches: one or more. */
export type Micros = [TokenBatch, ...TokenBatch[]];

/** The batches of every step. */
export function batchesOf({ model, batch, seq, accumulate, steps, packed = false }: Work): Micros[] {
  const random = new Random(7, 'batches');
  const { vocabulary } = model.shape;
  const tokens = () => Int32Array.from({ length: batch * seq }, () => random.below(vocabulary));
  let document = 0;
  const begins = (t: number) => t === 0 || random.below(4) === 0;
  const documents = () => Int32Array.from({ length: batch * seq }, (_, i) => (begins(i % seq) ? ++document : document));
  const next = (): TokenBatch => ({
    ...{ ids: tokens(), targets: tokens(), ...(packed && { documents: documents() }), batch, seq },
  });
  return Array.from({ length: steps }, () => [next(), ...Array.from({ length: accumulate - 1 }, next)]);
}

export interface RunOptions {
  readonly ranks?: NonNullable<TrainerOptions['ranks']>;
  readonly memory?: MemoryOptions;
  readonly signal?: AbortSignal;
  readonly choices?: ChoiceRecord;
  readonly threads?: Threads | undefined;
  /** @default drawn, the same for all runs */
  readonly weights?: TensorSource;
}

export async function openTrainer(
  device: Device,
  { model, batch, seq, accumulate, between = false, optimizerDevice = 'gpu', ...work }: Work,
  { weights = initialWeights(model, 3), ...options }: RunOptions = {},
): Promise<Trainer> {
  const schedule = { decay: 'cosine', peak: 1e-2, min: 1e-3, warmup: 1, steps: 10 } as const;
  const trainer = await Trainer.create(device, model, {
    batch,
    seq,
    accumulate,
    packed: work.packed ?? false,
    optimizerDevice,
    optimizerSplit: work.optimizerSplit,
    activationDtype: work.activationDtype ?? 'f32',
    update: work.update ?? 'at-end',
    optimizer: { clip: work.clip ?? 1 },
    schedule,
    generates: between,
    ...options,
  });
  try {
    await trainer.setWeights(weights);
    return trainer;
  } catch (error) {
    await trainer.destroy();
    throw error;
  }
}

/**
 * Does the work: steps two at a time, and between them, if wanted, all that a run does beside training. `meanwhile`
 * happens while the pair of steps is under way.
 */
export async function train(
  trainer: Trainer,
  work: Work,
  meanwhile?: (pair: number) => Promise<void>,
): Promise<Outcome> {
  const steps: (readonly [number, number, boolean])[] = [];
  const evaluations: number[] = [];
  const texts: number[][] = [];
  const between: Values[] = [];
  const micros = batchesOf(work);
  for (let begun = 0; begun < micros.length; begun += 2) {
    const pair = micros.slice(begun, begun + 2).map((batches) => trainer.start(batches));
    await meanwhile?.(begun / 2);
    for (const { loss, gradNorm, skipped } of await Promise.all(pair)) steps.push([loss, gradNorm, skipped]);
    if (!work.between) continue;
    evaluations.push(await trainer.evaluate(at(micros, micros.length - 1)[0]));
    texts.push(await write(trainer.generator as Generator));
    between.push(await collect(trainer.values(begun === 0 ? 'parameter' : 'moment1')));
  }
  const [parameter, moment1, moment2] = [
    await collect(trainer.values('parameter')),
    await collect(trainer.values('moment1')),
    await collect(trainer.values('moment2')),
  ];
  return { steps, evaluations, texts, between, parameter, moment1, moment2 };
}

/** Cold enough that an untrained model's logits decide. */
export const SAMPLING = { temperature: 0.02 } as const;

/** Seven tokens behind a prompt of three: past the end of a context of eight. */
export async function write(generator: Generator): Promise<number[]> {
  const text: number[] = [];
  for await (const id of generator.generate(Int32Array.of(3, 1, 2), 7, SAMPLING, new Random(11, 'text'))) text.push(id);
  return text;
}

/** A run from start to end: what it brought, and what its memory was. */
export async function run(
  device: Device,
  work: Work,
  options: RunOptions = {},
): Promise<{ outcome: Outcome; choices: ChoiceRecord; report: ReturnType<Trainer['session']['report']> }> {
  const before = device.allocator.bytes;
  const trainer = await openTrainer(device, work, options);
  try {
    const outcome = await train(trainer, work);
    // What is kept of the last step may not be below yet.
    await trainer.settle();
    return { outcome, choices: trainer.choices.record(), report: trainer.session.report() };
  } finally {
    await trainer.destroy();
    expect(device.allocator.bytes, 'bytes of GPU memory left behind').toBe(before);
  }
}

/** The same work gave the same bits. */
export function expectSame(found: Outcome, wanted: Outcome, name: string): void {
  expect(found.steps, `${name}: losses and norms`).toEqual(wanted.steps);
  expect(found.evaluations, `${name}: evaluations`).toEqual(wanted.evaluations);
  expect(found.texts, `${name}: texts`).toEqual(wanted.texts);
  const sets = (outcome: Outcome) => [...outcome.between, outcome.parameter, outcome.moment1, outcome.moment2];
  sets(wanted).forEach((values, i) => {
    for (const [tensor, expected] of values) {
      const bits = (array: Float32Array) => new Uint32Array(array.buffer, array.byteOffset, array.length);
      const actual = sets(found)[i]?.get(tensor);
      const [left, right] = [bits(actual ?? new Float32Array()), bits(expected)];
      const isSame = left.length === right.length && left.every((word, j) => word === right[j]);
      if (!isSame) expect.fail(`${name}: ${tensor} of set ${i} differs`);
    }
  });
}
