// `holdfast eval DIR --data FILES`: how well a model predicts data: the perplexity of text by strided windows, or of what is
// learned of records; of a classifier, the share of labels that it tells right. Nothing is trained, and within a budget the result is the same to the bit.

import { Command, Option } from 'commander';
import { type Batch, checkTokens } from '../data/batches.ts';
import { type ClassShare, classSharesOf, describeCounts, describeShares } from '../data/classes.ts';
import { openText, type TextIdentity } from '../data/corpus.ts';
import { describeCut } from '../data/dataset.ts';
import { tokenizerOf } from '../data/open-tokenizer.ts';
import { Pieces } from '../data/packing.ts';
import { readDocuments, TRAIN_ON, type TrainOn } from '../data/records/read-records.ts';
import { holdRecords } from '../data/records/record-files.ts';
import { recordsToTest, textToTest } from '../data/records/splits.ts';
import { readStridedWindows, windowCount } from '../data/strided-windows.ts';
import { runBehind } from '../data/token-run.ts';
import { tokenizedText } from '../data/tokenized-text.ts';
import type { Tokenizer } from '../data/tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { checkWriter, labelsIn, shapeOf } from '../formats/families/index.ts';
import type { Labels } from '../formats/families/labels.ts';
import { preparationIn } from '../formats/preprocessor.ts';
import type { Host } from '../runtime/host.ts';
import { type ClassSources, examplesToTest } from '../train/run/class-data.ts';
import { defaultSettings, RANGES } from '../train/run/run-settings.ts';
import { Evaluator } from '../train/step/evaluator.ts';
import { counted } from '../util/counted.ts';
import { finishing, HoldfastError } from '../util/errors.ts';
import { findTemplateFor } from './chat-template.ts';
import { addBudgetOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';
import { MODEL_SOURCES } from './model-source.ts';
import { addModelOptions, type OpenFlags, onDevice, withNamedModel } from './opened-model.ts';
import { adapterOption, wholeNumberFrom, within } from './options.ts';
import { refuseForClassifier } from './tell.ts';
import { dashed } from './train/flags.ts';

interface Flags extends MemoryFlags, OpenFlags {
  data: string[];
  context?: number;
  stride?: number;
  batch: number;
  trainOn: TrainOn;
  chatTemplate?: string;
  adapter: string;
  json?: boolean;
}

/** Data as batches, one after the other. */
interface EvaluationData {
  readonly identity: TextIdentity;
  /** Sequences in all, and what one is. */
  readonly rows: number;
  readonly word: 'window' | 'image' | 'text';
  readonly seq: number;
  readonly packed: boolean;
  /** For JSON: how it was cut. */
  readonly facts: Readonly<Record<string, number | string>>;
  /** What its files are for, a line each. @default none */
  readonly notes?: readonly string[];
  /** Tokens a byte, where every token counts. */
  readonly tokensPerByte?: number;
  batches(): AsyncIterable<Batch>;
}

export function evalCommand(host: Host): Command {
  const command = new Command('eval')
    .description(
      'measure how well a model predicts text, or the answers of records: loss, perplexity, bits per byte; of a classifier, accuracy',
    )
    .argument('<dir>', `a run, a checkpoint, a model, or an adapter: ${MODEL_SOURCES}`)
    .requiredOption('--data <path...>', 'files, folders, or - for standard input: text, JSON records, images')
    .option('--context <n>', 'tokens in a window (default: the model’s context, 1024 at most)', within(RANGES.seq))
    .option('--stride <n>', 'of text, tokens from window to window (default: half the context)', wholeNumberFrom(1))
    .option('--batch <n>', 'windows at once', within(RANGES.batch), 8)
    .addOption(
      new Option('--train-on <what>', 'of records: answers alone, or all').choices(TRAIN_ON).default('answers'),
    )
    .option('--chat-template <name>', 'of conversations: chatml, a file or a folder (default: the model’s)')
    .addOption(adapterOption())
    .option('--json', 'one JSON object');
  addBudgetOptions(addModelOptions(command, 'one'));
  const given = (name: keyof Flags) => command.getOptionValueSource(name) === 'cli';
  return command.action(async (dir: string, flags: Flags) => {
    const memory = memoryFromFlags(host, flags);
    const { device, evaluator, data, classes } = await withNamedModel(host, dir, flags, async (opened) => {
      const { model, weights, tokenizer: files, from, named, found } = opened;
      const labels = labelsIn(model.config);
      if (!labels) checkWriter(model.config, dir);
      const images = await preparationIn(found.files, found.folder, model.config);
      const tokenizer = await tokenizerOf(undefined, files, model.shape.vocabulary, dir);
      const { context } = model.shape;
      if (flags.context !== undefined && flags.context > context)
        throw new HoldfastError(`--context ${flags.context}: the model in ${dir} has at most ${context} positions`);
      const seq = flags.context ?? defaultSettings({ config: model.config }).seq;
      const own = { tokenizer: files, model: from };
      const data = labels
        ? await classData(host, flags, given, {
            config: model.config,
            labels,
            data: flags.data,
            seq,
            images,
            tokenizer,
          })
        : await writersData(host, flags, given, tokenizer, seq, own);
      const { packed, notes = [] } = data;
      for (const note of notes) host.terminal[flags.json ? 'warn' : 'write'](`data: ${note}\n`);
      const [adapter] = named;
      const batch = Math.min(flags.batch, data.rows);
      checkTokens('batch', batch, data.seq);
      return onDevice(host, flags.adapter, async (device) => {
        const choices = await loadChoices(host, device);
        const options = { batch, seq: data.seq, packed, choices, memory, ...(adapter !== undefined && { adapter }) };
        return { data, classes: labels, evaluator: await Evaluator.open(device, model, weights, options) };
      });
    });
    const { nats, targets, right, labels, told } = await finishing(
      () => lossOfAll(host, evaluator, data, !flags.json && host.terminal.interactive),
      () => evaluator.close(),
      () => device.close(),
    );
    const loss = nats / targets;
    if (!Number.isFinite(loss)) throw notFinite(loss, dir);
    const bitsPerByte = data.tokensPerByte === undefined ? undefined : (loss / Math.LN2) * data.tokensPerByte;
    const accuracy = data.word === 'window' ? undefined : right / targets;
    const shares = classes && classSharesOf(classes, labels, told);
    const figures = {
      loss,
      ...(accuracy === undefined ? { perplexity: Math.exp(loss), tokens: targets } : { accuracy }),
      ...(bitsPerByte !== undefined && { bitsPerByte }),
    };
    if (flags.json) {
      const cut =
        accuracy === undefined
          ? { windows: data.rows }
          : { [`${data.word}s`]: data.rows, ...(classes && shares && byName(classes, shares)) };
      const report = { ...figures, bytes: data.identity.bytes, ...cut, context: data.seq, ...data.facts };
      host.terminal.write(`${JSON.stringify(report)}\n`);
      return;
    }
    if (accuracy !== undefined) {
      const share = `${number(right)} of ${number(data.rows)} ${data.word}s`;
      host.terminal.write(
        [
          `accuracy ${(100 * accuracy).toFixed(2)} % (${share})`,
          ...(classes && shares ? linesOf(classes, shares) : []),
          `loss ${loss.toFixed(4)} nats per ${data.word}`,
          '',
        ].join('\n'),
      );
      return;
    }
    host.terminal.write(
      [
        `${counted(targets, 'token', number(targets))} of ${counted(data.identity.bytes, 'byte', number(data.identity.bytes))}, in ${counted(data.rows, 'window', number(data.rows))} of ${number(data.seq)}`,
        `loss ${loss.toFixed(4)} nats per token, perplexity ${Math.exp(loss).toPrecision(6)}`,
        ...(bitsPerByte === undefined ? [] : [`${bitsPerByte.toFixed(4)} bits per byte`]),
        '',
      ].join('\n'),
    );
  });
}

/** Over all batches: sums of nats, of what they are of, and of those told right; of a classifier's data each label, and whether it is told right. */
async function lossOfAll({ terminal }: Host, evaluator: Evaluator, data: EvaluationData, shows: boolean) {
  let [nats, targets, done, right] = [0, 0, 0, 0];
  const labels: number[] = [];
  const told: boolean[] = [];
  for await (const batch of data.batches()) {
    const part = await evaluator.lossOf(batch);
    nats += part.nats;
    targets += part.targets;
    right += part.right ?? 0;
    for (const each of part.told ?? []) told.push(each);
    if (data.word !== 'window' && batch['targets'] instanceof Int32Array) labels.push(...batch['targets']);
    done += batch.batch;
    if (shows) terminal.warn(`\r${Math.floor((100 * done) / data.rows)} % of ${number(data.rows)} ${data.word}s\x1b[K`);
  }
  if (shows) terminal.warn('\r\x1b[K');
  return { nats, targets, right, labels, told };
}

const notFinite = (loss: number, dir: string): HoldfastError =>
  new HoldfastError(
    `${dir}: the loss is ${loss}: the model has diverged, or its files are damaged; get them again, or go back to an earlier checkpoint`,
  );

/** For JSON: how many there are of each class, and the share of them that is told right; null of a class that has none. */
function byName({ id2label }: Labels, shares: readonly ClassShare[]) {
  const all = shares.map((share, label) => ({ ...share, name: id2label[label] ?? '' }));
  return {
    classes: Object.fromEntries(all.map(({ name, count }) => [name, count])),
    accuracyByClass: Object.fromEntries(
      all.map(({ name, count, right }) => [name, count === 0 ? null : right / count]),
    ),
  };
}

/** Of classes that are few, a line each; else how many there are of the first. */
function linesOf(labels: Labels, shares: readonly ClassShare[]): string[] {
  const lines = describeShares(labels, shares);
  return lines.length > 0
    ? lines
    : [
        `classes: ${describeCounts(
          labels,
          shares.map(({ count }) => count),
        )}`,
      ];
}

const number = (value: number) => value.toLocaleString('en');

/** What a classifier is to tell. Errors: HoldfastError for flags of something else. */
async function classData(
  host: Host,
  flags: Flags,
  given: (name: keyof Flags) => boolean,
  sources: ClassSources,
): Promise<EvaluationData> {
  const isImage = shapeOf(sources.config).vocabulary === 0;
  refuseForClassifier(['stride', 'trainOn', 'chatTemplate'], given);
  if (isImage && given('context'))
    throw new HoldfastError('--context: an image is as long as its patches say; leave the flag out');
  const { seq } = sources;
  const { identity, word, count, batch, notes } = await examplesToTest(host, sources);
  return {
    ...{ identity, word, rows: count, seq, packed: false, facts: {}, notes },
    async *batches() {
      for (let row = 0; row < count; row += flags.batch)
        yield await batch(Array.from({ length: Math.min(flags.batch, count - row) }, (_, i) => row + i));
    },
  };
}

/** What a model that writes is to tell: text, or records. Errors: HoldfastError for flags of the other. */
async function writersData(
  host: Host,
  flags: Flags,
  given: (name: keyof Flags) => boolean,
  tokenizer: Tokenizer,
  seq: number,
  own: Parameters<typeof findTemplateFor>[1],
): Promise<EvaluationData> {
  const isRecords = await holdRecords(host, flags.data);
  const ofRecords = (['trainOn', 'chatTemplate'] as const).find(given);
  if (!isRecords && ofRecords)
    throw new HoldfastError(`--${dashed(ofRecords)}: is for JSON records, and the data is text; leave the flag out`);
  if (isRecords && flags.stride !== undefined)
    throw new HoldfastError('--stride: is for text, and the data is JSON records; leave the flag out');
  return isRecords ? recordData(host, flags, tokenizer, seq, own) : textData(host, flags, tokenizer, seq);
}

/** Text in strided windows; with BOS in front, where texts of the model have it. */
async function textData(host: Host, flags: Flags, tokenizer: Tokenizer, most: number): Promise<EvaluationData> {
  const { sources, notes } = await textToTest(host.files, flags.data);
  const source = await openText(host, { data: sources, seed: 0 });
  const { identity, train } = await tokenizedText(host, source, tokenizer, { heldBack: 0 });
  const { bos } = tokenizer.specials;
  const tokens = bos !== undefined && tokenizer.addsBos ? runBehind(bos, train) : train;
  const context = Math.max(1, Math.min(most, tokens.length - 1));
  const { stride = Math.max(1, Math.floor(context / 2)) } = flags;
  if (stride > most)
    throw new HoldfastError(`--stride ${stride}: a window has ${most} tokens; it must be ${most} at most`);
  const options = { context, stride: Math.min(stride, context), batch: flags.batch };
  return {
    identity,
    rows: windowCount(tokens.length, options),
    ...{ word: 'window', seq: context, packed: false, facts: { stride: options.stride }, notes },
    tokensPerByte: train.length / identity.bytes,
    batches: () => readStridedWindows(tokens, options),
  };
}

/** Records in rows, as a run learns from them. */
async function recordData(
  host: Host,
  flags: Flags,
  tokenizer: Tokenizer,
  seq: number,
  own: Parameters<typeof findTemplateFor>[1],
): Promise<EvaluationData> {
  const template = await findTemplateFor(host, { ...own, name: flags.chatTemplate });
  const settings = { trainOn: flags.trainOn, ...(template && { template }) };
  const { sources, notes } = await recordsToTest(host.files, flags.data);
  const { documents, identity, longer, leftOut } = await readDocuments(host, sources, tokenizer, settings);
  const all = Array.from({ length: documents.count }, (_, i) => i);
  const pieces = new Pieces(documents, all, { seq, pack: true, longer });
  const rows = pieces.rows();
  pieces.checkLearned('the records');
  const cut = describeCut(pieces, { seq, longer, leftOut });
  return {
    identity,
    ...{
      word: 'window',
      rows: rows.length,
      seq,
      packed: true,
      notes: cut.length > 0 ? [...notes, `of the records ${cut.join('; ')}`] : notes,
      facts: {
        ...{ records: documents.count, trainOn: flags.trainOn },
        ...{ longer: pieces.longer, tokensCut: pieces.tokensCut, leftOut: leftOut + pieces.emptied },
      },
    },
    async *batches() {
      for (let row = 0; row < rows.length; row += flags.batch)
        yield await pieces.batch(rows.slice(row, row + flags.batch));
    },
  };
}
