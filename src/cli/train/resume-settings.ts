// The settings of a run that goes on: its checkpoint's, but for those that may change. A flag that says otherwise is
// refused, never ignored.

import { DEFAULT_TOKENIZER } from '../../data/tokenizer.ts';
import { shapeOf } from '../../formats/families/index.ts';
import { findTokenizer } from '../../formats/tokenizer-files.ts';
import type { Host } from '../../runtime/host.ts';
import type { RunSettings } from '../../train/run/run-settings.ts';
import { savedSettings } from '../../train/run/saved-state.ts';
import { HoldfastError } from '../../util/errors.ts';
import { localModel, sourceSettings } from '../model-source.ts';
import { BYTES, dashed, type IsGiven, type TrainFlags } from './flags.ts';

/** What may change when a run goes on; everything else is the checkpoint's. */
const CHANGEABLE = [
  'steps',
  'epochs',
  'evalEvery',
  'evalWindows',
  'sampleEvery',
  'sampleTokens',
  'saveEvery',
  'dtype',
  'optimizerState',
  'update',
  'activationDtype',
  'data',
  'earlyStoppingPatience',
  'earlyStoppingThreshold',
  'keepBest',
  'tensorParallel',
  'pipelineParallel',
] as const;

/** Errors: HoldfastError for a flag that the checkpoint contradicts. */
export async function resumeSettings(host: Host, out: string, flags: TrainFlags, given: IsGiven): Promise<RunSettings> {
  const saved = await savedSettings(host, out);
  const { config } = saved;
  const { layers, width, heads, kvHeads } = shapeOf(config);
  const known: Partial<Record<keyof TrainFlags, unknown>> = {
    ...saved,
    tokenizer: flags.tokenizer,
    ...{ model: config.model_type, layers, width, heads, kvHeads },
    context: saved.seq,
    ...loraKnown(saved),
    optimizerDevice: saved.optimizerDevice ?? 'gpu',
    task: saved.task ?? 'no task',
    trainOn: saved.records?.trainOn,
    pack: saved.records?.pack,
    chatTemplate: saved.records?.template?.name,
    validation: saved.validationFile ?? String(saved.validationShare ?? 0.1),
  };
  const { tokenizer = DEFAULT_TOKENIZER } = saved;
  if (flags.tokenizer !== undefined) {
    const bytes = flags.tokenizer === BYTES;
    const same = bytes
      ? tokenizer.kind === 'byte'
      : tokenizer.kind === 'huggingface' &&
        tokenizer.sha256 === (await findTokenizer(host.files, flags.tokenizer)).sha256;
    const made = tokenizer.kind === 'byte' ? BYTES : `another one (${tokenizer.path} at that time)`;
    if (!same)
      throw new HoldfastError(
        `--tokenizer ${flags.tokenizer}: the checkpoint in ${out} was made with ${made}; leave the flag out, or start another run`,
      );
  }
  if (saved.task && given('data')) {
    throw new HoldfastError(`--data: the checkpoint in ${out} was made with --task ${saved.task}; leave the flag out`);
  }
  for (const name of Object.keys(flags) as (keyof TrainFlags)[]) {
    if (!given(name) || !Object.hasOwn(known, name) || (CHANGEABLE as readonly string[]).includes(name)) continue;
    // Where the base lies now; whether it is the same is checked when it is read.
    if (name === 'model' && (saved.lora || flags.model === saved.from)) continue;
    if (flags[name] !== known[name]) {
      throw new HoldfastError(
        `--${dashed(name)} ${flags[name]}: the checkpoint in ${out} was made with ${known[name] ?? 'none'}; leave the flag out, or start another run`,
      );
    }
  }
  const changes = Object.fromEntries(CHANGEABLE.filter(given).map((name) => [name, flags[name]]));
  const { epochs: _, ...rest } = saved;
  const base = saved.lora && given('model') && sourceSettings(host, await localModel(host, flags.model), flags.model);
  // As of a new run.
  const keepBest = given('earlyStoppingPatience') && { keepBest: true };
  return { ...(given('steps') ? rest : saved), ...keepBest, ...changes, ...base };
}

const loraKnown = ({ lora }: RunSettings): Partial<Record<keyof TrainFlags, unknown>> => ({
  loraRank: lora?.rank ?? 'no low-rank update',
  loraAlpha: lora?.alpha ?? 'no low-rank update',
  loraTargets: lora?.targets.join(',') ?? 'no low-rank update',
  loraDropout: lora?.dropout ?? 'no low-rank update',
  loraRslora: lora?.rslora ?? 'no low-rank update',
  loraFrom: lora?.adapter ?? 'no adapter to go on from',
  baseDtype: lora ? (lora.baseDtype ?? 'auto') : 'no low-rank update',
});
