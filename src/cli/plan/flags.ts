// Subject of `holdfast plan`, from its flags: the model as it would train, and the words for it.

import type { ZeroStage } from '../../engine/ranks/sharding.ts';
import type { ExchangeWay } from '../../engine/simulate/machine.ts';
import type { ModelConfig } from '../../formats/config.ts';
import { DEFAULT_IMAGES } from '../../formats/families/family.ts';
import { FAMILIES, type FamilyName, shapeOf } from '../../formats/families/index.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { ActivationDtype } from '../../graph/narrow-activations.ts';
import {
  type BackwardPasses,
  backwardPassesOf,
  type OptimizerDevice,
  type OptimizerDeviceChoice,
  type Update,
} from '../../graph/operators/optimizer.ts';
import type { MadeElement } from '../../kernels/stored.ts';
import type { MomentDtype, TrainingDtype } from '../../memory/layout/kinds.ts';
import { makeModel } from '../../nn/index.ts';
import { withLora } from '../../nn/lora.ts';
import { computedIn, type Model, momentsIn, withStored } from '../../nn/model.ts';
import { sizeOf } from '../../nn/size.ts';
import type { Scenario } from '../../train/plan/prediction-part.ts';
import type { Scaling } from '../../train/plan/scaling.ts';
import { baseStorage } from '../../train/run/base-dtype.ts';
import { generates } from '../../train/run/run-settings.ts';
import { ADAMW_DEFAULTS } from '../../train/step/trainer-options.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { TierFlags } from '../memory-flags.ts';
import { checkInputFlags, configFromFlags, imagesInPatches } from '../model-flags.ts';
import { DEFAULT_STAGE } from '../rank-flags.ts';
import type { Listing } from './listings.ts';

export interface PlanFlags extends TierFlags {
  model: FamilyName;
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  /** Tokens of a sequence, or an image's patches and the row in front of them. */
  context: number;
  patch?: number;
  batch: number;
  accumulate: number;
  sampleTokens: number;
  vocabSize: number;
  gpuMemory?: number;
  loraRank?: number;
  loraTargets?: string;
  baseDtype?: MadeElement;
  dtype: TrainingDtype;
  optimizerState: MomentDtype;
  activationDtype: ActivationDtype;
  recovery: 'step' | 'checkpoint';
  activations: ActivationMode | 'auto';
  optimizerDevice: OptimizerDeviceChoice;
  update: Update;
  clip?: number;
  accumulateOrder: AccumulateOrder | 'auto';
  ranks?: number;
  zero?: ZeroStage;
  tensorParallel?: number;
  pipelineParallel?: number;
  sequenceParallel?: boolean;
  hardware?: string[];
  reached?: number;
  copies?: 'serial' | 'duplex';
  exchange?: ExchangeWay;
  scaling?: Scaling;
  sweep?: string;
  compare?: boolean;
  print?: readonly Listing[];
  json?: boolean;
}

/** `llama, 2 layers of width 64, vocabulary 256`. */
export function plannedShape({ model, layers, width, vocabSize, patch = DEFAULT_IMAGES.patch }: PlanFlags): string {
  const { image } = DEFAULT_IMAGES;
  const seen = `images of ${image} x ${image} in patches of ${patch} x ${patch}`;
  return `${model}, ${layers} layers of width ${width}, ${FAMILIES[model].images ? seen : `vocabulary ${vocabSize}`}`;
}

export const plannedName = (flags: PlanFlags): string =>
  `${plannedShape(flags)}, batch ${flags.batch} x ${flags.context}${flags.accumulate > 1 ? ` x ${flags.accumulate}` : ''}`;

/** The model that `train` makes of the same flags, of so many blocks. */
export function configOf({ patch, ...flags }: PlanFlags, layers: number): ModelConfig {
  const { image, channels, classes } = DEFAULT_IMAGES;
  const size = { height: image, width: image, channels };
  const seesImages = FAMILIES[flags.model].images !== undefined;
  return configFromFlags({
    ...{ ...flags, layers },
    ...(seesImages && { images: imagesInPatches(size, classes, undefined, patch) }),
  });
}

/** The flags with the length of what the model sees. Errors: HoldfastError for flags of text beside images, and the reverse. */
export function withLength(flags: PlanFlags, given: (name: 'context' | 'patch' | 'vocabSize') => boolean): PlanFlags {
  const seesImages = FAMILIES[flags.model].images !== undefined;
  checkInputFlags(seesImages, given);
  if (!seesImages) return flags;
  if (given('vocabSize')) throw new HoldfastError('--vocab-size: images have no tokens; leave the flag out');
  return { ...flags, context: shapeOf(configOf(flags, 1)).context };
}

/** The model of the flags with `layers` blocks, as it would train. Errors: HoldfastError for flags that do not go together. */
export function plannedModel(flags: PlanFlags, layers: number): Model {
  const { loraRank: rank, loraTargets, baseDtype, dtype, optimizerState } = flags;
  const trained = (model: Model) => momentsIn(computedIn(model, dtype), optimizerState);
  const targets = loraTargets?.split(',');
  const base = makeModel(configOf(flags, layers));
  if (rank === undefined) {
    const flag = targets ? 'lora-targets' : baseDtype && 'base-dtype';
    if (flag) throw new HoldfastError(`--${flag}: is of a low-rank update; give --lora-rank, too`);
    return trained(base);
  }
  const inFiles = new Map(base.parameters.map(({ name }) => [name, 'f32' as const]));
  return withStored(
    trained(withLora(base, { rank, ...(targets && { targets }) })),
    baseStorage(base, inFiles, baseDtype),
  );
}

/** Whether a run of it would write text between steps, and hold a cache of keys and values for that. */
export const writesIn = (flags: PlanFlags): boolean =>
  generates({ config: configOf(flags, flags.layers), sampleTokens: flags.sampleTokens, data: [] });

/** Backward passes of a step that updates within one. */
export const passesIn = ({ update, clip = ADAMW_DEFAULTS.clip }: PlanFlags): BackwardPasses | undefined =>
  backwardPassesOf(update, { clip });

/** Where the optimizer runs. Errors: HoldfastError where that is to be chosen within a budget, which is not what is asked. */
export function oneDevice({ optimizerDevice: device }: PlanFlags): OptimizerDevice {
  if (device !== 'auto') return device;
  throw new HoldfastError(
    '--optimizer-device auto: is chosen within the budget of one rank, where it runs; give gpu or cpu, of which --hardware says which takes less time',
  );
}

/** What is predicted. Low-rank updates are left out of the size: they are a small part of it. */
export const scenarioOf = ({ ranks: size, zero: stage = DEFAULT_STAGE, ...flags }: PlanFlags): Scenario => ({
  ...flags,
  optimizerDevice: oneDevice(flags),
  hostIsLimited: flags.hostMemory !== undefined,
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
  ...(flags.update === 'in-backward' && { recovery: 'checkpoint' as const, passes: passesIn(flags) }),
  parameters: sizeOf(configOf(flags, flags.layers)).parameters,
  modelOf: (layers) => plannedModel(flags, layers),
});
