// Conversations in a tokenizer's own tokens, end to end: the model's folder brings tokenizer and chat template, answers are
// learned token by token, and a run that was stopped goes on with the same bits.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { tokenizerFrom } from '../../src/data/open-tokenizer.ts';
import { ChatRenderer } from '../../src/data/records/chat-template.ts';
import { loadTokenizer } from '../../src/formats/checkpoint.ts';
import { readText } from '../../src/train/run/run-text.ts';
import { savedSettings } from '../../src/train/run/saved-state.ts';
import { TEMPLATES } from '../data/chat-templates.ts';
import { listed } from '../data/held-documents.ts';
import { filesOf, trained } from '../data/tokenizers.ts';
import { testHost } from '../host.ts';
import { here } from './here.ts';

const SPECIALS = ['<|begin_of_text|>', '<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>'];
const pairs = Array.from({ length: 20 }, (_, i) => [`What is ${i} 日本?`, `It is the number ${i * 7}, 数.`] as const);
const conversations = pairs.map(([asked, answer]) => [
  { role: 'user', content: asked },
  { role: 'assistant', content: answer },
]);

let folder: string;
const at = (name: string) => path.join(folder, name);
const bpe = async () => {
  const json = await trained(pairs.flat().join('\n'), 290);
  const first = json.added_tokens.length + Object.keys(json.model.vocab).length;
  const added = SPECIALS.map((content, i) => ({ id: first + i, content, special: true, normalized: false }));
  return { ...json, added_tokens: [...json.added_tokens, ...added] };
};

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'holdfast-chat-tokens-'));
  mkdirSync(at('model'));
  const config = { model_type: 'gpt2', vocab_size: 300, n_positions: 192, n_embd: 16, n_layer: 1, n_head: 2 };
  const marks = { bos_token: SPECIALS[0], eos_token: { content: SPECIALS[3] }, add_bos_token: true };
  const files = filesOf(await bpe(), { 'config.json': config, 'tokenizer_config.json': marks }).contents;
  for (const [name, bytes] of files) writeFileSync(at(`model/${name}`), bytes);
  writeFileSync(at('model/chat_template.jinja'), TEMPLATES.llama3.text);
  writeFileSync(at('chats.jsonl'), conversations.map((messages) => JSON.stringify({ messages })).join('\n'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const train = async (...args: string[]) => {
  // Other tests do not change the kernels that the runs of this one have chosen.
  const found = await here(['train', ...args], { cwd: folder, cacheFolder: at('cache') });
  expect(found.status, found.stderr).toBe(0);
  return found.stdout;
};
const RUN = ['--model', 'model', '--data', 'chats.jsonl', '--validation', '0.2', '--context', '192'].concat([
  ...['--batch', '2', '--steps', '2', '--warmup', '1', '--sample-tokens', '4', '--eval-windows', '2'],
]);

test('through the model’s own template, the answers are learned in its tokens, and a stopped run ends in the same bits', async () => {
  const shown = await train(...RUN, '--out', 'whole');
  expect(shown).toMatch(/^data: 20 records \(messages\) in 1 file, [\d,]+ tokens$/m);
  expect(shown).toMatch(/^tokenizer: \d+ tokens, model$/m);

  const run = at('whole');
  const files = await loadTokenizer(testHost.files, run);
  expect(new TextDecoder().decode(files?.contents.get('chat_template.jinja'))).toBe(TEMPLATES.llama3.text);
  const settings = await savedSettings(testHost, run);
  expect(settings.records?.template).toMatchObject({ name: 'of model', bos: SPECIALS[0], eos: SPECIALS[3] });

  const tokenizer = await tokenizerFrom(files!);
  const [bos, , , end] = SPECIALS.map((token) => [...tokenizer.encode(token)]);
  expect([bos, end].map((ids) => ids?.length)).toEqual([1, 1]);
  const { content } = await readText(testHost, { ...settings, data: [at('chats.jsonl')] }, tokenizer);
  const read = content.kind === 'records' ? content.documents.train.documents : undefined;
  expect(read?.count).toBe(pairs.length);
  const written = await listed(read!);
  const renderer = new ChatRenderer(settings.records!.template!);
  for (const [i, [, answer]] of pairs.entries()) {
    const { ids = [], learned } = written[i] ?? {};
    expect(ids).toEqual([...tokenizer.encode(renderer.render(conversations[i]!))]);
    // The template writes BOS: it is not there twice, though the tokenizer adds it to prompts.
    expect(ids.filter((id) => id === bos?.[0])).toHaveLength(1);
    const wanted = [...tokenizer.encode(answer), ...end!];
    expect(learned).toEqual(ids.map((_, t) => t >= ids.length - wanted.length));
    expect(ids.slice(-wanted.length)).toEqual(wanted);
  }

  await train(...RUN, '--out', 'parts', '--until', '1');
  // What the run carries is enough.
  rmSync(at('model/tokenizer.json'));
  rmSync(at('model/chat_template.jinja'));
  await train('--resume', '--out', 'parts');
  for (const name of ['model.safetensors', 'tokenizer.json', 'chat_template.jinja'])
    expect(readFileSync(at(`parts/checkpoint-2/${name}`)).equals(readFileSync(at(`whole/checkpoint-2/${name}`)))).toBe(
      true,
    );
  const state = (out: string) => JSON.parse(readFileSync(at(`${out}/checkpoint-2/holdfast_state.json`), 'utf8'));
  const figures = ({ history, batches }: ReturnType<typeof state>) => ({
    ...history,
    batches,
    steps: history.steps.map(({ tokensPerSecond: _, ...rest }: Record<string, number>) => rest),
  });
  expect(figures(state('parts'))).toEqual(figures(state('whole')));

  // Another run from its weights has its tokenizer and its template.
  await train('--model', 'whole', '--data', 'chats.jsonl', '--out', 'from', '--steps', '1', '--eval-windows', '2');
  expect((await savedSettings(testHost, at('from'))).records?.template?.text).toBe(TEMPLATES.llama3.text);
});
