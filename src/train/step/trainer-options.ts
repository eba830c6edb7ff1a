// The options of a trainer, and what of them does not go together.

import type { ChoiceRecord } from '../../engine/compile/choices.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import { checkMemory, type MemoryOptions } from '../../engine/run/arrangement.ts';
import { ACTIVATION_DTYPES, type ActivationCoins, type ActivationDtype } from '../../graph/narrow-activations.ts';
import {
  OPTIMIZER_DEVICE_CHOICES,
  type OptimizerDeviceChoice,
  UPDATES,
  type Update,
} from '../../graph/operators/optimizer.ts';
import type { Model } from '../../nn/model.ts';
import type { Threads } from '../../runtime/host.ts';
import { abortSignal, withoutUndefined } from '../../util/arguments.ts';
import { HoldfastError, Stopped } from '../../util/errors.ts';
import { anything, check, closed, number, object, oneOf, optional, truth } from '../../util/json.ts';
import { type Range, realNumber, wholeNumber } from '../../util/range.ts';
import { trainedTensors } from './optimizer-split.ts';
import { checkSchedule, type LearningRateSchedule } from './schedule.ts';
import { checkBatch } from './step-programs.ts';

/** AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), and clipping. */
export interface AdamWOptions {
  /** Decay of the first moment. @default 0.9 */
  beta1: number;
  /** Decay of the second moment. @default 0.95 */
  beta2: number;
  /** Added to the root of the second moment. @default 1e-8 */
  epsilon: number;
  /** Of tensors with two dimensions; the others never decay. */
  weightDecay: number;
  /** Gradients are scaled down to this global norm; 0: never. */
  clip: number;
}

/** What an optimizer is without further words. */
export const ADAMW_DEFAULTS: AdamWOptions = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 };

/** What the numbers of a trainer may be, and those of a run that makes it. */
export const TRAINER_RANGES = {
  batch: wholeNumber(1),
  seq: wholeNumber(1),
  accumulate: wholeNumber(1),
  seed: wholeNumber(0),
  clip: realNumber(0),
  weightDecay: realNumber(0),
} as const satisfies Record<string, Range>;

/** Of a moment: at 1 it would never learn of a gradient. */
const decay = optional(number(realNumber(0, 1 - 2 ** -24)));
const { batch, seq, accumulate, seed, clip, weightDecay } = TRAINER_RANGES;
const optimizerOptions = closed<Partial<AdamWOptions>>({
  beta1: decay,
  beta2: decay,
  epsilon: optional(number(realNumber(0))),
  weightDecay: optional(number(weightDecay)),
  clip: optional(number(clip)),
});

/** How a trainer trains. */
export interface TrainerOptions {
  /** Sequences in a micro-batch. */
  batch: number;
  /** Tokens in a sequence. */
  seq: number;
  /** Whether a sequence holds several documents, which do not see each other: batches have `documents`. @default false */
  packed?: boolean;
  /** Micro-batches in a step. @default 1 */
  accumulate?: number;
  /** Of what is random in a step: dropout, and how moments in bf16 are rounded, where the model has them. @default 1 */
  seed?: number;
  /** The learning rate of each step. */
  schedule: LearningRateSchedule;
  /** @default ADAMW_DEFAULTS */
  optimizer?: Partial<AdamWOptions>;
  /**
   * Where AdamW runs. `cpu`: on the host, below the GPU, so that gradients go down, parameters come up, and the moments never
   * visit the GPU; the two agree to 1 ulp a step. `auto`: within a budget some tensors on each, as a step takes the least time by
   * the bandwidths that are measured when the trainer is made. @default 'gpu'
   */
  optimizerDevice?: OptimizerDeviceChoice;
  /**
   * Of `auto`: how many of the tensors that train the GPU updates, the first ones; 2.5: two, and half of the rows of the third. A
   * trainer that goes on where another one was takes that one's `options.optimizerSplit`: it is a part of the arithmetic.
   * @default chosen
   */
  optimizerSplit?: number | undefined;
  /** What activations are kept as for the backward pass, and read as from there on; evaluations have f32. @default 'f32' */
  activationDtype?: ActivationDtype;
  /** What activations are moved by in f32, to see what rounding them may do. @default nothing @internal */
  activationCoins?: ActivationCoins | undefined;
  /**
   * When a chunk is updated: behind all gradients, or as soon as its own is complete (`in-backward`), which holds no list of
   * them, and clips, and in f16 finds overflows, with a second backward pass; the same bits. A gradient that is not finite then
   * ends the training where there is one pass. @default 'at-end'
   */
  update?: Update;
  /**
   * Kernel choices to start from: a checkpoint's, or the cache's. What they lack is measured, and two measurements
   * may differ: runs that must repeat bit for bit pass the first one's `trainer.choices.record()` on.
   * @default none
   */
  choices?: ChoiceRecord;
  /** Budgets, tiers and policy. @default all model data stays on the GPU */
  memory?: MemoryOptions;
  /**
   * The processes that train together with this one: along the data axis of their grid each takes every `size`-th micro-batch
   * of a step, and all have the same weights; along its tensor axis each has a part of every layer. `chunkBytes`: as the trainer of rank 0 has it (`session.map`). @default none, and no MPI
   */
  ranks?: Ranks & { readonly chunkBytes?: number | undefined };
  /** Those of the host, `host.threads`: an optimizer on the host computes in them. @default it computes in this thread */
  threads?: Threads | undefined;
  /** Ends the making of the trainer: `Trainer.create` rejects with Stopped. @default nothing does */
  signal?: AbortSignal | undefined;
  /** Whether `generator` will write text between steps: its memory belongs to the budget. @default false */
  generates?: boolean;
}

const trainerOptions = closed<TrainerOptions>({
  batch: number(batch),
  seq: number(seq),
  packed: optional(truth),
  accumulate: optional(number(accumulate)),
  seed: optional(number(seed)),
  schedule: object({}),
  optimizer: optional(optimizerOptions),
  optimizerDevice: optional(oneOf(OPTIMIZER_DEVICE_CHOICES)),
  optimizerSplit: anything,
  activationDtype: optional(oneOf(ACTIVATION_DTYPES)),
  activationCoins: optional(object({})),
  update: optional(oneOf(UPDATES)),
  choices: anything,
  memory: anything,
  ranks: optional(object({})),
  threads: optional(object({})),
  signal: optional(abortSignal),
  generates: optional(truth),
});

/** With defaults filled in. */
export type FullOptions = Readonly<
  Required<Omit<TrainerOptions, NotFilledIn>> & {
    optimizer: AdamWOptions;
    optimizerSplit: number | undefined;
  }
>;

type NotFilledIn =
  | ('optimizer' | 'optimizerSplit' | 'activationCoins' | 'choices' | 'memory')
  | ('generates' | 'threads' | 'ranks' | 'signal');

/** The options of the arithmetic, defaults filled in. */
export function filledIn({
  optimizer,
  ...given
}: Omit<TrainerOptions, Exclude<NotFilledIn, 'optimizer'>>): Omit<FullOptions, 'optimizerSplit'> {
  const ways = { optimizerDevice: 'gpu', activationDtype: 'f32', update: 'at-end' } as const;
  const filled = { accumulate: 1, packed: false, seed: 1, ...ways, ...withoutUndefined(given) };
  return { ...filled, optimizer: { ...ADAMW_DEFAULTS, ...withoutUndefined(optimizer ?? {}) } };
}

/**
 * Errors: HoldfastError naming an option that is out of its range, and for what does not go with this model, or with each other;
 * Stopped where the signal says so.
 */
export function checkOptions(model: Model, options: TrainerOptions): void {
  check(trainerOptions, options, 'the trainer options');
  const { schedule, batch, seq, ranks, optimizerDevice, optimizerSplit, update, memory, signal } = options;
  if (signal?.aborted) throw new Stopped('stopped before the trainer was made, and the first step; start again');
  const isInBackward = update === 'in-backward';
  checkSchedule(schedule);
  checkBatch(model, batch, seq);
  if (memory) checkMemory(memory);
  if (ranks && isInBackward)
    throw new HoldfastError(
      "the update in the backward pass: several ranks reduce the gradients of all chunks first; update 'at-end', or use one rank",
    );
  if (!ranks && optimizerDevice === 'cpu' && memory?.recovery === 'checkpoint')
    throw new HoldfastError(
      "recovery 'checkpoint': with the optimizer on the host (cpu) the state of every step lies below the GPU anyway; leave it out",
    );
  if (ranks && optimizerDevice === 'auto')
    throw new HoldfastError(
      "the optimizer on either device ('auto'): several ranks would each choose, by what they measure; let it be 'gpu' or 'cpu' on all",
    );
  if (optimizerSplit === undefined) return;
  if (optimizerDevice !== 'auto')
    throw new HoldfastError("optimizerSplit: is of the optimizer on either device; let optimizerDevice be 'auto'");
  const trained = trainedTensors(model).length;
  if (!(optimizerSplit >= 0 && optimizerSplit <= trained))
    throw new HoldfastError(
      `optimizerSplit ${optimizerSplit}: it must be 0 or more, and ${trained} tensors train in this model`,
    );
}

/** Its memory, as what trains in it allows. */
export function memoryOf({ memory = {}, ranks, update }: TrainerOptions): MemoryOptions {
  // A step that is done again would ask the others for what they gave already, and gradients must be complete in one order.
  if (ranks) return { ...memory, recovery: 'checkpoint', accumulateOrder: 'batch' };
  return update === 'in-backward' ? { ...memory, recovery: 'checkpoint' } : memory;
}
