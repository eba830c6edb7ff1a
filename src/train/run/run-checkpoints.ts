// `RunCheckpoints`: the checkpoints that a part of a run writes, and what is in them. Which of the older ones stay is
// `saveCheckpoint`'s.
//
// Invariants: a checkpoint is of the start of the run, or of a step that was not skipped: weights and moments behind skipped
// steps are those from before them, and are saved as that. On ranks, all of them save at the same step, and each gives what
// only it has.

import { withTemplate } from '../../data/records/find-template.ts';
import { checkpointsOf, saveCheckpoint, type Writers } from '../../formats/checkpoint.ts';
import { DEFAULT_ADAPTER } from '../../nn/lora.ts';
import { FolderHeld } from '../../runtime/host.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { restricted } from '../../values/tensor-source.ts';
import { type RunLog, trainerStateFile } from './huggingface-state.ts';
import { writersOf } from './ranks.ts';
import type { Beginning, RunSetting } from './run-beginning.ts';
import type { RunOptions } from './run-events.ts';
import { momentDtypeIn } from './run-settings.ts';
import type { RunHistory, SavedState } from './saved-state.ts';
import { isTrainedIn } from './start-weights.ts';

/** The place of a run before a step: what the step itself moves on, on the host. */
export interface RunPlace {
  /** Steps that were done. */
  readonly step: number;
  /** What the data goes on from. */
  readonly batches: number[];
  /** What samples go on from. */
  readonly sampling: number[];
}

export class RunCheckpoints {
  readonly #setting: RunSetting;
  readonly #ranks: RunOptions['ranks'];
  readonly #beginning: Beginning;
  readonly #log: RunLog;
  /** The folder of the last one that was written here; empty before the first. */
  #last = '';
  #lastStep: number | undefined;

  /** `skips`: the run begins behind skipped steps, in a checkpoint of an earlier version. */
  constructor(setting: RunSetting, ranks: RunOptions['ranks'], beginning: Beginning, log: RunLog, skips: boolean) {
    this.#setting = setting;
    this.#ranks = ranks;
    this.#beginning = beginning;
    this.#log = log;
    if (skips) this.#lastStep = beginning.trainer.step;
  }

  /** The folder of the last one; empty before the first. */
  get last(): string {
    return this.#last || (this.#beginning.checkpoints.at(-1) ?? '');
  }

  /** Whether the last one is of so many steps. */
  has(step: number): boolean {
    return this.#lastStep === step;
  }

  /** The place that the run is at. */
  get place(): RunPlace {
    const { trainer, dataset, sampling } = this.#beginning;
    return { step: trainer.step, batches: dataset.state(), sampling: sampling.state() };
  }

  /**
   * Saves the run as it is, or, behind skipped steps, as it was at the place before them; its folder. Errors: HoldfastError of what could not
   * be written, and what is saved.
   */
  async save(place?: RunPlace): Promise<string> {
    const { host, settings, out, tokenizer } = this.#setting;
    const { trainer } = this.#beginning;
    const { model } = trainer;
    const state = await this.state(place);
    const { step } = state.trainer;
    const adapter = model.adapters?.find(({ name }) => name === DEFAULT_ADAPTER);
    const now = {
      config: settings.config,
      weights: restricted(trainer.values('parameter'), settings.lora ? isTrainedIn(model) : () => true),
      ...(adapter && { adapter: { info: adapter, ...baseOf(settings) } }),
      shapes: new Map(model.parameters.map(({ name, shape }) => [name, shape])),
      moment1: trainer.values('moment1'),
      moment2: trainer.values('moment2'),
      momentsIn: momentDtypeIn(settings),
      state,
      trainerState: trainerStateFile(place ? this.#log.at(state.history) : this.#log.state),
      ...(settings.images && { images: settings.images }),
      ...(tokenizer.files && { tokenizer: withTemplate(tokenizer.files, settings.records?.template) }),
    };
    const best = this.#log.state.best_model_checkpoint ?? undefined;
    const write = (writers?: Writers) =>
      this.#hold(step)
        .then(() => saveCheckpoint(host.files, out, step, now, { best, writers }))
        .catch((error) => Promise.reject(this.#unsaved(error, step)));
    const ranks = this.#ranks;
    // An adapter is one file: rank 0 writes it, the others bring what only they have.
    this.#last =
      ranks && !adapter
        ? await trainer.share(() => write(writersOf(ranks, trainer)))
        : ((await trainer.collect(write)) ?? '');
    this.#lastStep = step;
    return this.#last;
  }

  /** Errors: HoldfastError where the run's folder was moved away or removed, and what is there now is another's. */
  async #hold(step: number): Promise<void> {
    const { host, out, claim } = this.#setting;
    const isSame = (await claim?.hold?.()) ?? true;
    if (!isSame && (await checkpointsOf(host.files, out)).length > 0)
      throw new FolderHeld(
        `${out}: this run's folder was moved away or removed, and another with checkpoints is in its place; step ${step} was not saved`,
      );
  }

  /** An error of files, such as a full disk, with what is left of the run; that of a lost device is told as what it is. */
  #unsaved(error: unknown, step: number): unknown {
    const isOfFiles = error instanceof HoldfastError && error.constructor === HoldfastError;
    if (!isOfFiles || this.#beginning.trainer.device.status !== 'works') return error;
    const rest = this.last ? `resume from ${this.last} once that is mended` : 'nothing of the run is saved yet';
    return new HoldfastError(`${error.message}; step ${step} was not saved: ${rest}`, { cause: error });
  }

  /** What a checkpoint says of the run beside its weights and moments; see `save`. */
  async state(place?: RunPlace): Promise<SavedState> {
    const { trainer, dataset, history, earlier, base, adapter } = this.#beginning;
    const { batches, sampling } = place ?? this.place;
    const { rates } = trainer.session.memory;
    const then = place ? await trainer.unskippedState() : await trainer.state();
    assert(!place || then.step === place.step, 'the place is that before the skipped steps');
    return {
      format: 'holdfast 1',
      settings: this.#setting.settings,
      ...(earlier && { earlier }),
      ...(base !== undefined && { base }),
      corpus: dataset.identity,
      trainer: then,
      batches,
      sampling,
      choices: trainer.choices.record(),
      ...(rates && { rates }),
      adapter,
      history: place ? historyBefore(history, place.step) : history,
    };
  }
}

/** What a run has to show before a step: validations and samples behind the step before are among it. */
function historyBefore({ steps, validations, samples }: RunHistory, before: number): RunHistory {
  return {
    steps: steps.filter(({ step }) => step < before),
    validations: validations.filter(({ step }) => step <= before),
    samples: samples.filter(({ step }) => step <= before),
  };
}

/** The base of a run's adapter, by what others know it by. */
function baseOf({ from, fromHub }: RunSetting['settings']): {
  readonly base: string | undefined;
  readonly revision?: string;
} {
  const [base = from, revision] = fromHub?.split('@') ?? [];
  return { base, ...(revision !== undefined && { revision }) };
}
