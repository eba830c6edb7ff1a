// `holdfast eval DIR --data FILES`: how well a model predicts data: the perplexity of text by strided windows, or of what is
// learned of records. Nothing is trained, and within a budget the result is the same to the bit.

import { Command, Option } from 'commander';
import { type Batch, checkTokens } from '../data/batches.ts';
import { openText } from '../data/corpus.ts';
import { Pieces } from '../data/packing.ts';
import { holdRecords, readDocuments, TRAIN_ON, type TrainOn } from '../data/records/read-records.ts';
import { stridedWindows, windowsIn } from '../data/strided-windows.ts';
import { type TextIdentity, tokenizedText } from '../data/tokenized-text.ts';
import { type Tokenizer, tokenizerOf } from '../data/tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { checkWriter } from '../formats/families/index.ts';
import { openDevice } from '../gpu/device.ts';
import type { Host } from '../runtime/host.ts';
import { Evaluator } from '../train/evaluator.ts';
import { defaultSettings, RANGES } from '../train/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { findTemplateFor } from './chat-template.ts';
import { addBudgetOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';
import { MODEL_SOURCES } from './model-source.ts';
import { type AdapterFlags, addAdapterOptions, withNamedModel } from './opened-model.ts';
import { adapterOption, whole, within } from './options.ts';

interface Flags extends MemoryFlags, AdapterFlags {
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
  /** Sequences in all. */
  readonly rows: number;
  readonly seq: number;
  readonly packed: boolean;
  /** For JSON: how it was cut. */
  readonly facts: Readonly<Record<string, number | string>>;
  /** Tokens a byte, where every token counts. */
  readonly tokensPerByte?: number;
  batches(): Iterable<Batch>;
}

export function evalCommand(host: Host): Command {
  const command = new Command('eval')
    .description('measure how well a model predicts text, or the answers of records: loss, perplexity, bits per byte')
    .argument('<dir>', `a run, a checkpoint, a model, or an adapter: ${MODEL_SOURCES}`)
    .requiredOption('--data <path...>', 'files, folders, or - for standard input: text, or JSON records')
    .option('--context <n>', 'tokens in a window (default: the model’s context, 1024 at most)', within(RANGES.seq))
    .option('--stride <n>', 'of text, tokens from window to window (default: half the context)', whole(1))
    .option('--batch <n>', 'windows at once', within(RANGES.batch), 8)
    .addOption(
      new Option('--train-on <what>', 'of records: answers alone, or all').choices(TRAIN_ON).default('answers'),
    )
    .option('--chat-template <name>', 'of conversations: chatml, a file or a folder (default: the model’s)')
    .addOption(adapterOption())
    .option('--json', 'one JSON object');
  addBudgetOptions(addAdapterOptions(command));
  return command.action(async (dir: string, flags: Flags) => {
    const memory = memoryFromFlags(host, flags);
    const { device, evaluator, data } = await withNamedModel(host, dir, flags, async (opened) => {
      const { model, weights, tokenizer: files, from, without } = opened;
      checkWriter(model.config);
      const tokenizer = await tokenizerOf(undefined, files, model.shape.vocabulary, dir);
      const { context } = model.shape;
      if (flags.context !== undefined && flags.context > context)
        throw new HoldfastError(`--context ${flags.context}: the model in ${dir} has at most ${context} positions`);
      const seq = flags.context ?? defaultSettings({ config: model.config }).seq;
      const isRecords = await holdRecords(host, flags.data);
      if (isRecords && flags.stride !== undefined)
        throw new HoldfastError('--stride: is for text, and the data is JSON records; leave the flag out');
      const data = isRecords
        ? await recordData(host, flags, tokenizer, seq, { tokenizer: files, model: from })
        : await textData(host, flags, tokenizer, seq);
      const device = await openDevice(host, { adapter: flags.adapter });
      const choices = await loadChoices(host, device);
      const { packed } = data;
      const batch = Math.min(flags.batch, data.rows);
      checkTokens('batch', batch, data.seq);
      const options = { batch, seq: data.seq, packed, choices, memory, ...without };
      return { device, data, evaluator: await Evaluator.open(device, model, weights, options) };
    });
    let [nats, targets, done] = [0, 0, 0];
    for (const batch of data.batches()) {
      const part = await evaluator.lossOf(batch);
      nats += part.nats;
      targets += part.targets;
      done += batch.batch;
      if (host.terminal.interactive && !flags.json)
        host.terminal.warn(`\r${Math.floor((100 * done) / data.rows)} % of ${data.rows} windows\x1b[K`);
    }
    if (host.terminal.interactive && !flags.json) host.terminal.warn('\r\x1b[K');
    await evaluator.close();
    device.close();
    const loss = nats / targets;
    const bitsPerByte = data.tokensPerByte === undefined ? undefined : (loss / Math.LN2) * data.tokensPerByte;
    const figures = {
      loss,
      perplexity: Math.exp(loss),
      ...(bitsPerByte !== undefined && { bitsPerByte }),
      tokens: targets,
    };
    if (flags.json) {
      const report = { ...figures, bytes: data.identity.bytes, windows: data.rows, context: data.seq, ...data.facts };
      host.terminal.write(`${JSON.stringify(report)}\n`);
      return;
    }
    const number = (value: number) => value.toLocaleString('en');
    host.terminal.write(
      [
        `${number(targets)} tokens of ${number(data.identity.bytes)} bytes, in ${number(data.rows)} windows of ${number(data.seq)}`,
        `loss ${loss.toFixed(4)} nats per token, perplexity ${figures.perplexity.toPrecision(6)}`,
        ...(bitsPerByte === undefined ? [] : [`${bitsPerByte.toFixed(4)} bits per byte`]),
        '',
      ].join('\n'),
    );
  });
}

/** Text in strided windows; with BOS in front, where texts of the model have it. */
async function textData(host: Host, flags: Flags, tokenizer: Tokenizer, most: number): Promise<EvaluationData> {
  const source = await openText(host, { data: flags.data, seed: 0 });
  const { identity, train } = await tokenizedText(host, source, tokenizer, { heldBack: 0 });
  const { bos } = tokenizer.specials;
  const tokens = bos !== undefined && tokenizer.addsBos ? Int32Array.of(bos, ...train) : train;
  const context = Math.max(1, Math.min(most, tokens.length - 1));
  const { stride = Math.max(1, Math.floor(context / 2)) } = flags;
  if (stride > most)
    throw new HoldfastError(`--stride ${stride}: a window has ${most} tokens; it must be ${most} at most`);
  const options = { context, stride: Math.min(stride, context), batch: flags.batch };
  return {
    identity,
    rows: windowsIn(tokens.length, options),
    ...{ seq: context, packed: false, facts: { stride: options.stride } },
    tokensPerByte: train.length / identity.bytes,
    batches: () => stridedWindows(tokens, options),
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
  const { documents, identity, longer } = await readDocuments(host, flags.data, tokenizer, settings);
  const all = Array.from({ length: documents.count }, (_, i) => i);
  const pieces = new Pieces(documents, all, { seq, pack: true, longer });
  const rows = pieces.rows();
  if (rows.length === 0)
    throw new HoldfastError(`nothing that is learned lies within ${seq} tokens of a record; give a larger --context`);
  return {
    identity,
    ...{ rows: rows.length, seq, packed: true, facts: { records: documents.count, trainOn: flags.trainOn } },
    *batches() {
      for (let row = 0; row < rows.length; row += flags.batch) yield pieces.batch(rows.slice(row, row + flags.batch));
    },
  };
}
