// The state of a run in the fields of Hugging Face's TrainerState, for callbacks, and as trainer_state.json for tools that plot
// a run. No run goes on from it: it is made of the history and the settings, event by event.
//
// Invariants: the log of a run that was resumed is that of one that was not. Each field of the file is one of TrainerState, in
// version 4.40 of Transformers and in all since: a field that is not known there is an error.

import { checkpointPath } from '../../formats/checkpoint.ts';
import type { Epochs } from './epochs.ts';
import { microBatchesOf } from './ranks.ts';
import type { RunSettings } from './run-settings.ts';
import { isSkipped, type RunHistory, type Validation } from './saved-state.ts';

/** An entry of `log_history`: of some steps, or of a validation. */
export interface LogEntry {
  /** Passes over the data. */
  readonly epoch: number;
  /** Steps done. */
  readonly step: number;
  /** Mean of the steps since the last entry, in nats per token; NaN where none is finite. */
  readonly loss?: number;
  /** Of the last of them, before clipping. */
  readonly grad_norm?: number;
  /** Of the last of them. */
  readonly learning_rate?: number;
  /** Of a validation: nats per token. */
  readonly eval_loss?: number;
  /** Of the validation of a task: the share of unseen problems that were solved. */
  readonly eval_accuracy?: number;
}

/** The fields of Hugging Face's TrainerState that say something here; the others are as it begins with. */
export interface HuggingFaceState {
  /** The step of the best validation. */
  best_global_step: number | null;
  /** Its loss. */
  best_metric: number | null;
  /** The checkpoint with its weights, where it is kept: of that step, or of the one before the steps that were skipped up to it. */
  best_model_checkpoint: string | null;
  /** Passes over the data that are done. */
  epoch: number;
  /** Steps between validations. */
  readonly eval_steps: number;
  /** Steps that are done. */
  global_step: number;
  /** There is no search. */
  readonly is_hyper_param_search: false;
  /** There is one process. */
  readonly is_local_process_zero: true;
  /** There is one process. */
  readonly is_world_process_zero: true;
  /** In order. */
  readonly log_history: LogEntry[];
  /** Steps between the entries of training in the log. */
  readonly logging_steps: number;
  /** Steps of the whole run. */
  readonly max_steps: number;
  /** Places in sequences, those that are filled up too. */
  num_input_tokens_seen: number;
  /** Passes over the data of the whole run, rounded up. */
  readonly num_train_epochs: number;
  /** Steps between checkpoints. */
  readonly save_steps: number;
  /** Callbacks keep no state here: see EarlyStopping. */
  readonly stateful_callbacks: Readonly<Record<string, never>>;
  /** Not counted. */
  readonly total_flos: 0;
  /** Sequences in a micro-batch. */
  readonly train_batch_size: number;
  /** There is no search. */
  readonly trial_name: null;
  /** There is no search. */
  readonly trial_params: null;
}

/** What the file has: version 4.40 knows neither the step of the best validation nor the state of callbacks. */
export function trainerStateFile(
  state: HuggingFaceState,
): Omit<HuggingFaceState, 'best_global_step' | 'stateful_callbacks'> {
  const { best_global_step: _, stateful_callbacks: __, ...fields } = state;
  return fields;
}

type StepRecord = RunHistory['steps'][number];

/** Entries of training in a log, about: a curve shows no more. */
const MOST_ENTRIES = 1000;

/** A run's state as it changes. */
export class RunLog {
  readonly state: HuggingFaceState;
  readonly #settings: RunSettings;
  readonly #epochs: Epochs;
  readonly #out: string;
  /** Checkpoints that are there, or are about to be. */
  readonly #kept: string[] = [];
  /** Steps done when the last one was not skipped. */
  #unskipped = 0;
  /** Finite losses since the last entry. */
  #losses: number[] = [];

  /** As after what is in `history`. `out`: the run's folder. `kept`: the checkpoints that are in it. */
  constructor(settings: RunSettings, epochs: Epochs, out: string, history: RunHistory, kept: readonly string[] = []) {
    const { steps, evalEvery, saveEvery, batch } = settings;
    this.#settings = settings;
    this.#epochs = epochs;
    this.#out = out;
    this.state = {
      ...{ best_global_step: null, best_metric: null, best_model_checkpoint: null },
      ...{ epoch: 0, eval_steps: evalEvery, global_step: 0 },
      ...{ is_hyper_param_search: false, is_local_process_zero: true, is_world_process_zero: true },
      ...{
        log_history: [],
        logging_steps: Math.ceil(steps / MOST_ENTRIES),
        max_steps: steps,
        num_input_tokens_seen: 0,
      },
      ...{
        num_train_epochs: settings.epochs ?? Math.ceil(epochs.about(steps)),
        save_steps: saveEvery,
        stateful_callbacks: {},
      },
      ...{ total_flos: 0, train_batch_size: batch, trial_name: null, trial_params: null },
    };
    let validated = 0;
    const { validations } = history;
    const validatedUpTo = (step: number) => {
      for (let next = validations[validated]; next && next.step <= step; next = validations[++validated])
        this.evaluated(next);
    };
    for (const record of history.steps) {
      validatedUpTo(record.step);
      this.stepped(record);
    }
    validatedUpTo(Number.POSITIVE_INFINITY);
    const { best_model_checkpoint: best } = this.state;
    // It may have gone while best ones were not kept.
    if (best !== null && !kept.includes(best)) this.state.best_model_checkpoint = null;
    this.#kept = [...kept];
  }

  /** What it was when `history` was all. */
  at(history: RunHistory): HuggingFaceState {
    return new RunLog(this.#settings, this.#epochs, this.#out, history, this.#kept).state;
  }

  /** A step is done. The entry that it ends. */
  stepped({ step, loss, lr, gradNorm }: StepRecord): LogEntry | undefined {
    const { state } = this;
    const { batch, seq } = this.#settings;
    state.global_step = step + 1;
    state.epoch = this.#epochs.after(step + 1);
    state.num_input_tokens_seen = (step + 1) * batch * seq * microBatchesOf(this.#settings);
    if (Number.isFinite(loss)) this.#losses.push(loss);
    if (!isSkipped({ loss, gradNorm })) this.#unskipped = step + 1;
    if (state.global_step % state.logging_steps !== 0) return undefined;
    const { length } = this.#losses;
    const mean = length > 0 ? this.#losses.reduce((a, b) => a + b, 0) / length : Number.NaN;
    this.#losses = [];
    return this.#add({ loss: mean, grad_norm: gradNorm, learning_rate: lr });
  }

  /** A validation is done. */
  evaluated({ step, loss, accuracy }: Validation): { readonly entry: LogEntry; readonly isBest: boolean } {
    const { state } = this;
    const isBest = Number.isFinite(loss) && (state.best_metric === null || loss < state.best_metric);
    if (isBest) {
      state.best_metric = loss;
      state.best_global_step = step;
      if (this.#settings.keepBest) {
        state.best_model_checkpoint = checkpointPath(this.#out, this.#unskipped);
        this.#kept.push(state.best_model_checkpoint);
      }
    }
    const entry = this.#add({ eval_loss: loss, ...(accuracy !== undefined && { eval_accuracy: accuracy }) });
    return { entry, isBest };
  }

  #add(figures: Omit<LogEntry, 'epoch' | 'step'>): LogEntry {
    const { epoch, global_step: step, log_history } = this.state;
    const entry = { epoch, ...figures, step };
    log_history.push(entry);
    return entry;
  }
}
