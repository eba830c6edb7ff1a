// `holdfast generate DIR`: text from a checkpoint, a run, a Hugging Face folder, or a zip of one, as it is written: behind a
// prompt, behind each of several, or as the answers of a conversation; with each of several adapters. Of a classifier (tell.ts), the
// classes of a prompt.

import { Command } from 'commander';
import { advisedSampling } from '../data/huggingface/generation-config.ts';
import { tokenizerOf } from '../data/open-tokenizer.ts';
import { RECORDS } from '../data/records/file-names.ts';
import { recordTexts } from '../data/records/labelled.ts';
import { problemOfBytes } from '../data/records/stream-forms.ts';
import { promptIds, type Tokenizer } from '../data/tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { checkWriter, labelsIn } from '../formats/families/index.ts';
import type { Host } from '../runtime/host.ts';
import { readWhole } from '../runtime/read-whole.ts';
import { BatchGenerator } from '../train/inference/batch-generator.ts';
import { Conversation } from '../train/inference/conversation.ts';
import { Generator } from '../train/inference/generator.ts';
import { checkSampling, type SamplingOptions } from '../train/inference/sampling.ts';
import { writeText } from '../train/inference/writing.ts';
import { finishing, HoldfastError, oneLine, shortened } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { wholeNumber } from '../util/range.ts';
import { chat } from './chat.ts';
import { findTemplateFor } from './chat-template.ts';
import { addBudgetOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';
import { MODEL_SOURCES } from './model-source.ts';
import { addModelOptions, type OpenFlags, onDevice, withNamedModel } from './opened-model.ts';
import { adapterOption, numberFrom, wholeNumberFrom, within } from './options.ts';
import { writeGenerated } from './printable.ts';
import { openTelling, refuseForClassifier } from './tell.ts';

interface Flags extends MemoryFlags, OpenFlags {
  prompt: string;
  pair?: string;
  prompts?: string;
  batch?: number;
  chat?: boolean;
  chatTemplate?: string;
  system?: string;
  tokens: number;
  context?: number;
  stop?: string[];
  temperature?: number;
  topK?: number;
  topP?: number;
  seed: number;
  adapter: string;
  json?: boolean;
}

/** Positions of the cache where nothing is said: of models with a longer context it would take gigabytes. */
const MOST_CONTEXT = 4096;
/** Of prompts, which are in memory with their texts. */
const MOST_PROMPTS_BYTES = 2 ** 26;
const TEMPERATURE = 0.8;
/** Flags that a classifier has no use for. */
const OF_WRITERS = [
  'batch',
  'chat',
  'system',
  'chatTemplate',
  'tokens',
  'context',
  'stop',
  'temperature',
  'topK',
  'topP',
  'seed',
];
const AS_ADVISED = 'as the model’s generation_config.json samples';

export function generateCommand(host: Host): Command {
  const command = new Command('generate')
    .description('write text with a trained model; of a classifier of texts, tell the likeliest classes of one')
    .argument('<dir>', `a run, a checkpoint, a model, or an adapter: ${MODEL_SOURCES}`)
    .option('--prompt <text>', 'what the text begins with; empty: the token that begins a text alone', '\n')
    .option('--pair <text>', 'of a classifier of pairs: the second text, behind that of --prompt')
    .option(
      '--prompts <file>',
      'a prompt a line, - for standard input; of each a text, as --prompt would have it; of a classifier also JSONL of texts, or pairs',
    )
    .option('--batch <n>', 'with --prompts: so many texts at once, each the same as by itself', wholeNumberFrom(1))
    .option('--chat', 'hold a conversation: lines of the terminal are answered, until they end; /help has its commands')
    .option('--system <text>', 'with --chat: what is said before all else')
    .option('--chat-template <name>', 'with --chat: chatml, a file or a folder (default: the model’s)')
    .option('--tokens <n>', 'tokens to write; the model may end before', wholeNumberFrom(1), 256)
    .option(
      '--context <n>',
      `tokens that it sees (default: the model’s context, ${MOST_CONTEXT} at most)`,
      within(wholeNumber(1)),
    )
    .option('--stop <text...>', 'end before the first of these')
    .option(
      '--temperature <t>',
      `below 1 is safer, above 1 is wilder, 0 always takes the likeliest (default: ${AS_ADVISED}, else ${TEMPERATURE})`,
      numberFrom(0),
    )
    .option('--top-k <n>', `only the n likeliest tokens (default: ${AS_ADVISED}, else all)`, wholeNumberFrom(1))
    .option(
      '--top-p <p>',
      `only the likeliest tokens that together reach this probability (default: ${AS_ADVISED}, else 1)`,
      numberFrom(0),
    )
    .option('--seed <n>', 'the same seed writes the same text', wholeNumberFrom(0), 1)
    .addOption(adapterOption())
    .option('--json', 'one JSON object a text');
  addBudgetOptions(addModelOptions(command, 'several'));
  return command.action(async (dir: string, flags: Flags) => {
    const given = (name: string) => command.getOptionValueSource(name) === 'cli';
    checkTogether(flags, given);
    const memory = memoryFromFlags(host, flags);
    const prompts = flags.prompts === undefined ? [flags.prompt] : await promptsIn(host, flags.prompts);
    // The run may go on meanwhile: its checkpoint stays readable until the weights are on the device.
    const { device, opened, write } = await withNamedModel(host, dir, flags, async (found) => {
      const { model, weights, tokenizer: files, from, named } = found;
      const labels = labelsIn(model.config);
      if (labels) {
        refuseForClassifier(OF_WRITERS, given);
        const { adapter, json } = flags;
        const texts = await textsToTell(host, flags, given('prompt') || flags.prompts !== undefined ? prompts : []);
        return openTelling(host, dir, found, { labels, texts, memory, adapter, json });
      }
      checkWriter(model.config, dir);
      if (flags.pair !== undefined)
        throw new HoldfastError(
          '--pair: is of a model that tells pairs apart, and this one writes; leave the flag out',
        );
      const tokenizer = await tokenizerOf(undefined, files, model.shape.vocabulary, dir);
      const { context } = model.shape;
      if (flags.context !== undefined && flags.context > context)
        throw new HoldfastError(`--context ${flags.context}: the model in ${dir} has at most ${context} positions`);
      const sources = { tokenizer: files, model: from, name: flags.chatTemplate };
      const template = flags.chat ? await findTemplateFor(host, sources) : undefined;
      if (flags.chat && !template)
        throw new HoldfastError(
          `--chat: ${dir} has no chat template; name one with --chat-template (chatml comes along)`,
        );
      if (!flags.chat)
        for (const [i, prompt] of prompts.entries())
          checkPrompt(tokenizer, prompt, flags.prompts === undefined ? '--prompt' : `${flags.prompts}: line ${i + 1}`);
      const capacity = flags.context ?? Math.min(context, MOST_CONTEXT);
      const batch = Math.min(flags.batch ?? 1, prompts.length);
      const { notApplied, ...advised } = advisedSampling(files);
      const sampling = { temperature: TEMPERATURE, ...advised, ...samplingOf(flags) };
      checkSampling(sampling);
      if (notApplied.length > 0)
        host.terminal.warn(
          `holdfast: ${oneLine(`generation_config.json: not applied here: ${notApplied.join(', ')}`)}\n`,
        );
      return onDevice(host, flags.adapter, async (device) => {
        const options = { choices: await loadChoices(host, device), memory, capacity };
        const generator =
          batch > 1
            ? await BatchGenerator.open(device, model, weights, { ...options, batch })
            : await Generator.open(device, model, weights, options);
        const wanted = { ...sampling, tokens: flags.tokens, stop: flags.stop ?? [] };
        const random = () => new Random(flags.seed, 'samples');
        const write = async () => {
          if (template) {
            const { system } = flags;
            const settings = { ...wanted, adapter: named[0], template, system };
            await chat(host, new Conversation(generator, tokenizer, settings, random()), model);
            return;
          }
          const shown = { json: flags.json, adapter: named.length > 1 };
          const each = named.length > 0 ? named : [undefined];
          const pieces = (prompt: string, adapter: string | undefined) =>
            writeText(generator, tokenizer, prompt, { ...wanted, adapter }, random());
          if (batch === 1) {
            for (const prompt of prompts)
              for (const adapter of each) await show(host, prompt, adapter, pieces(prompt, adapter), shown);
            return;
          }
          const texts = new Map<string | undefined, string[]>();
          for (const adapter of each)
            texts.set(adapter, await sideBySide(prompts, batch, (prompt) => pieces(prompt, adapter)));
          for (const [i, prompt] of prompts.entries())
            for (const adapter of each) await show(host, prompt, adapter, [texts.get(adapter)?.[i] ?? ''], shown);
        };
        return { opened: generator, write };
      });
    });
    await finishing(
      write,
      () => opened.close(),
      () => device.close(),
    );
  });
}

/** Errors: HoldfastError for flags that mean nothing, or nothing together. */
function checkTogether(flags: Flags, given: (name: string) => boolean): void {
  checkSampling(samplingOf(flags));
  if (flags.stop?.includes('')) throw new HoldfastError('--stop is empty; give at least one character');
  if (given('prompt') && flags.prompts !== undefined)
    throw new HoldfastError('--prompts: is instead of --prompt; leave one of them out');
  if (flags.pair !== undefined && !given('prompt'))
    throw new HoldfastError(
      '--pair: is the second text of two; give the first with --prompt, or both as JSONL: --prompts FILE.jsonl',
    );
  if (flags.batch !== undefined && flags.prompts === undefined)
    throw new HoldfastError('--batch: is of several texts; give --prompts, too');
  const other = (['prompt', 'prompts', 'json'] as const).find(given);
  if (flags.chat && other) throw new HoldfastError(`--chat: takes lines from the terminal; leave --${other} out`);
  if (!flags.chat && flags.system !== undefined)
    throw new HoldfastError('--system: is for a conversation; give --chat, too');
  if (!flags.chat && flags.chatTemplate !== undefined)
    throw new HoldfastError('--chat-template: is for a conversation; give --chat, too');
}

const samplingOf = ({ temperature, topK, topP }: Flags): SamplingOptions => ({
  ...(temperature !== undefined && { temperature }),
  ...(topP !== undefined && { topP }),
  ...(topK !== undefined && { topK }),
});

/** The lines of a file. An empty one is an empty prompt. */
async function promptsIn(host: Host, path: string): Promise<string[]> {
  const fix = 'name a file of prompts';
  const bytes =
    path === '-'
      ? await host.readStandardInput(MOST_PROMPTS_BYTES, fix)
      : await readWhole(host.files, path, MOST_PROMPTS_BYTES, { fix, pipes: true });
  const problem = RECORDS.test(path) ? undefined : problemOfBytes(bytes);
  if (problem !== undefined)
    throw new HoldfastError(`--prompts: ${path === '-' ? 'standard input' : shortened(path)}: ${problem}`);
  const text = new TextDecoder().decode(bytes);
  const lines = text.replace(/\r?\n$/, '').split(/\r?\n/);
  if (text !== '') return lines;
  throw new HoldfastError(`--prompts ${path}: there is no line in it; write a prompt a line`);
}

/** What a classifier is asked: a text, or two of a pair, each. */
async function textsToTell(host: Host, { pair, prompts: path }: Flags, prompts: readonly string[]) {
  if (path !== undefined && RECORDS.test(path)) return recordTexts(host, path);
  return prompts.map((prompt) => (pair === undefined ? [prompt] : [prompt, pair]));
}

/** `name`: where it comes from. */
function checkPrompt(tokenizer: Tokenizer, prompt: string, name: string): void {
  if (promptIds(tokenizer, prompt).length > 0) return;
  throw new HoldfastError(`${name} is empty, and no token begins a text of this model; give at least one character`);
}

/** The texts behind some prompts, so many of them at a time. */
async function sideBySide(
  prompts: readonly string[],
  batch: number,
  write: (prompt: string) => AsyncIterable<string>,
): Promise<string[]> {
  const texts = prompts.map(() => '');
  const rest = prompts.entries();
  const next = async () => {
    for (const [i, prompt] of rest) for await (const piece of write(prompt)) texts[i] += piece;
  };
  await Promise.all(Array.from({ length: batch }, next));
  return texts;
}

async function show(
  { terminal }: Host,
  prompt: string,
  adapter: string | undefined,
  pieces: Iterable<string> | AsyncIterable<string>,
  tells: { readonly json: boolean | undefined; readonly adapter: boolean },
): Promise<void> {
  const { json } = tells;
  const named = tells.adapter ? { adapter } : {};
  let text = '';
  if (!json) writeGenerated(terminal, tells.adapter ? `[${adapter}]\n${prompt}` : prompt);
  for await (const piece of pieces) {
    text += piece;
    if (!json) writeGenerated(terminal, piece);
  }
  terminal.write(json ? `${JSON.stringify({ prompt, ...named, text })}\n` : '\n');
}
