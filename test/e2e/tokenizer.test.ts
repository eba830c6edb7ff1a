// A tokenizer of one's own, end to end: made, trained with, stopped, killed and gone on with, written with, and refused
// where it is not the one that a run was made with.

import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { holdfast, records, TINY } from './cli.ts';
import { here } from './here.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-tokenizer-'));
const at = (...names: string[]) => path.join(folder, ...names);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The runs that are compared use the same kernels. */
const env = { XDG_CACHE_HOME: at('cache') };
const options = { cacheFolder: at('cache', 'holdfast') };
const train = (out: string, ...more: string[]) => [
  ...['train', '--tokenizer', at('bpe'), '--data', at('text.txt'), '--out', at(out), ...TINY, '--steps', '12'],
  ...['--save-every', '4', '--sample-tokens', '6', '--warmup', '2', ...more],
];
const file = (...names: string[]) => readFileSync(at(...names));

beforeAll(async () => {
  writeFileSync(
    at('text.txt'),
    'interface Token { readonly text: string; }\nexport type Tokens = Token[];\n'.repeat(300),
  );
  const made = await here(['tokenizer', 'train', '--data', at('text.txt'), '--vocab-size', '300', '--out', at('bpe')]);
  expect(made.status, made.stderr).toBe(0);
  expect(made.stdout).toContain(`300 tokens in ${at('bpe')}`);
  const whole = await here(train('whole', '--json'), options);
  expect(whole.status, whole.stderr).toBe(0);
});

test('a new model has the tokenizer’s vocabulary, and its checkpoint carries the files along, byte for byte', () => {
  const config = JSON.parse(file('whole', 'checkpoint-12', 'config.json').toString());
  expect(config.vocab_size).toBe(300);
  for (const name of readdirSync(at('bpe'))) expect(file('whole', 'checkpoint-12', name)).toEqual(file('bpe', name));
  expect(file('whole', 'checkpoint-12', 'SHA256SUMS').toString()).toMatch(/ {2}tokenizer\.json\n/);
});

test('killed and gone on with, also where the tokenizer was taken away, it ends in the same bits', async () => {
  // It has no end that it could come to before it is killed.
  const endless = ['--steps', '20000', '--json'];
  let killed = false;
  await holdfast(train('killed', ...endless), {
    env,
    watch: (stdout, child) => {
      if (!killed && stdout.includes('"step":6,')) killed = child.kill('SIGKILL');
    },
  });
  const saved = Math.max(...readdirSync(at('killed')).map((name) => Number(/^checkpoint-(\d+)$/.exec(name)?.[1] ?? 0)));
  expect(saved).toBeGreaterThanOrEqual(4);
  const end = ['--until', String(saved + 8)];
  renameSync(at('bpe'), at('away'));
  const rest = await holdfast(['train', '--resume', '--out', at('killed'), '--json', ...end], { env });
  renameSync(at('away'), at('bpe'));
  expect(rest.status, rest.stderr).toBe(0);
  expect(records(rest.stdout).filter((line) => 'lr' in line)).toHaveLength(8);
  const alone = await here(train('alone', ...endless, ...end), options);
  expect(alone.status, alone.stderr).toBe(0);
  const weights = (run: string) => file(run, `checkpoint-${saved + 8}`, 'model.safetensors');
  expect(weights('killed')).toEqual(weights('alone'));
});

test('writes in its tokens: an empty prompt is the token that begins a text, a stop string ends it', async () => {
  const write = (...more: string[]) => here(['generate', at('whole'), '--tokens', '12', '--seed', '3', ...more]);
  const [empty, plain] = [await write('--prompt', ''), await write('--prompt', 'interface ')];
  expect([empty.status, plain.status], empty.stderr + plain.stderr).toEqual([0, 0]);
  expect(empty.stdout.trim()).not.toBe('');
  const text = plain.stdout.slice('interface '.length, -1);
  const stop = text.slice(5, 7);
  const stopped = await write('--prompt', 'interface ', '--stop', stop);
  expect(stopped.stdout).toBe(`interface ${text.slice(0, text.indexOf(stop))}\n`);
});

test('a run goes on in the tokens that it was made with, and so does a model', async () => {
  const other = await here([
    'tokenizer',
    'train',
    '--data',
    at('text.txt'),
    '--vocab-size',
    '280',
    '--out',
    at('other'),
  ]);
  expect(other.status).toBe(0);
  for (const [tokenizer, made] of [
    ['bytes', 'another one'],
    [at('other'), 'another one'],
  ] as const) {
    const { status, stderr } = await here(
      ['train', '--resume', '--out', at('whole'), '--tokenizer', tokenizer],
      options,
    );
    expect([status, stderr.split('\n').length]).toEqual([2, 1]);
    expect(stderr).toContain(`was made with ${made}`);
  }
  const same = await here(
    ['train', '--resume', '--out', at('whole'), '--tokenizer', at('bpe', 'tokenizer.json')],
    options,
  );
  expect(same.status, same.stderr).toBe(0);
  // From its weights, without being told which.
  const from = await here(
    [
      'train',
      '--model',
      at('whole'),
      '--data',
      at('text.txt'),
      '--out',
      at('from'),
      '--steps',
      '2',
      '--eval-windows',
      '2',
      '--sample-tokens',
      '0',
    ],
    options,
  );
  expect(from.status, from.stderr).toBe(0);
  expect(file('from', 'checkpoint-2', 'tokenizer.json')).toEqual(file('bpe', 'tokenizer.json'));
  const parity = await here(['parity', at('from'), '--json'], options);
  expect(parity.stdout, parity.stderr).toContain('"sameBits":true');
});

test('a checkpoint whose tokenizer was changed is not written with', async () => {
  cpSync(at('whole', 'checkpoint-12'), at('changed'), { recursive: true });
  writeFileSync(at('changed', 'tokenizer.json'), file('other', 'tokenizer.json'));
  const { status, stderr } = await here(['generate', at('changed')]);
  expect([status, stderr]).toEqual([2, expect.stringContaining('its SHA-256 is not the one in SHA256SUMS')]);
});

test.each<[string, string[], string]>([
  ['nothing there', ['--tokenizer', 'nowhere'], 'holdfast: nowhere: nothing is there'],
  ['a folder without', ['--tokenizer', folder], 'there is no tokenizer.json in it'],
  ['a file of another kind', ['--tokenizer', at('text.txt')], 'is no tokenizer.json'],
  ['no JSON', ['--tokenizer', at('broken')], 'not JSON'],
])('is refused in one line: %s', async (_, more, message) => {
  mkdirSync(at('broken'), { recursive: true });
  writeFileSync(at('broken', 'tokenizer.json'), '{');
  const { status, stderr } = await here(['train', '--out', at('refused'), ...more], options);
  expect([status, stderr.split('\n').length]).toEqual([2, 1]);
  expect(stderr).toContain(message);
  expect(existsSync(at('refused'))).toBe(false);
});
