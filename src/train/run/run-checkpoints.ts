// `RunCheckpoints`: the checkpoints that a part of a run writes, and what is in them. Which of the older ones stay is
// `saveCheckpoint`'s, by what is said here: the best validation's, and the last of a step that was not skipped.
//
// Invariant: on ranks, all of them save at the same step, and each gives what only it has.

import { withTemplate } from '../../data/records/find-template.ts';
import { saveCheckpoint, type Writers } from '../../formats/checkpoint.ts';
import { DEFAULT_ADAPTER } from '../../nn/lora.ts';
import { restricted } from '../../values/tensor-source.ts';
import type { RunLog } from './huggingface-state.ts';
import { writersOf } from './ranks.ts';
import type { Beginning, RunSetting } from './run-beginning.ts';
import type { RunOptions } from './run-events.ts';
import { momentDtypeIn } from './run-settings.ts';
import type { SavedState } from './saved-state.ts';
import { isTrainedIn } from './start-weights.ts';

export class RunCheckpoints {
  readonly #setting: RunSetting;
  readonly #ranks: RunOptions['ranks'];
  readonly #beginning: Beginning;
  readonly #log: RunLog;
  /** The folder of the last one; empty before the first. */
  #last = '';
  #lastStep: number | undefined;
  /** The one of a step that was not skipped: later ones do not take its place until one more is there. */
  #lastGood: string | undefined;

  /** `skips`: whether the run begins behind steps that were skipped. */
  constructor(setting: RunSetting, ranks: RunOptions['ranks'], beginning: Beginning, log: RunLog, skips: boolean) {
    this.#setting = setting;
    this.#ranks = ranks;
    this.#beginning = beginning;
    this.#log = log;
    this.#lastGood = beginning.checkpoints.at(skips ? -2 : -1);
  }

  /** The folder of the last one that was written here; empty before the first. */
  get last(): string {
    return this.#last;
  }

  /** Whether the step that the trainer is at was saved here. */
  get isSaved(): boolean {
    return this.#lastStep === this.#beginning.trainer.step;
  }

  /** Saves the run as it is; its folder. `isGood`: the last step was not skipped. */
  async save(isGood: boolean): Promise<string> {
    const { host, settings, out, tokenizer } = this.#setting;
    const { trainer } = this.#beginning;
    const { model, step } = trainer;
    const adapter = model.adapters?.find(({ name }) => name === DEFAULT_ADAPTER);
    const now = {
      config: settings.config,
      weights: restricted(trainer.values('parameter'), settings.lora ? isTrainedIn(model) : () => true),
      ...(adapter && { adapter: { info: adapter, ...baseOf(settings) } }),
      shapes: new Map(model.parameters.map(({ name, shape }) => [name, shape])),
      moment1: trainer.values('moment1'),
      moment2: trainer.values('moment2'),
      momentsIn: momentDtypeIn(settings),
      state: { ...(await this.state()), ...this.#log.state },
      ...(settings.images && { images: settings.images }),
      ...(tokenizer.files && { tokenizer: withTemplate(tokenizer.files, settings.records?.template) }),
    };
    const best = this.#log.state.best_model_checkpoint ?? undefined;
    const kept = { beside: this.#lastGood, best };
    const write = (writers?: Writers) => saveCheckpoint(host.files, out, step, now, { ...kept, writers });
    const ranks = this.#ranks;
    // An adapter is one file: rank 0 writes it, the others bring what only they have.
    this.#last =
      ranks && !adapter
        ? await trainer.share(() => write(writersOf(ranks, trainer)))
        : ((await trainer.collect(write)) ?? '');
    if (isGood) this.#lastGood = this.#last;
    this.#lastStep = step;
    return this.#last;
  }

  /** What a checkpoint says of the run beside its weights and moments. */
  async state(): Promise<SavedState> {
    const { trainer, dataset, sampling, history, earlier, base, adapter } = this.#beginning;
    return {
      format: 'holdfast 1',
      settings: this.#setting.settings,
      ...(earlier && { earlier }),
      ...(base !== undefined && { base }),
      corpus: dataset.identity,
      trainer: await trainer.state(),
      batches: dataset.state(),
      sampling: sampling.state(),
      choices: trainer.choices.record(),
      adapter,
      history,
    };
  }
}

/** The base of a run's adapter, by what others know it by. */
function baseOf({ from, fromHub }: RunSetting['settings']): {
  readonly base: string | undefined;
  readonly revision?: string;
} {
  const [base = from, revision] = fromHub?.split('@') ?? [];
  return { base, ...(revision !== undefined && { revision }) };
}
