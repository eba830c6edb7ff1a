// Beginning of a part of a run: a trainer, data and a history, as a run begins or as its last checkpoint has them.
// Invariant: after a checkpoint the next step is the one that would have followed it, to the bit.

import type { Dataset } from '../../data/dataset.ts';
import type { Tokenizer } from '../../data/tokenizer.ts';
import { loadChoices, saveChoices } from '../../engine/compile/choices.ts';
import { ratesOn } from '../../engine/observe/adapter-records.ts';
import { checkpointsOf, loadCheckpoint } from '../../formats/checkpoint.ts';
import { differenceOf, parseConfig } from '../../formats/config.ts';
import type { Device } from '../../gpu/device.ts';
import { unlikeRanks } from '../../nn/tensor-parallel.ts';
import type { FolderClaim, Host } from '../../runtime/host.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { Random } from '../../util/random.ts';
import { joined, restricted } from '../../values/tensor-source.ts';
import { writesText } from '../step/rank-part.ts';
import { Trainer } from '../step/trainer.ts';
import { checkBase, SummedSource } from './base-identity.ts';
import { beginningFacts, checkAlike, createOnRanks, type FirstChoices, layoutFacts } from './ranks.ts';
import type { RunOptions } from './run-events.ts';
import { generates, modelOf, type RunSettings, trainerOptions } from './run-settings.ts';
import { checkText, datasetOf, type RunText } from './run-text.ts';
import { type RunHistory, ratesIn, type SavedState, stateOf, withSettings } from './saved-state.ts';
import { checkTrained, isTrainedIn, startWeights } from './start-weights.ts';

/** What is the same in all parts of a run. */
export interface RunSetting {
  readonly host: Host;
  readonly settings: RunSettings;
  readonly out: string;
  readonly text: RunText;
  readonly tokenizer: Tokenizer;
  /** On `out`, where this process has one. */
  readonly claim?: FolderClaim | undefined;
}

/** `setting` with what it leaves to the trainer, as that has chosen it: another part, and a run that goes on, keep it. */
export function settled(setting: RunSetting, { options: { optimizerSplit } }: Trainer): RunSetting {
  return optimizerSplit === undefined ? setting : { ...setting, settings: { ...setting.settings, optimizerSplit } };
}

/** What a part begins with: of the start of the run, or of its last checkpoint. */
export interface Beginning {
  readonly trainer: Trainer;
  readonly dataset: Dataset;
  readonly sampling: Random;
  readonly history: RunHistory;
  readonly earlier: SavedState['earlier'];
  /** The identity of the weights below an adapter. */
  readonly base: string | undefined;
  readonly adapter: string;
  /** The folders of its checkpoints, the oldest first. */
  readonly checkpoints: readonly string[];
}

/** A trainer and data as they were when the checkpoint was saved, or as a run begins. */
export async function begin(
  { host, settings, out, text }: RunSetting,
  device: Device,
  { resume = false, until, memory = {}, ranks, signal }: RunOptions,
  made: (trainer: Trainer) => void,
): Promise<Beginning> {
  const { files } = host;
  const { from, lora } = settings;
  const checkpoint = resume ? await loadCheckpoint(files, out) : undefined;
  const saved = checkpoint && stateOf(checkpoint);
  if (ranks) await checkAlike(ranks, await beginningFacts(host, saved, until, checkpoint?.sums));
  if (saved) checkModel(settings, saved, out);
  if (saved) await checkText(text, saved.corpus, out);
  const dataset = await datasetOf(settings, text);

  const alone = modelOf(settings);
  if (checkpoint) checkTrained(checkpoint, alone);
  const choices = saved?.choices ?? (await loadChoices(host, device));
  const start = lora || !checkpoint ? await startWeights(host, settings, alone, checkpoint?.weights) : undefined;
  const { model } = start ?? { model: alone };
  const create = async (first?: FirstChoices): Promise<Trainer> => {
    const options = trainerOptions(settings);
    const measuresHost = options.optimizerDevice === 'auto' && options.optimizerSplit === undefined;
    const own = async () =>
      memory.rates ?? (saved && ratesIn(saved, device)) ?? (await ratesOn(host, device, memory, measuresHost));
    const rates = first ? first.rates : await own();
    // Of a software adapter two measurements differ more than its plans do.
    const adapts = memory.adapts ?? (memory.rates === undefined && !device.adapter.software);
    const created = await Trainer.create(device, model, {
      ...options,
      choices: first?.choices ?? choices,
      memory: { ...memory, ...(rates && { rates }), ...(adapts && { adapts }) },
      generates: generates(settings) && (ranks === undefined || writesText(ranks, settings.task)),
      threads: host.threads,
      // Others would wait for a rank that ends.
      ...(!ranks && { signal }),
      ...(ranks && { ranks: { ...ranks, chunkBytes: first?.chunkBytes } }),
    });
    made(created);
    return created;
  };
  const makeTrainer = async () => {
    const trainer = ranks
      ? await createOnRanks(ranks, unlikeRanks(model, ranks.grid.tensor.size), create)
      : await create();
    if (ranks) await checkAlike(ranks, await layoutFacts(host, trainer), true);
    if (checkpoint && saved) {
      if (!lora) await trainer.setWeights(checkpoint.weights);
      await trainer.setValues('moment1', checkpoint.moment1);
      await trainer.setValues('moment2', checkpoint.moment2);
      trainer.restore(saved.trainer);
      dataset.restore(saved.batches);
    }
    if (!start) return { trainer, base: undefined };
    const { weights } = start;
    // Those that are drawn follow the seed.
    const isCompared = ranks !== undefined && from !== undefined;
    const compared = isCompared ? new SummedSource(restricted(weights, isTrainedIn(model)), files) : undefined;
    await trainer.setWeights(compared ? joined(compared, weights) : weights);
    if (ranks && compared) await checkAlike(ranks, { 'the weights to start from': await compared.sum() });
    const base = await start.base();
    if (base !== undefined) {
      if (ranks) await checkAlike(ranks, { 'the weights below the adapter': base });
      checkBase(base, saved?.base, from ?? '', out);
    }
    return { trainer, base };
  };
  const { trainer, base } = await finishing(makeTrainer, () => start?.release());
  const isFirst = ranks === undefined || ranks.rank === 0;
  if (isFirst && trainer.choices.measured > 0) await saveChoices(host, device, trainer.choices.record());
  const sampling = new Random(settings.seed, 'samples');
  if (saved) sampling.restore(saved.sampling);
  return {
    trainer,
    dataset,
    sampling,
    history: saved?.history ?? { steps: [], validations: [], samples: [] },
    earlier: saved && withSettings(saved, settings).earlier,
    base,
    adapter: device.adapter.name,
    checkpoints: resume ? (await checkpointsOf(files, out)).map(({ path }) => path) : [],
  };
}

/** Errors: HoldfastError where the settings are of another model than the checkpoint: tensors of one shape may be either's. */
function checkModel({ config }: RunSettings, { settings }: SavedState, out: string): void {
  const difference = differenceOf(parseConfig(config, 'the settings: config'), settings.config);
  if (!difference) return;
  const { name, one, other } = difference;
  throw new HoldfastError(
    `${out}: in the settings, config.${name} is ${one}; in the checkpoint's, it is ${other}; resume with its own config, or start another run`,
  );
}
