// Subject of `holdfast plan`, from its flags: the run that `train` would make of the same ones, and the words for it.

import type { ZeroStage } from '../../engine/ranks/sharding.ts';
import type { ExchangeWay } from '../../engine/simulate/machine.ts';
import type { ModelConfig } from '../../formats/config.ts';
import { imagesIn, shapeOf, withLayers } from '../../formats/families/index.ts';
import type { OptimizerDevice } from '../../graph/operators/optimizer.ts';
import { makeModel } from '../../nn/index.ts';
import type { Model } from '../../nn/model.ts';
import { sizeOf } from '../../nn/size.ts';
import type { Host } from '../../runtime/host.ts';
import type { Scenario } from '../../train/plan/prediction-part.ts';
import type { Scaling } from '../../train/plan/scaling.ts';
import { backwardPassesIn, type RunSettings } from '../../train/run/run-settings.ts';
import { type StoredAs, storedAll, storedIn, storedModel } from '../../train/run/stored-model.ts';
import { counted } from '../../util/counted.ts';
import { HoldfastError } from '../../util/errors.ts';
import { DEFAULT_STAGE } from '../rank-flags.ts';
import type { IsGiven, TrainFlags } from '../train/flags.ts';
import { newSettings } from '../train/new-settings.ts';
import { resumeSettings } from '../train/resume-settings.ts';
import { runToResume } from '../train/run-folder.ts';
import type { Listing } from './listings.ts';

export interface PlanFlags extends TrainFlags {
  ranks?: number;
  zero?: ZeroStage;
  hardware?: string[];
  reached?: number;
  copies?: 'serial' | 'duplex';
  exchange?: ExchangeWay;
  scaling?: Scaling;
  sweep?: string;
  compare?: boolean;
  print?: readonly Listing[];
}

/** The model that is planned where no flag says another: GPT-2 124M. */
export const PLANNED_SHAPE = {
  ...{ layers: 12, width: 768, heads: 12, context: 256 },
  vocabulary: 50257,
} as const;

/** Flags of which nothing is left to be found out on a GPU. */
export type BudgetFlags = Omit<PlanFlags, 'gpuMemory'> & { gpuMemory?: number };

/** The run that is planned. */
export interface PlannedRun {
  readonly flags: BudgetFlags;
  /** As `train` makes them of the same flags. */
  readonly settings: RunSettings;
  /** How the files of the model hold what a low-rank update freezes. @default as f32 */
  readonly stored?: StoredAs | undefined;
}

/** Errors: HoldfastError for flags that do not go together, and for files that are missing, damaged or not supported. */
export async function plannedRun(host: Host, { gpuMemory, ...flags }: PlanFlags, given: IsGiven): Promise<PlannedRun> {
  if (gpuMemory === 'auto')
    throw new HoldfastError('--gpu-memory auto: a GPU is asked how much it has, and a plan uses none; give a number');
  const planned = { ...flags, ...(gpuMemory !== undefined && { gpuMemory }) };
  if (flags.resume) {
    const settings = await resumeSettings(host, await runToResume(host, flags), flags, given);
    return { flags: planned, settings, stored: await storedFor(host, settings) };
  }
  const { tokenizer, vocabSize = tokenizer === undefined ? PLANNED_SHAPE.vocabulary : undefined } = flags;
  if (tokenizer !== undefined && flags.vocabSize !== undefined)
    throw new HoldfastError('--vocab-size: is that of the --tokenizer; leave one of them out');
  const asked = { ...flags, ...(vocabSize !== undefined && { vocabSize }) };
  const { settings, storedAs } = await newSettings(host, asked, given, 'planning');
  const said = storedAs && storedAll(makeModel(settings.config), storedAs);
  return { flags: planned, settings, stored: (await storedFor(host, settings)) ?? said };
}

/** By the headers of its model's files, where they are here and matter. */
async function storedFor({ files }: Host, { lora, from, newHead, config }: RunSettings): Promise<StoredAs | undefined> {
  return lora && from !== undefined ? storedIn(files, from, newHead ? config : undefined) : undefined;
}

/** `llama, 2 layers of width 64, vocabulary 256`. */
export function plannedShape(config: ModelConfig): string {
  const { layers, width, vocabulary } = shapeOf(config);
  const images = imagesIn(config);
  const seen = images
    ? `images of ${images.height} x ${images.width} in patches of ${images.patch.join(' x ')}`
    : `vocabulary ${vocabulary}`;
  return `${config.model_type}, ${counted(layers, 'layer')} of width ${width}, ${seen}`;
}

export const plannedName = ({ settings: { config, batch, seq, accumulate } }: PlannedRun): string =>
  `${plannedShape(config)}, batch ${batch} x ${seq}${accumulate > 1 ? ` x ${accumulate}` : ''}`;

/** The model as it would train. Errors: HoldfastError for a shape that makes no model. */
export const plannedModel = ({ settings, stored }: PlannedRun): Model => storedModel(settings, stored);

/** Whether records share rows of a batch. */
export const sharesRows = ({ records }: Pick<RunSettings, 'records'>): boolean => records?.pack === 'yes';

/** Where the optimizer runs. Errors: HoldfastError where that is to be chosen within a budget, which is not what is asked. */
export function oneDevice({ optimizerDevice: device = 'gpu' }: Pick<RunSettings, 'optimizerDevice'>): OptimizerDevice {
  if (device !== 'auto') return device;
  throw new HoldfastError(
    '--optimizer-device auto: is chosen within the budget of one rank, where it runs; give gpu or cpu, of which --hardware says which takes less time',
  );
}

/** What is predicted. Low-rank updates are left out of the size: they are a small part of it. */
export function scenarioOf(run: PlannedRun): Scenario {
  const { flags, settings, stored } = run;
  const { ranks: size, zero: stage = DEFAULT_STAGE, policy, prefetch } = flags;
  const { activations = 'auto', recovery = 'auto', accumulateOrder } = flags;
  const { config, batch, seq: context, accumulate } = settings;
  const passes = backwardPassesIn(settings);
  return {
    ...{ batch, context, accumulate, activations, recovery, accumulateOrder, policy, prefetch, passes },
    ...{
      packed: sharesRows(settings),
      optimizerDevice: oneDevice(settings),
      activationDtype: settings.activationDtype,
    },
    ...(size !== undefined && {
      ranks: {
        size,
        stage,
        tensor: flags.tensorParallel,
        pipeline: flags.pipelineParallel,
        sequenceParallel: flags.sequenceParallel,
      },
      reckonsMicroBatches: true,
      // As every rank trains.
      ...({ recovery: 'checkpoint', accumulateOrder: 'batch' } as const),
    }),
    ...(passes && { recovery: 'checkpoint' as const }),
    layers: shapeOf(config).layers,
    parameters: sizeOf(config).parameters,
    modelOf: (layers) => storedModel({ ...settings, config: withLayers(config, layers) }, stored),
  };
}
