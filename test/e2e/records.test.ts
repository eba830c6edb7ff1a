// `holdfast train` on files of records: known by their content, trained on through the template of the model's folder,
// resumed with what was recorded; and what is refused, in one line.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TEMPLATES } from '../data/chat-templates.ts';
import { here } from './here.ts';

let folder: string;
const at = (name: string) => path.join(folder, name);
const chat = (asked: string, answer: string) => ({
  messages: [
    { role: 'user', content: asked },
    { role: 'assistant', content: answer },
  ],
});
const lines = Array.from({ length: 30 }, (_, i) => JSON.stringify(chat(`${i}`, `${i * 7}`)));

beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'holdfast-records-'));
  mkdirSync(at('model'));
  const config = { model_type: 'gpt2', vocab_size: 256, n_positions: 288, n_embd: 16, n_layer: 1, n_head: 2 };
  writeFileSync(at('model/config.json'), JSON.stringify(config));
  writeFileSync(at('model/chat_template.jinja'), TEMPLATES.llama3.text);
  writeFileSync(at('model/tokenizer_config.json'), JSON.stringify({ bos_token: '<|begin_of_text|>' }));
  writeFileSync(at('chats.txt'), lines.join('\n'));
  writeFileSync(at('held.jsonl'), lines.slice(0, 3).join('\n'));
  writeFileSync(at('broken.jsonl'), `${lines[0]}\n\n${JSON.stringify({ messages: [{ role: 'user', content: 1 }] })}`);
  writeFileSync(at('plain.txt'), 'no records here. '.repeat(100));
  mkdirSync(at('typo'));
  writeFileSync(at('typo/train.jsonl'), [lines[0]?.replace(',', ''), ...lines].join('\n'));
  mkdirSync(at('mixed'));
  writeFileSync(at('mixed/chats.jsonl'), lines.join('\n'));
  writeFileSync(at('mixed/notes.txt'), 'no records here. '.repeat(100));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const byNumber = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true });
const train = (...args: string[]) => here(['train', '--sample-tokens', '0', ...args], { cwd: folder });

test('trains for epochs on answers, with the template recorded, and goes on for more', async () => {
  const model = ['--model', 'model', '--out', 'run', '--data', 'chats.txt', '--validation', 'held.jsonl'];
  const { status, stdout, stderr } = await train(...model, '--batch', '2', '--warmup', '1', '--epochs', '1');
  expect(status, stderr).toBe(0);
  expect(stdout).toMatch(/^data: 30 records \(messages\) in 1 file, [\d,]+ tokens$/m);
  const state = () => JSON.parse(readFileSync(at(`run/${latest()}/holdfast_state.json`), 'utf8'));
  const latest = () =>
    readdirSync(at('run'))
      .filter((name) => name.startsWith('checkpoint-'))
      .toSorted(byNumber)
      .at(-1);
  const first = state();
  expect(first.settings).toMatchObject({
    ...{ epochs: 1, validationFile: 'held.jsonl' },
    records: {
      trainOn: 'answers',
      pack: 'yes',
      template: { name: 'of model', text: TEMPLATES.llama3.text, bos: '<|begin_of_text|>' },
    },
  });
  // 30 rows of one conversation each.
  expect([first.trainer.step, first.batches]).toEqual([15, [1, 0]]);
  expect((await train('--resume', '--out', 'run', '--epochs', '2')).status).toBe(0);
  const second = state();
  expect([second.trainer.step, second.settings.epochs, second.batches]).toEqual([30, 2, [2, 0]]);
  expect(second.history.steps.slice(0, 15)).toEqual(first.history.steps);
  const refused = await train('--resume', '--out', 'run', '--train-on', 'all');
  expect([refused.status, refused.stderr]).toEqual([
    2,
    'holdfast: --train-on all: the checkpoint in run was made with answers; leave the flag out, or start another run',
  ]);
});

describe('refused in one line, with exit status 2', () => {
  test.each<[string, string[], string]>([
    [
      'a broken record',
      ['--data', 'broken.jsonl', '--chat-template', 'chatml'],
      'broken.jsonl:3: messages[0].content is 1; it must be a text',
    ],
    [
      'no template',
      ['--data', 'chats.txt'],
      'chats.txt:1: a conversation is written down by a chat template, and the model has none',
    ],
    [
      'a flag of records, for text',
      ['--data', 'plain.txt', '--pack', 'no'],
      '--pack: is for JSON records, and the data is text',
    ],
    [
      'records beside text',
      ['--data', 'plain.txt', 'chats.txt'],
      'the data is records in chats.txt and text in plain.txt',
    ],
    ['a folder whose first record is no JSON', ['--data', 'typo'], 'typo/train.jsonl:1: not JSON'],
    [
      'records beside text in a folder',
      ['--data', 'mixed'],
      'the data is records in mixed/chats.jsonl and text in mixed/notes.txt; name the files of the one or the other',
    ],
    [
      'a share that is none',
      ['--data', 'plain.txt', '--validation', '1'],
      '--validation 1: it must be a file, or a number from 0.0001 to 0.9',
    ],
    ['a template that is none', ['--data', 'chats.txt', '--chat-template', 'x'], 'chat template x: nothing is there'],
    [
      'epochs and steps',
      ['--epochs', '1', '--steps', '1'],
      "option '--epochs <n>' cannot be used with option '--steps <n>'",
    ],
  ])('%s', async (_, args, message) => {
    const { status, stderr } = await train('--out', 'none', ...args);
    const shown = stderr.split('\n').filter((line) => line.startsWith('holdfast: '));
    expect([status, shown.length]).toEqual([2, 1]);
    expect(shown[0]).toContain(message);
    expect(stderr).not.toContain('    at ');
  });
});
