// The checksums of a checkpoint: `sha256sum -c` agrees with them, and no bit of any of its files, the sums' own
// included, changes unseen.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { exportFile } from '../../src/browser/export.ts';
import type { Exports } from '../../src/browser/exports.ts';
import { besideAdapter } from '../../src/formats/checkpoint/load.ts';
import {
  type CheckpointToSave,
  loadAdapter,
  loadCheckpoint,
  loadPreparation,
  loadState,
  loadWeights,
  replaceState,
  saveCheckpoint,
  withWeights,
} from '../../src/formats/checkpoint.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { asEarlierVersion } from '../earlier-checkpoint.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { adapterCheckpoint, checkpoint, tinyCheckpoint, vitCheckpoint } from './checkpoints.ts';
import { writersOf } from './writers.ts';

const STATES = ['holdfast_state.json', 'trainer_state.json'];
const FILES = ['config.json', 'model.safetensors', 'optimizer.safetensors', ...STATES].sort();
const FOLDER = 'run/checkpoint-1';

async function saved(): Promise<MemoryFiles> {
  const files = new MemoryFiles();
  await saveCheckpoint(files, 'run', 1, checkpoint(1));
  return files;
}

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** What is said where loading fails. */
async function refusal(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HoldfastError) return error.message;
    throw error;
  }
  return 'nothing';
}

test('SHA256SUMS has a line for each other file, of the bytes that are there', async () => {
  const { contents } = await saved();
  const lines = FILES.map((name) => `${sha256(entry(contents, `${FOLDER}/${name}`))}  ${name}\n`);
  expect(new TextDecoder().decode(contents.get(`${FOLDER}/SHA256SUMS`))).toBe(lines.join(''));
});

test.runIf(process.platform === 'linux')('sha256sum -c finds nothing in what the disk holds', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-sums-'));
  try {
    const { files } = headlessHost();
    const at = await saveCheckpoint(files, folder, 1, checkpoint(1));
    expect(execFileSync('sha256sum', ['--strict', '-c', 'SHA256SUMS'], { cwd: at, encoding: 'utf8' })).toBe(
      FILES.map((name) => `${name}: OK\n`).join(''),
    );
    writeFileSync(path.join(at, 'config.json'), '{}');
    expect(await refusal(loadWeights(files, folder))).toContain(
      'config.json: its SHA-256 is not the one in SHA256SUMS',
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const asCheckpoint = (files: MemoryFiles) => loadCheckpoint(files, 'run');
const asAdapter = (files: MemoryFiles) => loadAdapter(files, 'run', adapterCheckpoint(1).config);
const IMAGES = 'preprocessor_config.json';
const ADAPTER = ['adapter_config.json', 'adapter_model.safetensors'];

/** Saves what is to be damaged. */
type Save = (files: MemoryFiles) => Promise<unknown>;

const whole =
  (made: CheckpointToSave): Save =>
  (files) =>
    saveCheckpoint(files, 'run', 1, made);

const contents = new Map(
  ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'].map((name) => [
    name,
    Uint8Array.from(new TextEncoder().encode(JSON.stringify({ of: name, more: 'and what else it has' }))),
  ]),
);
const withTokenizer = whole({ ...tinyCheckpoint(1), tokenizer: { path: 'elsewhere', sha256: '', contents } });

/** By two processes, a tensor each. */
const sharded: Save = (files) => {
  const names = ['ln_f.weight', 'ln_f.bias'];
  const source = (kind: number) =>
    sourceOf(new Map(names.map((name, i) => [name, new Float32Array(6).fill(kind + i)])));
  const tensors = { weights: source(0), moment1: source(2), moment2: source(4) };
  const made = { ...tinyCheckpoint(1), ...tensors, shapes: new Map(names.map((name) => [name, [6]])) };
  const writers = writersOf(2, (name) => names.indexOf(name));
  return Promise.all(writers.map((each) => saveCheckpoint(files, 'run', 1, made, { writers: each })));
};

async function namesOf(save: Save): Promise<string[]> {
  const files = new MemoryFiles();
  await save(files);
  return files.list(FOLDER);
}

/** What is saved, the files that are another, and what loads them. */
const kinds: [string, Save, readonly string[], (files: MemoryFiles) => Promise<unknown>][] = [
  ['a checkpoint', whole(tinyCheckpoint(1)), [...FILES, 'SHA256SUMS'], asCheckpoint],
  ['one with its tokenizer', withTokenizer, await namesOf(withTokenizer), asCheckpoint],
  ['one in shards', sharded, await namesOf(sharded), asCheckpoint],
  ['one of a vision model', whole(vitCheckpoint(1)), [IMAGES], asCheckpoint],
  [
    'what is done with images',
    whole(vitCheckpoint(1)),
    [IMAGES],
    (files) => loadPreparation(files, 'run', vitCheckpoint(1).config),
  ],
  ['one of an adapter', whole(adapterCheckpoint(1)), ADAPTER, asCheckpoint],
  ['an adapter with its classes', whole(adapterCheckpoint(1)), [...ADAPTER, 'config.json'], asAdapter],
  ['an adapter’s base', whole(adapterCheckpoint(1)), ['adapter_config.json'], (files) => besideAdapter(files, 'run')],
];

test('the checkpoints to damage have a tokenizer, and shards with their indices', () => {
  const [, tokenizer, shards] = kinds.map(([, , names]) => names);
  expect(tokenizer).toEqual([...FILES, ...contents.keys(), 'SHA256SUMS'].sort());
  const parts = ['00001-of-00002.safetensors', '00002-of-00002.safetensors'];
  const tensors = ['model', 'optimizer'].flatMap((stem) => [
    ...parts.map((part) => `${stem}-${part}`),
    `${stem}.safetensors.index.json`,
  ]);
  expect(shards).toEqual(['config.json', ...tensors, ...STATES, 'SHA256SUMS'].sort());
});

test.each(kinds.flatMap(([what, save, names, load]) => names.map((name) => ({ what, save, name, load }))))(
  '$what: every bit of $name that is another is found, and the file named',
  async ({ save, name, load }) => {
    const files = new MemoryFiles();
    // The same sums, made sooner.
    files.sha256 = async () => {
      const hash = createHash('sha256');
      return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest('hex') };
    };
    await save(files);
    const bytes = entry(files.contents, `${FOLDER}/${name}`);
    expect(bytes.length).toBeGreaterThan(30);
    for (let at = 0; at < bytes.length; at++) {
      for (let bit = 0; bit < 8; bit++) {
        if (!EVERY_CASE && bit !== (at * 5) % 8) continue;
        bytes[at]! ^= 1 << bit;
        const said = await refusal(load(files));
        if (!said.includes(name)) expect.fail(`byte ${at}, bit ${bit}: ${said}`);
        bytes[at]! ^= 1 << bit;
      }
    }
    await load(files);
  },
);

test('an adapter that the page exports is the one that was saved, or an error names the file', async () => {
  const files = new MemoryFiles();
  await saveCheckpoint(files, 'run', 1, adapterCheckpoint(1));
  const fileAt = async (path: string) => new File([entry(files.contents, path)], path);
  const exported = () =>
    exportFile(
      { ...memoryHost(files), fileAt } as unknown as BrowserHost,
      { newPath: async () => 'exported' } as unknown as Exports,
      { name: 'mine', folder: FOLDER, adapter: FOLDER, base: undefined },
      { form: 'adapter' },
    );
  expect((await exported()).name).toBe('mine-adapter.zip');
  const bytes = entry(files.contents, `${FOLDER}/adapter_model.safetensors`);
  bytes[bytes.length - 1]! ^= 1;
  await expect(exported()).rejects.toThrow(`${FOLDER}/adapter_model.safetensors: its SHA-256 is not the one in`);
});

test('one of an earlier version, whose states are in one file: every bit of it is checked, and another one takes its place there', async () => {
  const files = await saved();
  await asEarlierVersion(files, FOLDER);
  expect(await refusal(loadCheckpoint(files, 'run'))).toBe('nothing');
  expect(await refusal(loadState(files, 'run'))).toBe('nothing');
  const bytes = entry(files.contents, `${FOLDER}/trainer_state.json`);
  for (let at = 0; at < bytes.length; at++) {
    bytes[at]! ^= 1 << (at % 8);
    for (const load of [loadCheckpoint, loadState])
      expect(await refusal(load(files, 'run'))).toContain(`${FOLDER}/trainer_state.json: its SHA-256`);
    bytes[at]! ^= 1 << (at % 8);
  }
  const state = { format: 'holdfast 1', step: 8 };
  await replaceState(files, FOLDER, state);
  expect((await loadCheckpoint(files, 'run')).state).toEqual(state);
  expect(await files.list(FOLDER)).toEqual(
    [...FILES, 'SHA256SUMS'].filter((name) => name !== 'holdfast_state.json').sort(),
  );
});

describe('what is opened is checked', () => {
  const flipped = async (name: string) => {
    const files = await saved();
    const bytes = entry(files.contents, `${FOLDER}/${name}`);
    bytes[bytes.length - 5]! ^= 1;
    return files;
  };
  const openers = {
    loadWeights: (files: MemoryFiles) => loadWeights(files, 'run'),
    withWeights: (files: MemoryFiles) => withWeights(files, 'run', ({ weights }) => collect(weights)),
    loadState: (files: MemoryFiles) => loadState(files, 'run'),
  };
  test.each([
    ['loadWeights', ['config.json', 'model.safetensors', 'SHA256SUMS']],
    ['withWeights', ['config.json', 'model.safetensors', 'SHA256SUMS']],
    ['loadState', ['config.json', 'holdfast_state.json', 'SHA256SUMS']],
  ] as const)('%s: %s', async (opener, checked) => {
    const open = openers[opener];
    for (const name of [...FILES, 'SHA256SUMS']) {
      const said = await refusal(open(await flipped(name)));
      if ((checked as readonly string[]).includes(name)) expect(said).toContain(`${FOLDER}/${name}`);
      else expect(said).toBe('nothing');
    }
  });

  test('in pieces: no file of tensors is read whole', async () => {
    const files = new MemoryFiles();
    const length = 2 ** 20 + 2 ** 19 + 3;
    const one = sourceOf(new Map([['ln_f.bias', new Float32Array(length).fill(1)]]));
    const big = { weights: one, moment1: one, moment2: one, shapes: new Map([['ln_f.bias', [length]]]) };
    await saveCheckpoint(files, 'run', 1, { ...tinyCheckpoint(1), ...big });
    const { read, readRange } = files;
    const ranges: number[] = [];
    files.read = (path) => {
      expect(path).not.toContain('safetensors');
      return read.call(files, path);
    };
    files.readRange = (path, offset, bytes) => {
      ranges.push(bytes);
      return readRange.call(files, path, offset, bytes);
    };
    await loadCheckpoint(files, 'run');
    expect(Math.max(...ranges)).toBe(4 * 2 ** 20);
  });
});

describe('a SHA256SUMS', () => {
  const changed = async (change: (lines: string[]) => string[] | undefined) => {
    const files = await saved();
    const path = `${FOLDER}/SHA256SUMS`;
    const lines = new TextDecoder()
      .decode(await files.read(path))
      .split('\n')
      .slice(0, -1);
    const now = change(lines);
    if (now) await files.writeAtomic(path, now.map((line) => `${line}\n`).join(''));
    else await files.remove(path);
    return refusal(loadCheckpoint(files, 'run'));
  };
  const none = '0'.repeat(64);
  const first = (lines: string[], change: (line: string) => string) =>
    lines.map((line, i) => (i === 0 ? change(line) : line));

  test('that is not there, as with earlier versions: nothing is checked', async () => {
    expect(await changed(() => undefined)).toBe('nothing');
  });

  test('in another order is as good', async () => {
    expect(await changed((lines) => lines.reverse())).toBe('nothing');
  });

  test.each<[string, (lines: string[]) => string[], string]>([
    [
      'without a line',
      (lines) => lines.slice(1),
      'SHA256SUMS: names holdfast_state.json, model.safetensors, optimizer',
    ],
    [
      'with a line twice',
      (lines) => [...lines, ...lines.slice(0, 1)],
      'SHA256SUMS: names config.json, holdfast_state.json, model',
    ],
    [
      'with one instead of another',
      (lines) => [...lines.slice(1), ...lines.slice(1, 2)],
      'SHA256SUMS: names holdfast_state.json, model',
    ],
    ['with a file more', (lines) => [...lines, `${none}  README.md`], 'SHA256SUMS: names config.json'],
    ['of nothing', () => [], 'SHA256SUMS: has lines that are no SHA-256'],
    ['in upper case', (lines) => first(lines, (line) => line.toUpperCase()), 'SHA256SUMS: has lines'],
    ['with one space', (lines) => first(lines, (line) => line.replace('  ', ' ')), 'SHA256SUMS: has lines'],
    ['of the binary kind', (lines) => first(lines, (line) => line.replace('  ', ' *')), 'SHA256SUMS: has lines'],
    ['with a path', (lines) => first(lines, (line) => line.replace('  ', '  ../')), 'SHA256SUMS: has lines'],
    ['with a short sum', (lines) => first(lines, (line) => line.slice(1)), 'SHA256SUMS: has lines'],
    ['with CRLF', (lines) => lines.map((line) => `${line}\r`), 'SHA256SUMS: has lines'],
    ['of zeros', (lines) => first(lines, (line) => none + line.slice(64)), 'config.json: its SHA-256 is not the one'],
  ])('%s is refused', async (_, change, message) => {
    const said = await changed(change);
    expect(said).toContain(`${FOLDER}/`);
    expect(said).toContain(message);
    expect(said).not.toContain('\n');
  });

  test('that names a file which is not there is refused: not all of the checkpoint was copied', async () => {
    const files = await saved();
    await files.remove(`${FOLDER}/optimizer.safetensors`);
    expect(await refusal(loadWeights(files, FOLDER))).toContain(
      'SHA256SUMS: names optimizer.safetensors, which is not',
    );
  });
});

test('another state, and its sum: the rest stays as it was', async () => {
  const files = await saved();
  const before = new Map(files.contents);
  const state = { format: 'holdfast 1', step: 8 };
  await replaceState(files, FOLDER, state);
  expect((await loadCheckpoint(files, 'run')).state).toEqual(state);
  const changed = [...files.contents].filter(([path, bytes]) => before.get(path) !== bytes).map(([path]) => path);
  expect(changed.sort()).toEqual([`${FOLDER}/SHA256SUMS`, `${FOLDER}/holdfast_state.json`]);
  // One without sums gets none: those of its other files are not known.
  await files.remove(`${FOLDER}/SHA256SUMS`);
  await replaceState(files, FOLDER, state);
  expect(await files.list(FOLDER)).toEqual(FILES);
});
