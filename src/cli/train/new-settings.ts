// The settings of a new run, from flags and from the files that they name: the model, its tokenizer and chat template,
// the data, a low-rank update.

import { imageFacts } from '../../data/images.ts';
import { maskingOf } from '../../data/masking.ts';
import { tokenizerFrom } from '../../data/open-tokenizer.ts';
import { findChatTemplate, type TemplateSources } from '../../data/records/find-template.ts';
import type { RecordSettings } from '../../data/records/read-records.ts';
import { checkUTF8, holdRecords } from '../../data/records/record-files.ts';
import { recordsToTrain, textToTrain } from '../../data/records/splits.ts';
import { isSynthetic } from '../../data/synthetic.ts';
import { DEFAULT_TOKENIZER, identityOf } from '../../data/tokenizer.ts';
import { CONFIG } from '../../formats/checkpoint/folder.ts';
import {
  type DescribedAdapter,
  describeAdapter,
  type FoundModel,
  findModel,
  loadPreparation,
} from '../../formats/checkpoint.ts';
import type { ModelConfig } from '../../formats/config.ts';
import { DEFAULT_IMAGES, type ImageShape } from '../../formats/families/family.ts';
import { FAMILIES, FAMILY_NAMES, type FamilyName, familyOf, labelsIn, shapeOf } from '../../formats/families/index.ts';
import type { ImagePreparation } from '../../formats/preprocessor.ts';
import { DEFAULT_SHAPE } from '../../formats/shape.ts';
import { findTokenizer } from '../../formats/tokenizer-files.ts';
import { completeLora } from '../../nn/lora.ts';
import { headModules } from '../../nn/modules-to-save.ts';
import { type Host, join } from '../../runtime/host.ts';
import { headFor } from '../../train/run/class-data.ts';
import { fineTuningSettings } from '../../train/run/fine-tuning.ts';
import { withHeadOf } from '../../train/run/open-model.ts';
import {
  defaultSettings,
  type LoraSettings,
  type RunSettings,
  VALIDATION_SHARE,
} from '../../train/run/run-settings.ts';
import { HoldfastError } from '../../util/errors.ts';
import { describeRange, inRange } from '../../util/range.ts';
import type { StoredElement } from '../../values/stored-elements.ts';
import { checkInputFlags, configFromFlags, imagesInPatches } from '../model-flags.ts';
import { isRemoteName, localConfig, localModel, sourceSettings } from '../model-source.ts';
import { argument } from '../options.ts';
import { BYTES, dashed, type IsGiven, numbersIn, type TrainFlags } from './flags.ts';

/** The chat template of models that were not taught to chat, and are now. */
export const FALLBACK_TEMPLATE = 'chatml';

/**
 * What settings are for: a run of a new model, or of one with weights; a run that begins with weights; a plan of a run, which reads
 * no weights and needs neither them nor data.
 */
export type Purpose = 'training' | 'fine-tuning' | 'planning';

/** What a new run is to do. */
export interface NewSettings {
  readonly settings: RunSettings;
  /** What the config.json of its model says that weights which are not here are stored as. @default nothing */
  readonly storedAs?: StoredElement | undefined;
  /** What its model's files say and training here does otherwise, and which files of the data are for what: a line each. */
  readonly notes: readonly string[];
}

/** Errors: HoldfastError for flags that do not go together, and for files that are missing, damaged or not supported. */
export async function newSettings(
  host: Host,
  flags: TrainFlags,
  given: IsGiven,
  purpose: Purpose,
): Promise<NewSettings> {
  const found = await modelFromFlags(host, flags, purpose);
  checkFlagsOfModel(flags, given, found, purpose);
  const { family, model, from, config, newHead, tokenizer, adapter, images } = found;
  const plans = purpose === 'planning';
  const seesImages = hasNoTokens(config);
  const isText = !seesImages && !isSynthetic(flags.data) && !labelsIn(config);
  const sources = { tokenizer, model: from ?? model };
  const records = isText ? await recordsFromFlags(host, flags, given, sources, purpose) : undefined;
  const lora = loraSettings(flags, adapter, plans || from !== undefined, headModules(config, newHead));
  const { data, schedule } = flags;
  const complete = purpose === 'fine-tuning' ? fineTuningSettings : defaultSettings;
  const settings = complete({
    config,
    tokenizer: tokenizer ? identityOf(tokenizer) : DEFAULT_TOKENIZER,
    ...(from === undefined ? {} : sourceSettings(host, from, flags.model)),
    ...(from !== undefined && newHead && { newHead: true }),
    ...(lora && { lora }),
    ...(images && { images }),
    ...(flags.dtype !== 'f32' && { dtype: flags.dtype }),
    ...(flags.optimizerState !== 'f32' && { optimizerState: flags.optimizerState }),
    ...(flags.activationDtype !== 'f32' && { activationDtype: flags.activationDtype }),
    ...(flags.task === undefined ? {} : { task: flags.task }),
    ...(records && { records }),
    ...validationFromFlags(flags),
    ...((family && !seesImages) || given('context') ? { seq: flags.context } : {}),
    ...{ data, schedule, ...numbersIn(flags) },
    ...(flags.optimizerDevice !== 'gpu' && { optimizerDevice: flags.optimizerDevice }),
    ...(flags.update === 'in-backward' && { update: flags.update }),
    ...bestFromFlags(flags),
  });
  const { writes, classifier } = familyOf(config);
  const isMasked = !seesImages && !labelsIn(config) && !writes && !classifier?.isBare?.(config);
  // What is hidden of its text has a token: before the device is opened, and of a plan.
  if (tokenizer && isMasked) maskingOf(await tokenizerFrom(tokenizer));
  if (plans) return { settings, storedAs: found.storedAs, notes: [] };
  const isOfRecords = records !== undefined || (!seesImages && labelsIn(config) !== undefined);
  const ofText = isText ? textToTrain : undefined;
  const uses = (await (isOfRecords ? recordsToTrain : ofText)?.(host.files, data, settings))?.notes ?? [];
  const notes = [
    ...(found.dropout ? [`dropout: none; the model’s config.json has ${found.dropout.join(', ')}`] : []),
    ...uses.map((use) => `data: ${use}`),
  ];
  return { settings, notes };
}

/** The model that flags name, and what belongs to it. */
interface NamedModel extends Omit<FoundModel, 'tokenizer'> {
  /** Of a new one. */
  readonly family: FamilyName | undefined;
  /** The path of one in files. */
  readonly model: string | undefined;
  /** Whether its head is drawn anew, for the classes of the data. */
  readonly newHead: boolean;
  readonly tokenizer: FoundModel['tokenizer'] | undefined;
  /** The adapter to go on from. */
  readonly adapter: DescribedAdapter | undefined;
  readonly images: ImagePreparation | undefined;
}

/** A new model of a family, or one in files, with the tokenizer that the flags name and the head that the data asks for. */
async function modelFromFlags(host: Host, flags: TrainFlags, purpose: Purpose): Promise<NamedModel> {
  const fineTunes = purpose === 'fine-tuning';
  const plans = purpose === 'planning';
  const family = fineTunes ? undefined : FAMILY_NAMES.find((name) => name === flags.model);
  if (family) await tellOfFolder(host, family);
  else if (!fineTunes) await checkIsThere(host, flags.model);
  const { vocabSize = DEFAULT_SHAPE.vocabulary } = flags;
  const named =
    flags.tokenizer === undefined || flags.tokenizer === BYTES
      ? undefined
      : await findTokenizer(host.files, flags.tokenizer);
  const model = family ? undefined : await (plans ? localConfig : localModel)(host, flags.model);
  const sizeOf = async () => (named ? (await tokenizerFrom(named)).vocabulary : vocabSize);
  const isMade = family && FAMILIES[family].images;
  const found: FoundModel =
    model === undefined
      ? {
          config: configFromFlags({
            ...{ ...flags, model: family ?? DEFAULT_SHAPE.family, vocabSize: await sizeOf() },
            ...(isMade && { images: await imagesFromFlags(host, flags, plans) }),
          }),
        }
      : await findModel(host.files, model);
  const { from } = found;
  const tokenizer = flags.tokenizer === BYTES ? undefined : (named ?? found.tokenizer);
  // A new model of images was made for their classes.
  const adapter = model === undefined ? undefined : await adapterToGoOn(host, flags, found.config);
  const images = from === undefined ? undefined : await loadPreparation(host.files, from, found.config);
  const headed = isMade ? found.config : withHeadOf(found.config, adapter);
  const { config, newHead } =
    isMade || (plans && flags.data.length === 0)
      ? { config: headed, newHead: headed !== found.config }
      : await headFor(host, found.config, flags.data, { adapter, images });
  return { ...found, ...{ family, model, config, newHead, tokenizer, adapter, images } };
}

/** Whether it looks at images. */
const hasNoTokens = (config: ModelConfig): boolean => shapeOf(config).vocabulary === 0;

/** Errors: HoldfastError for a flag that says otherwise than the model, or is of another kind of model, and for one without weights to fine-tune. */
function checkFlagsOfModel(
  flags: TrainFlags,
  given: IsGiven,
  { family, config, from }: NamedModel,
  purpose: Purpose,
): void {
  const { context } = shapeOf(config);
  if (!family) {
    const shape = (['layers', 'width', 'heads', 'kvHeads', 'vocabSize'] as const).find(given);
    if (shape)
      throw new HoldfastError(`--${dashed(shape)}: the model in ${flags.model} has its own; leave the flag out`);
    if (given('context') && flags.context > context) {
      throw new HoldfastError(
        `--context ${flags.context}: the model in ${flags.model} has at most ${context} positions`,
      );
    }
  }
  const seesImages = hasNoTokens(config);
  checkInputFlags(seesImages, given);
  if (seesImages && given('vocabSize'))
    throw new HoldfastError('--vocab-size: images have no tokens; leave the flag out');
  if (purpose === 'fine-tuning' && from === undefined)
    throw new HoldfastError(
      `${flags.model}: has no weights to fine-tune; name a folder that has, or train it: holdfast train --model ${argument(flags.model)}`,
    );
  const ofRecords = (['trainOn', 'pack', 'chatTemplate'] as const).find(given);
  if (labelsIn(config) && ofRecords)
    throw new HoldfastError(
      `--${dashed(ofRecords)}: is of what a model writes, and this one tells classes apart; leave the flag out`,
    );
}

/** Says that a new model of a family is meant, where a model's folder has its name: one from the hub may. */
async function tellOfFolder({ files, terminal }: Host, family: FamilyName): Promise<void> {
  if (!(await files.stat(join(family, CONFIG)))) return;
  terminal.warn(`holdfast: --model ${family} is a new model of this family; the folder of this name is ./${family}\n`);
}

/** Errors: HoldfastError for a name that no family has, and nothing here; of a path what opens it says more. */
async function checkIsThere({ files }: Host, model: string): Promise<void> {
  if (isRemoteName(model) || /[/\\]/.test(model) || (await files.stat(model))) return;
  throw new HoldfastError(
    `--model ${model}: no family has this name, and no file or folder; families are ${FAMILY_NAMES.join(', ')}`,
  );
}

/** What is kept of the best validation, and whether it ends the run. Errors: HoldfastError for flags that do not go together. */
function bestFromFlags({
  earlyStoppingPatience,
  earlyStoppingThreshold,
  keepBest = earlyStoppingPatience !== undefined,
}: TrainFlags): Partial<RunSettings> {
  if (earlyStoppingThreshold !== undefined && earlyStoppingPatience === undefined)
    throw new HoldfastError('--early-stopping-threshold: give --early-stopping-patience, too');
  return {
    ...(earlyStoppingPatience !== undefined && { earlyStoppingPatience }),
    ...(earlyStoppingThreshold !== undefined && { earlyStoppingThreshold }),
    ...(keepBest && { keepBest }),
  };
}

/** What a new model of images looks at: those of the data; a plan needs none. Errors: HoldfastError for patches that do not fit them. */
async function imagesFromFlags(host: Host, { data, patch }: TrainFlags, plans: boolean): Promise<ImageShape> {
  if (plans && data.length === 0) {
    const { image, channels, classes } = DEFAULT_IMAGES;
    return imagesInPatches({ height: image, width: image, channels }, classes, undefined, patch);
  }
  const { classes, classNames, ...size } = await imageFacts(host, data);
  return imagesInPatches(size, classes, classNames, patch);
}

/** How records are learned from; undefined where the data is text. A plan needs no data to be told that it is records, and no template. */
async function recordsFromFlags(
  host: Host,
  flags: TrainFlags,
  given: IsGiven,
  own: Pick<TemplateSources, 'tokenizer' | 'model'>,
  purpose: Purpose,
): Promise<RecordSettings | undefined> {
  const { data, trainOn, pack, chatTemplate: name } = flags;
  const flag = (['trainOn', 'pack', 'chatTemplate'] as const).find(given);
  const plans = purpose === 'planning';
  if (plans && data.length === 0) return flag && { trainOn, pack };
  const areRecords = await holdRecords(host, data);
  await checkValidation(host, flags, areRecords);
  if (!areRecords) {
    if (own.tokenizer) await checkUTF8(host.files, data);
    if (flag)
      throw new HoldfastError(`--${dashed(flag)}: is for JSON records, and the data is text; leave the flag out`);
    return undefined;
  }
  if (plans) return { trainOn, pack };
  const date = new Date().toISOString().slice(0, 10);
  const template =
    (await findChatTemplate(host.files, { ...own, name, date })) ??
    (purpose === 'fine-tuning'
      ? await findChatTemplate(host.files, { ...own, name: FALLBACK_TEMPLATE, date })
      : undefined);
  return { trainOn, pack, ...(template && { template }) };
}

/** Errors: HoldfastError for a file to validate on that is text where records are learned, or the other way round, and for one in another form. */
async function checkValidation(host: Host, flags: TrainFlags, areRecords: boolean): Promise<void> {
  const { validationFile } = validationFromFlags(flags);
  if (validationFile === undefined || (await holdRecords(host, [validationFile])) === areRecords) return;
  const [data, validation] = areRecords ? ['records', 'text'] : ['text', 'records'];
  throw new HoldfastError(
    `--validation ${validationFile}: is ${validation}, and the data is ${data}; name ${data} to validate on, or leave the flag out`,
  );
}

/** Errors: HoldfastError for neither a share nor a path. */
function validationFromFlags({
  validation,
  task,
}: TrainFlags): Pick<RunSettings, 'validationFile' | 'validationShare'> {
  if (validation === undefined) return {};
  if (task !== undefined) throw new HoldfastError('--validation: a --task has its own; leave the flag out');
  const share = Number(validation);
  if (validation.trim() === '' || Number.isNaN(share)) return { validationFile: validation };
  if (inRange(VALIDATION_SHARE, share)) return { validationShare: share };
  throw new HoldfastError(`--validation ${validation}: it must be a file, or ${describeRange(VALIDATION_SHARE)}`);
}

/** The adapter that the flags name to go on from. Errors: HoldfastError where there is none. */
async function adapterToGoOn(
  host: Host,
  { loraFrom }: TrainFlags,
  config: ModelConfig,
): Promise<DescribedAdapter | undefined> {
  if (loraFrom === undefined) return undefined;
  const path = await localModel(host, loraFrom);
  return { ...(await describeAdapter(host.files, path, config)), path };
}

/**
 * The low-rank update that the flags ask for, complete; `whole` trains beside one that is new. Errors: HoldfastError for
 * flags that do not go together.
 */
function loraSettings(
  flags: TrainFlags,
  adapter: DescribedAdapter | undefined,
  hasWeights: boolean,
  whole: readonly string[],
): LoraSettings | undefined {
  const { loraRank, loraFrom, loraAlpha: alpha, loraDropout: dropout, loraRslora: rslora } = flags;
  if (loraRank === undefined && loraFrom === undefined) {
    const flag = LORA_FLAGS.find((name) => flags[name] !== undefined);
    if (flag) throw new HoldfastError(`--${dashed(flag)}: is of a low-rank update; give --lora-rank, too`);
    return undefined;
  }
  if (!hasWeights) {
    throw new HoldfastError(
      `--${loraRank === undefined ? 'lora-from' : 'lora-rank'}: --model ${flags.model} has no weights to update; name a folder that has`,
    );
  }
  const found = adapter?.options;
  const targets = flags.loraTargets?.split(',').map((name) => name.trim());
  const options = completeLora({
    ...(whole.length > 0 && !found && { modulesToSave: whole }),
    ...found,
    rank: loraRank ?? found?.rank ?? 0,
    ...(alpha !== undefined && { alpha }),
    ...(targets && { targets }),
    ...(dropout !== undefined && { dropout }),
    ...(rslora !== undefined && { rslora }),
  });
  const { baseDtype = 'auto' } = flags;
  return { ...options, ...(adapter && { adapter: adapter.path }), ...(baseDtype !== 'auto' && { baseDtype }) };
}

const LORA_FLAGS = ['loraAlpha', 'loraTargets', 'loraDropout', 'loraRslora', 'baseDtype'] as const;
