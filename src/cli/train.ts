// `holdfast train`, and what it has in common with `holdfast finetune`: the flags of a run, and what it shows. On a terminal
// a live progress line, piped plain lines, with --json one object a step. The defaults are the library's (defaultSettings).

import { Command, Option } from 'commander';
import { openImages } from '../data/images.ts';
import { findChatTemplate, type TemplateSources } from '../data/records/find-template.ts';
import { holdRecords, type RecordSettings, TRAIN_ON, type TrainOn } from '../data/records/read-records.ts';
import { isSynthetic, SYNTHETIC } from '../data/synthetic.ts';
import { TASKS, type TaskName, taskOf } from '../data/tasks.ts';
import { DEFAULT_TOKENIZER, identityOf, tokenizerFrom } from '../data/tokenizer.ts';
import { checkpointsOf, type FoundModel, findModel, loadAdapter, loadTokenizer } from '../formats/checkpoint.ts';
import type { ModelConfig } from '../formats/config.ts';
import type { ImageShape } from '../formats/families/family.ts';
import { FAMILY_NAMES, familyOf, shapeOf } from '../formats/families/index.ts';
import { DEFAULT_SHAPE } from '../formats/shape.ts';
import { findTokenizer } from '../formats/tokenizer-files.ts';
import { openDevice } from '../gpu/device.ts';
import type { StoredElement } from '../kernels/stored.ts';
import { completeLora } from '../nn/lora.ts';
import { advice } from '../report/advice.ts';
import { REPORT_FILE, writeReport } from '../report/run-report.ts';
import { type FolderClaim, type Host, join } from '../runtime/host.ts';
import { BASE_DTYPES } from '../train/base-dtype.ts';
import { FINE_TUNING_EPOCHS, fineTuningSettings, paceOf } from '../train/fine-tuning.ts';
import type { MemoryRecord } from '../train/memory-record.ts';
import { type RunSummary, trainRun } from '../train/run.ts';
import {
  checkSettings,
  defaultSettings,
  EARLY_STOPPING_RANGES,
  EPOCHS,
  LORA_RANGES,
  type LoraSettings,
  modelOf,
  RANGES,
  type RunSettings,
  type RunText,
  readText,
  tokenizerFor,
  VALIDATION_SHARE,
  withEpochs,
} from '../train/run-settings.ts';
import { savedSettings } from '../train/saved-state.ts';
import { formatBytes } from '../util/bytes.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { describeRange, inRange } from '../util/range.ts';
import { describeOrder } from './accumulate-order.ts';
import { addMemoryOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';
import { configFromFlags } from './model-flags.ts';
import { localModel, MODEL_SOURCES } from './model-source.ts';
import { adapterOption, whole, within } from './options.ts';
import { accuracyText, Progress } from './progress.ts';

export interface TrainFlags extends MemoryFlags {
  model: string;
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  context: number;
  tokenizer?: string;
  data: string[];
  task?: TaskName;
  trainOn: TrainOn;
  pack: 'yes' | 'no';
  patch?: number;
  chatTemplate?: string;
  validation?: string;
  epochs?: number;
  batch: number;
  accumulate: number;
  steps?: number;
  until?: number;
  lr?: number;
  minLr?: number;
  schedule: RunSettings['schedule'];
  warmup?: number;
  clip: number;
  weightDecay: number;
  seed: number;
  evalEvery?: number;
  evalWindows: number;
  sampleEvery?: number;
  sampleTokens: number;
  saveEvery?: number;
  earlyStoppingPatience?: number;
  earlyStoppingThreshold?: number;
  keepBest?: boolean;
  timeline?: string;
  out?: string;
  resume?: boolean;
  loraRank?: number;
  loraAlpha?: number;
  loraTargets?: string;
  loraDropout?: number;
  loraRslora?: boolean;
  loraFrom?: string;
  baseDtype?: 'auto' | StoredElement;
  adapter: string;
  json?: boolean;
}

/** For commands that train: a number, or in words how it is worked out. */
export type TrainDefaults = Readonly<Record<keyof typeof RANGES & keyof TrainFlags, number | string>>;
/** Whether a flag was given, and is no default. */
export type IsGiven = (name: keyof TrainFlags) => boolean;

const DEFAULTS = defaultSettings();
/** The tokenizer that needs no file: one token a byte. */
const BYTES = 'bytes';
/** Of models that were not taught to chat, and are now. */
const FALLBACK_TEMPLATE = 'chatml';
/** Where runs go when --out names no folder. */
const RUNS = 'runs';

export function trainCommand(host: Host): Command {
  const command = new Command('train')
    .description('train a model, or go on training one')
    .option(
      '--model <family>',
      `${FAMILY_NAMES.join(', ')}, or with weights to start from, ${MODEL_SOURCES}`,
      DEFAULT_SHAPE.family,
    )
    .option('--layers <n>', 'blocks', whole(1), DEFAULT_SHAPE.layers)
    .option('--width <n>', 'embedding width', whole(1), DEFAULT_SHAPE.width)
    .option('--heads <n>', 'attention heads', whole(1), DEFAULT_SHAPE.heads)
    .option('--kv-heads <n>', 'key and value heads, not of gpt2 (default: as many as heads)', whole(1))
    .option('--context <n>', 'tokens in a sequence', within(RANGES.seq), DEFAULT_SHAPE.context)
    .option('--patch <n>', 'of vit: rows and columns of a patch (default: 4)', whole(1))
    .addOption(
      new Option('--task <name>', 'generated text instead of data: problems, some of them held back to be solved')
        .choices(Object.keys(TASKS))
        .conflicts('data'),
    );
  addTrainingOptions(command, DEFAULTS, 'TypeScript’s declarations');
  const given: IsGiven = (name) => command.getOptionValueSource(name) === 'cli';
  return command.action((flags: TrainFlags) => train(host, flags, given));
}

/** The flags of all commands that train. `data`: what they learn from where nothing is named. */
export function addTrainingOptions(command: Command, defaults: TrainDefaults, data: string): void {
  const count = (flag: string, what: string, name: keyof TrainDefaults): Command => {
    const value = defaults[name];
    if (typeof value === 'number') return command.option(flag, what, within(RANGES[name]), value);
    return command.option(flag, `${what} (default: ${value})`, within(RANGES[name]));
  };
  command
    .option(
      '--tokenizer <path>',
      `tokenizer.json, its folder or zip, or ${BYTES} (default: the model’s own, else ${BYTES})`,
    )
    .option(
      '--data <path...>',
      `files, folders, - for standard input, or ${SYNTHETIC}: text, JSON records, of vit images (default: ${data})`,
      [],
    )
    .addOption(
      new Option('--train-on <what>', 'of records: answers alone, or all').choices(TRAIN_ON).default('answers'),
    )
    .addOption(
      new Option('--pack <choice>', 'of records: several in a sequence, that do not see each other')
        .choices(['yes', 'no'])
        .default('yes'),
    )
    .option('--chat-template <name>', 'of conversations: chatml, a file or a folder (default: the model’s)')
    .option('--validation <what>', 'a file to validate on, or the share of the data to hold back (default: 0.1)');
  count('--batch <n>', 'sequences in a micro-batch', 'batch');
  count('--accumulate <n>', 'micro-batches in a step', 'accumulate');
  count('--steps <n>', 'training steps', 'steps')
    .addOption(
      new Option('--epochs <n>', 'as many steps as so many passes over the data')
        .argParser(within(EPOCHS))
        .conflicts('steps'),
    )
    .option('--until <n>', 'stop after this many of them, saved, to be resumed', whole(1));
  count('--lr <rate>', 'highest learning rate', 'lr')
    .option('--min-lr <rate>', 'learning rate at the end (default: a tenth of --lr)', within(RANGES.minLr))
    .addOption(new Option('--schedule <kind>').choices(['constant', 'linear', 'cosine']).default(DEFAULTS.schedule));
  count('--warmup <n>', 'steps of warm-up', 'warmup');
  count('--clip <norm>', 'largest gradient norm, 0 for none', 'clip');
  count('--weight-decay <rate>', 'of matrices', 'weightDecay');
  count('--seed <n>', 'for weights, batches and samples', 'seed');
  count('--eval-every <n>', 'steps between validations, 0 for the end only', 'evalEvery');
  count('--eval-windows <n>', 'sequences of a validation', 'evalWindows');
  count('--sample-every <n>', 'steps between samples, 0 for the end only', 'sampleEvery');
  count('--sample-tokens <n>', 'tokens of a sample, 0 for none', 'sampleTokens');
  count('--save-every <n>', 'steps between checkpoints, 0 for the end only; the newest two are kept', 'saveEvery')
    .option('--lora-rank <n>', 'train a low-rank update of the model, of this rank', within(LORA_RANGES.rank))
    .option('--lora-alpha <a>', 'it is scaled by a / rank (default: twice the rank)', within(LORA_RANGES.alpha))
    .option('--lora-targets <names>', 'linears that have one: all-linear, or q_proj,v_proj (default: all-linear)')
    .option('--lora-dropout <rate>', 'of its inputs while it trains (default: 0)', within(LORA_RANGES.dropout))
    .option('--lora-rslora', 'scale it by a / √rank')
    .option(
      '--lora-from <dir>',
      'go on from this adapter, in PEFT’s layout or of a run; it brings the other --lora flags',
    )
    .addOption(
      new Option(
        '--base-dtype <type>',
        'with --lora-rank: how the frozen model lies in memory; auto (the default): as in its files, with the same losses as f32',
      ).choices(['auto', ...BASE_DTYPES]),
    )
    .option(
      '--early-stopping-patience <n>',
      'end after so many validations without a better one; keeps the best checkpoint',
      within(EARLY_STOPPING_RANGES.earlyStoppingPatience),
    )
    .option(
      '--early-stopping-threshold <nats>',
      'by how much a better one must be better (default: 0)',
      within(EARLY_STOPPING_RANGES.earlyStoppingThreshold),
    )
    .option('--keep-best', 'save the best validation’s checkpoint, and keep it beside the newest two')
    .option('--out <dir>', `folder of the run (default: the next free one in ${RUNS}/)`)
    .option('--resume', 'go on from the latest checkpoint')
    .option('--timeline <file>', 'write a trace of the last step, for chrome://tracing and ui.perfetto.dev')
    .addOption(adapterOption())
    .option('--json', 'one JSON object a step, then a summary');
  addMemoryOptions(command);
}

/** A run as the flags have it. `fineTunes`: of the weights in `flags.model`, with what suits them by default. */
export async function train(host: Host, flags: TrainFlags, given: IsGiven, fineTunes = false): Promise<void> {
  const memory = memoryFromFlags(host, flags);
  // Before anything is read or a device opened: from here on the folder is this process's, and can be written to.
  const claim = await claimOut(host, flags);
  const out = claim.folder;
  try {
    await checkOut(host, out, flags);
    let settings = flags.resume
      ? await resumeSettings(host, out, flags, given)
      : await newSettings(host, flags, given, fineTunes);
    // Before anything is opened or made.
    const carried = flags.resume ? await loadTokenizer(host.files, out) : undefined;
    const tokenizer = await tokenizerFor(host.files, settings, flags.resume ? out : flags.model, carried);
    checkSettings(settings);
    modelOf(settings);
    const progress = new Progress(host, settings, flags.json ?? false);
    const abort = new AbortController();
    host.onInterrupt(() => {
      progress.note('stopping after this step and saving; press Ctrl-C again to leave at once');
      abort.abort();
    });
    let text: RunText | undefined;
    const tunes = fineTunes && !flags.resume;
    if (tunes && flags.chatTemplate === undefined && settings.records?.template?.name === FALLBACK_TEMPLATE)
      progress.note(`chat template: ${FALLBACK_TEMPLATE}, as the model has none`);
    const epochs = flags.epochs ?? (tunes && flags.steps === undefined ? FINE_TUNING_EPOCHS : undefined);
    if (epochs !== undefined) {
      const options = { signal: abort.signal, onProgress: progress.events.tokenizing };
      text = await readText(host, settings, tokenizer, options);
      settings = withEpochs(settings, text, epochs);
    }
    if (tunes) settings = { ...settings, ...paceOf(settings), ...numbersIn(flags) };
    checkSettings(settings);
    progress.settings = settings;
    const device = await openDevice(host, { adapter: flags.adapter });
    if (device.adapter.embedded) progress.note('no GPU here: training on the embedded software adapter (SwiftShader)');
    const summary = await trainRun(host, device, settings, out, {
      resume: flags.resume ?? false,
      ...(flags.until === undefined ? {} : { until: flags.until }),
      signal: abort.signal,
      events: { ...progress.events, over: (summary, state) => writeReport(host, out, summary, state) },
      memory,
      ...(flags.timeline === undefined ? {} : { timeline: flags.timeline }),
      claim,
      tokenizer,
      text,
    });
    progress.finish(summary, describe(summary, out, settings));
    device.close();
  } finally {
    await claim.release();
  }
}

function describe(summary: RunSummary, out: string, settings: RunSettings): string[] {
  const { config, task, seed, records } = settings;
  const prompt = task ? taskOf(task).unseen(seed, 1)[0]?.prompt : 'interface ';
  const { best } = summary;
  // A run stopped before its first validation has none.
  const validated = Number.isNaN(summary.validationLoss) ? '' : `, validation ${summary.validationLoss.toFixed(4)}`;
  return [
    `${summary.interrupted ? 'stopped' : 'done'} after ${summary.steps} steps on ${summary.adapter}${summary.stopped ? ', early: validations do not get better' : ''}`,
    Number.isFinite(summary.finalLoss)
      ? `loss ${summary.finalLoss.toFixed(4)}${validated} nats per ${shapeOf(config).vocabulary === 0 ? 'image' : 'token'}`
      : `the last step was skipped: its loss is not finite${validated}`,
    ...(summary.accuracy === undefined ? [] : [accuracyText(summary.accuracy, settings)]),
    `${Math.round(summary.tokensPerSecond).toLocaleString('en')} tokens/s, ${summary.parameters.toLocaleString('en')} parameters, ${formatBytes(summary.peakGpuBytes)} of GPU memory`,
    ...(summary.memory ? memoryLines(summary.memory) : []),
    ...(summary.skippedSteps > 0
      ? [`${summary.skippedSteps} steps were skipped: their loss or gradient was not finite`]
      : []),
    `checkpoint ${summary.checkpoint}, curves ${join(out, REPORT_FILE)}`,
    ...(best ? [`best validation ${best.loss.toFixed(4)} after step ${best.step}: ${best.checkpoint}`] : []),
    ...(summary.interrupted ? [`go on:   holdfast train --resume --out ${out}`] : []),
    ...(!summary.interrupted && familyOf(config).writes
      ? [
          `write:   holdfast generate ${best?.checkpoint ?? out} ${records?.template ? '--chat' : `--prompt "${prompt}"`}`,
        ]
      : []),
  ];
}

function memoryLines(record: MemoryRecord): string[] {
  const { gpu, host, disk, bytesPerStep, offloadedPerStep, ...rest } = record;
  const { recoveryBytesPerStep, bound, fit, accumulate } = rest;
  const { h2d, d2h, diskRead, diskWrite } = bytesPerStep;
  const disks = disk.peak > 0 ? `, ${formatBytes(disk.peak)} of disk` : '';
  const io = diskRead + diskWrite > 0 ? `, disk ${formatBytes(diskRead)} read, ${formatBytes(diskWrite)} written` : '';
  const kept = recoveryBytesPerStep > 0 ? ` (${formatBytes(recoveryBytesPerStep)} of it for recovery)` : '';
  const activations = offloadedPerStep > 0 ? `, and ${formatBytes(offloadedPerStep)} of activations down and up` : '';
  const least = bound ? `; the plan moves ${bound.ratio.toFixed(3)} x the least of any` : '';
  return [
    `${fit.slots} of ${fit.chunks} chunks of ${formatBytes(fit.chunkBytes)} on the GPU at once: ${formatBytes(gpu.peak)} there, ${formatBytes(host.peak)} of host memory${disks}`,
    `a step moved ${formatBytes(h2d)} up, ${formatBytes(d2h)} down${kept}${activations}${io}${least}`,
    ...(accumulate ? [describeOrder(accumulate.order, accumulate.seconds)] : []),
    ...advice(record),
  ];
}

/** Takes the folder of the run: the one named, the latest one to resume, or a new one. */
async function claimOut(host: Host, flags: TrainFlags): Promise<FolderClaim> {
  const { claimFolder, claimNextFolder } = host;
  assert(claimFolder && claimNextFolder, 'the command line shares folders with other processes');
  if (flags.out !== undefined) return claimFolder(flags.out);
  return flags.resume ? claimFolder(await latestRun(host)) : claimNextFolder(RUNS, 'run-');
}

async function latestRun({ files }: Host): Promise<string> {
  const names = (await files.stat(RUNS))?.kind === 'folder' ? await files.list(RUNS) : [];
  const numbers = names.map((name) => /^run-(\d+)$/.exec(name)?.[1]).filter((digits) => digits !== undefined);
  for (const n of numbers.map(Number).sort((a, b) => b - a)) {
    const run = join(RUNS, `run-${n}`);
    if ((await checkpointsOf(files, run)).length > 0) return run;
  }
  throw new HoldfastError(`${RUNS}/: there is no run to resume; start without --resume, or name one with --out`);
}

/** What would otherwise be noticed when the steps are done. */
async function checkOut({ files }: Host, out: string, { resume, timeline }: TrainFlags): Promise<void> {
  if (!resume && (await checkpointsOf(files, out)).length > 0) {
    throw new HoldfastError(`${out}: holds a checkpoint already; add --resume to go on, or choose another --out`);
  }
  if (timeline === undefined) return;
  if ((await files.stat(timeline))?.kind === 'folder') {
    throw new HoldfastError(`--timeline ${timeline}: is a folder; name a file to write`);
  }
  await (await files.writeStream(timeline)).abort();
}

/** The numbers among the flags: those that were given, or are a default that needs no working out. */
const numbersIn = (flags: TrainFlags): Partial<RunSettings> =>
  Object.fromEntries(
    (Object.keys(RANGES) as (keyof typeof RANGES)[]).flatMap((name) =>
      name === 'seq' || flags[name] === undefined ? [] : [[name, flags[name]]],
    ),
  );

async function newSettings(host: Host, flags: TrainFlags, given: IsGiven, fineTunes: boolean): Promise<RunSettings> {
  const family = fineTunes ? undefined : FAMILY_NAMES.find((name) => name === flags.model);
  const { vocabulary: vocabSize, tied } = DEFAULT_SHAPE;
  const named =
    flags.tokenizer === undefined || flags.tokenizer === BYTES
      ? undefined
      : await findTokenizer(host.files, flags.tokenizer);
  const model = family ? undefined : await localModel(host, flags.model);
  const sizeOf = async () => (named ? (await tokenizerFrom(named)).vocabulary : vocabSize);
  const {
    config,
    from,
    tokenizer: own,
  }: FoundModel = model === undefined
    ? {
        config: configFromFlags({
          ...{ ...flags, model: family ?? DEFAULT_SHAPE.family, vocabSize: await sizeOf(), tied },
          ...(family === 'vit' && { images: await imagesFromFlags(host, flags) }),
        }),
      }
    : await findModel(host.files, model);
  const tokenizer = flags.tokenizer === BYTES ? undefined : (named ?? own);
  const { context } = shapeOf(config);
  if (!family) {
    const shape = (['layers', 'width', 'heads', 'kvHeads'] as const).find(given);
    if (shape)
      throw new HoldfastError(`--${dashed(shape)}: the model in ${flags.model} has its own; leave the flag out`);
    if (given('context') && flags.context > context) {
      throw new HoldfastError(
        `--context ${flags.context}: the model in ${flags.model} has at most ${context} positions`,
      );
    }
  }
  const seesImages = shapeOf(config).vocabulary === 0;
  if (seesImages && given('context'))
    throw new HoldfastError('--context: an image is as long as its patches say; leave the flag out');
  if (!seesImages && flags.patch !== undefined)
    throw new HoldfastError('--patch: is of images, and the model reads text; leave the flag out');
  if (fineTunes && from === undefined)
    throw new HoldfastError(
      `${flags.model}: has no weights to fine-tune; name a folder that has, or train it: holdfast train --model ${flags.model}`,
    );
  const isText = !seesImages && !isSynthetic(flags.data);
  const records = isText
    ? await recordsFromFlags(host, flags, given, { tokenizer, model: from ?? model }, fineTunes)
    : undefined;
  const lora = await loraSettings(host, flags, config, from);
  const { data, schedule } = flags;
  const settings = fineTunes ? fineTuningSettings : defaultSettings;
  return settings({
    config,
    tokenizer: tokenizer ? identityOf(tokenizer) : DEFAULT_TOKENIZER,
    ...(from === undefined ? {} : { from }),
    ...(lora && { lora }),
    ...(flags.task === undefined ? {} : { task: flags.task }),
    ...(records && { records }),
    ...validationFromFlags(flags),
    ...((family && !seesImages) || given('context') ? { seq: flags.context } : {}),
    ...{ data, schedule, ...numbersIn(flags) },
    ...bestFromFlags(flags),
  });
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

/** What a new vision transformer looks at: the images of the data. Errors: HoldfastError for patches that do not fit them. */
async function imagesFromFlags(host: Host, { data, patch = 4 }: TrainFlags): Promise<ImageShape> {
  const { height, width, channels, classes } = await openImages(host, data);
  for (const side of [height, width]) {
    if (side % patch === 0) continue;
    throw new HoldfastError(`--patch ${patch}: the images are of ${height} x ${width}; it must divide both`);
  }
  return { image: height === width ? height : [height, width], patch, channels, classes };
}

/** How records are learned from; undefined where the data is text. */
async function recordsFromFlags(
  host: Host,
  { data, trainOn, pack, chatTemplate: name }: TrainFlags,
  given: IsGiven,
  own: Pick<TemplateSources, 'tokenizer' | 'model'>,
  fineTunes: boolean,
): Promise<RecordSettings | undefined> {
  if (!(await holdRecords(host, data))) {
    const flag = (['trainOn', 'pack', 'chatTemplate'] as const).find(given);
    if (flag)
      throw new HoldfastError(`--${dashed(flag)}: is for JSON records, and the data is text; leave the flag out`);
    return undefined;
  }
  const date = new Date().toISOString().slice(0, 10);
  const template =
    (await findChatTemplate(host.files, { ...own, name, date })) ??
    (fineTunes ? await findChatTemplate(host.files, { ...own, name: FALLBACK_TEMPLATE, date }) : undefined);
  return { trainOn, pack, ...(template && { template }) };
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

/** The low-rank update that the flags ask for, complete. Errors: HoldfastError for flags that do not go together. */
async function loraSettings(
  host: Host,
  flags: TrainFlags,
  config: ModelConfig,
  from: string | undefined,
): Promise<LoraSettings | undefined> {
  const { loraRank, loraFrom, loraAlpha: alpha, loraDropout: dropout, loraRslora: rslora } = flags;
  if (loraRank === undefined && loraFrom === undefined) {
    const flag = LORA_FLAGS.find((name) => flags[name] !== undefined);
    if (flag) throw new HoldfastError(`--${dashed(flag)}: is of a low-rank update; give --lora-rank, too`);
    return undefined;
  }
  if (from === undefined) {
    throw new HoldfastError(
      `--${loraRank === undefined ? 'lora-from' : 'lora-rank'}: --model ${flags.model} has no weights to update; name a folder that has`,
    );
  }
  const adapter = loraFrom === undefined ? undefined : await localModel(host, loraFrom);
  const found = adapter === undefined ? undefined : (await loadAdapter(host.files, adapter, config)).options;
  const targets = flags.loraTargets?.split(',').map((name) => name.trim());
  const options = completeLora({
    ...found,
    rank: loraRank ?? found?.rank ?? 0,
    ...(alpha !== undefined && { alpha }),
    ...(targets && { targets }),
    ...(dropout !== undefined && { dropout }),
    ...(rslora !== undefined && { rslora }),
  });
  const { baseDtype = 'auto' } = flags;
  return { ...options, ...(adapter !== undefined && { adapter }), ...(baseDtype !== 'auto' && { baseDtype }) };
}

const LORA_FLAGS = ['loraAlpha', 'loraTargets', 'loraDropout', 'loraRslora', 'baseDtype'] as const;

/** What may change when a run goes on; everything else is the checkpoint's. */
const CHANGEABLE = [
  'steps',
  'epochs',
  'evalEvery',
  'evalWindows',
  'sampleEvery',
  'sampleTokens',
  'saveEvery',
  'data',
  'earlyStoppingPatience',
  'earlyStoppingThreshold',
  'keepBest',
] as const;

async function resumeSettings(host: Host, out: string, flags: TrainFlags, given: IsGiven): Promise<RunSettings> {
  const saved = await savedSettings(host, out);
  const { config } = saved;
  const { layers, width, heads, kvHeads } = shapeOf(config);
  const known: Partial<Record<keyof TrainFlags, unknown>> = {
    ...saved,
    tokenizer: flags.tokenizer,
    ...{ model: config.model_type, layers, width, heads, kvHeads },
    context: saved.seq,
    ...loraKnown(saved),
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
  const base = saved.lora && given('model') && { from: await localModel(host, flags.model) };
  return { ...(given('steps') ? rest : saved), ...changes, ...base };
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

const dashed = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
