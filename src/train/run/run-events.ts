// Interface of a run: its events, the run that is ready to train, its options and its summary. Types alone: what runs
// is run.ts, on one device run-part.ts.

import type { Tokenizer } from '../../data/tokenizer.ts';
import type { RankStep } from '../../engine/observe/rank-step.ts';
import type { Recording } from '../../engine/observe/recording.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import type { MemoryOptions } from '../../engine/run/arrangement.ts';
import type { Model } from '../../nn/model.ts';
import type { FolderClaim } from '../../runtime/host.ts';
import type { StepMetrics, Trainer } from '../step/trainer.ts';
import type { TrainerCallback } from './callbacks.ts';
import type { MemoryRecord } from './memory-record.ts';
import type { RankRecord } from './rank-record.ts';
import type { RunText } from './run-text.ts';
import type { SavedState } from './saved-state.ts';

/**
 * What happens in a run, told as it happens. A handler that throws, or a callback, an intermission or an observer, ends the run as a
 * signal does: behind the step under way it is saved, and `trainRun` rejects with that error; on other ranks with one that names the
 * rank, and has its message.
 */
export interface RunEvents {
  /** So many bytes of the text are tokens; not told where that takes no time. */
  tokenizing?(done: number, total: number): void;
  /** All is in place for the first step. */
  ready?(run: ReadyRun): void;
  /** A training step is done; `tokensPerSecond` is the mean of the last ones. */
  step?(metrics: StepMetrics & { tokensPerSecond: number }): void;
  /** `accuracy`: of a task, the share of unseen problems that were solved; of a classifier, that of labels told right. */
  validation?(step: number, loss: number, accuracy?: number): void;
  /** Text was written, after so many steps. */
  sample?(step: number, text: string): void;
  /** A checkpoint is whole, in that folder. */
  saved?(path: string): void;
  /** The GPU device was lost, and the run goes on from its last checkpoint, or from its start. */
  lost?(why: string): void;
  /**
   * What was recorded of the last step, where warm-up is over by then, and the same step of other ranks: for `writeTimeline`. Told
   * once all is saved, and waited for. Where it is listened to, that step is recorded.
   */
  lastStep?(recording: Recording, others: readonly RankStep[]): Promise<void> | void;
  /** All is done and saved. Waited for, with the run's folder still taken: so a report can be written there. */
  over?(summary: RunSummary, state: SavedState): Promise<void> | void;
}

/** A run that is about to train. */
export interface ReadyRun {
  /** What is trained. */
  readonly model: Model;
  /** What it learns from. */
  readonly corpus: RunText['corpus'];
  /** In whose tokens it reads and writes. */
  readonly tokenizer: Tokenizer;
  /** What became of records, a line each. */
  readonly notes: readonly string[];
  /** What trains it. Its steps are the run's to start. */
  readonly trainer: Trainer;
  /** From 0; where it was resumed, the steps before it are done. */
  readonly firstStep: number;
  /** Writes a checkpoint of the steps that are done. Errors: HoldfastError outside of an intermission. */
  readonly save: () => Promise<void>;
  /** What it would say of the run. Errors: as `save`. */
  readonly state: () => Promise<SavedState>;
}

/** Time between two steps for other work, which must leave the run's state as it is. */
export interface Intermission {
  /** Asked before each step. */
  readonly wanted: boolean;
  /** Called when it is wanted, with no step under way. The next step starts when it resolves. */
  run(): Promise<void>;
}

/** An observer of steps while they run. */
export interface Observer {
  /** Asked before each step. */
  readonly wanted: boolean;
  /** See StepHooks. */
  recorded(step: number, recording: Recording, arrived: Promise<void>): void;
}

/** A run that is over. */
export interface RunSummary {
  /** Steps done, those before a resume included. */
  steps: number;
  /** Of the last step; nats per token. */
  finalLoss: number;
  /** Of the last validation, nats per token; NaN before the first. */
  validationLoss: number;
  /** Steps that were done at that validation: fewer than `steps` where the run was ended between two. Absent before the first. */
  validationStep?: number;
  /** There for a task, and of a classifier. */
  accuracy?: number;
  /** Of this part of the run, training steps alone. */
  tokensPerSecond: number;
  /** Of the model. */
  parameters: number;
  /** The most GPU memory that was in use at once. */
  peakGpuBytes: number;
  /** Bytes of it for activations, as placed, and the most of them that are alive at once, which no placement could undercut. */
  activations: { readonly arenas: number; readonly alive: number };
  /** Steps that changed nothing: their loss or gradient was not finite. */
  skippedSteps: number;
  /** The adapter's name. */
  adapter: string;
  /** The folder of the last checkpoint. */
  checkpoint: string;
  /** Whether it was ended before its last step, and is to be gone on with. */
  interrupted: boolean;
  /** There where a callback ended it, or early stopping. */
  stopped?: true;
  /** There where the best validation's checkpoint is kept. */
  best?: { readonly step: number; readonly loss: number; readonly checkpoint: string };
  /** There when the run had a GPU budget. */
  memory?: MemoryRecord;
  /** There when several ranks ran it. */
  ranks?: RankRecord;
}

/** What a run is beside its settings: none of it changes a result. */
export interface RunOptions {
  /** Goes on from the latest checkpoint in the run's folder. @default false */
  resume?: boolean;
  /** Ends the run after that many steps of the schedule. */
  until?: number;
  /** Ends it after the step under way. */
  signal?: AbortSignal;
  /** Told of what happens. @default none */
  events?: RunEvents;
  /** Told of what happens, in Hugging Face's events; they may ask for something. @default none */
  callbacks?: readonly TrainerCallback[];
  /** Budgets, tiers and policy: no part of the settings, since they change no result. */
  memory?: MemoryOptions;
  /** Where a run is paused, saved on demand or sampled from. @default none */
  intermission?: Intermission;
  /** @default none */
  observer?: Observer;
  /** That of the settings, where the caller has made it already. @default made of its files */
  tokenizer?: Tokenizer | undefined;
  /** On `out`, where the caller has one already. @default the run takes one, and gives it back */
  claim?: FolderClaim | undefined;
  /** What it learns from, where the caller has read it already. @default it is read */
  text?: RunText | undefined;
  /** The processes that run it together, all with the same settings. Rank 0 alone emits events and writes files. @default none */
  ranks?: Ranks | undefined;
}
