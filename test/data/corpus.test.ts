import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { defaultCorpus, loadCorpus, split } from '../../src/data/corpus.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

describe('loadCorpus', () => {
  const files = new MemoryFiles({
    '/t/b.txt': 'B',
    '/t/a.txt': 'A',
    '/t/deep/er/c.txt': 'C',
    '/t/picture.bin': Uint8Array.of(80, 0, 81),
    '/t/z.txt': 'Z',
    '/zeros': Uint8Array.of(0, 1),
  });
  const host = memoryHost(files, { readStandardInput: async () => new TextEncoder().encode('stdin') });

  test('joins the files of a folder by name, sub-folders in their place, binary files counted', async () => {
    const corpus = await loadCorpus(host, ['/t']);
    expect(text(corpus.bytes)).toBe('ABCZ');
    expect(corpus.names).toEqual(['/t/a.txt', '/t/b.txt', '/t/deep/er/c.txt', '/t/z.txt']);
    expect(corpus).toMatchObject({ files: 4, skipped: 1 });
  });

  test('joins sources in the order given, standard input among them', async () => {
    const corpus = await loadCorpus(host, ['/t/z.txt', '-', '/t/a.txt']);
    expect(text(corpus.bytes)).toBe('ZstdinA');
    expect(corpus.names).toEqual(['/t/z.txt', '-', '/t/a.txt']);
  });

  test('reads a file that is named, binary or not', async () => {
    expect([...(await loadCorpus(host, ['/zeros'])).bytes]).toEqual([0, 1]);
  });

  test('names what is missing or empty', async () => {
    await expect(loadCorpus(host, ['/t', '/nowhere'])).rejects.toThrow('corpus /nowhere: nothing is there');
    await expect(loadCorpus(host, ['/nowhere'])).rejects.toThrow(HoldfastError);
    const empty = memoryHost(new MemoryFiles({ '/e/x': '', '/e/y': Uint8Array.of(0) }));
    await expect(loadCorpus(empty, ['/e'])).rejects.toThrow(
      'corpus /e: no text in it (1 skipped: binary, or no files)',
    );
  });
});

test('in a real folder, pipes, devices, and links to nothing or upwards are skipped, all else is read', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-corpus-'));
  const at = (...names: string[]) => path.join(folder, ...names);
  try {
    mkdirSync(at('deep', 'er'), { recursive: true });
    mkdirSync(at('other'));
    for (const name of ['a', 'deep/b', 'deep/er/c', 'other/d']) writeFileSync(at(name), name.at(-1) as string);
    expect(spawnSync('mkfifo', [at('pipe')]).status).toBe(0);
    symlinkSync('/dev/zero', at('device'));
    symlinkSync('nothing', at('dangling'));
    symlinkSync('itself', at('itself'));
    symlinkSync('..', at('deep', 'up'));
    symlinkSync('../..', at('deep', 'er', 'top'));
    // Two links to folders that lead into each other, and one to a folder beside: that one is read.
    symlinkSync('../deep', at('other', 'e'));
    symlinkSync('../other', at('deep', 'x'));
    const corpus = await loadCorpus(headlessHost(), [folder]);
    expect(corpus.names.map((name) => path.relative(folder, name))).toEqual([
      ...['a', 'deep/b', 'deep/er/c', 'deep/x/d', 'other/d', 'other/e/b', 'other/e/er/c'],
    ]);
    expect(text(corpus.bytes)).toBe('abcddbc');
    // pipe, device, dangling, itself; up and top, twice each; and e and x below each other.
    expect(corpus.skipped).toBe(10);
    await expect(loadCorpus(headlessHost(), [at('device')])).rejects.toThrow(
      /corpus .*device: a device, a socket or a link to itself is there; name a text file/,
    );
    await expect(loadCorpus(headlessHost(), [at('itself')])).rejects.toThrow(/a link to itself is there/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a pipe that is named is read to its end, as a shell makes one of <(command)', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-corpus-'));
  try {
    const pipe = path.join(folder, 'pipe');
    expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
    const [corpus] = await Promise.all([loadCorpus(headlessHost(), [pipe]), writeFile(pipe, 'through a pipe')]);
    expect(text(corpus.bytes)).toBe('through a pipe');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe('defaultCorpus', () => {
  test('is the declarations of the TypeScript 7 platform package, by name', async () => {
    const files = new MemoryFiles();
    const scope = new URL('../../node_modules/@typescript/', import.meta.url);
    const platform = readdirSync(scope).find((name) => name.startsWith('typescript-'));
    const lib = new URL(`${platform}/lib/`, scope);
    expect(existsSync(lib)).toBe(true);
    for (const name of readdirSync(lib).filter((name) => name.endsWith('.d.ts'))) {
      await files.writeAtomic(
        `/package/node_modules/@typescript/${platform}/lib/${name}`,
        readFileSync(new URL(name, lib)),
      );
    }
    await files.writeAtomic('/package/node_modules/typescript/lib/lib.es5.d.ts', 'not this one');
    const corpus = await defaultCorpus(memoryHost(files));
    // The size that the reference curve was measured on.
    expect(corpus.files).toBe(107);
    expect(corpus.bytes.length).toBe(3_784_293);
    expect(corpus.names).toEqual([...corpus.names].sort());
  });

  test('falls back on earlier TypeScript', async () => {
    const lib = '/package/node_modules/typescript/lib';
    const files = new MemoryFiles({ [`${lib}/lib.b.d.ts`]: 'b', [`${lib}/lib.a.d.ts`]: 'a', [`${lib}/tsc.js`]: 'x' });
    expect(text((await defaultCorpus(memoryHost(files))).bytes)).toBe('ab');
  });

  test('says what to do without it', async () => {
    await expect(defaultCorpus(memoryHost(new MemoryFiles()))).rejects.toThrow(
      'no TypeScript package under /package/node_modules; run npm install',
    );
  });
});

test('split gives nine tenths, rounded down to a whole line, to training and the rest to validation', () => {
  for (const length of [0, 1, 9, 10, 19, 101]) {
    const bytes = new Uint8Array(length).map((_, i) => i);
    for (const lineBytes of [1, 4]) {
      const { train, validation } = split({ bytes, lineBytes });
      expect(train.length).toBe(Math.floor(Math.floor(0.9 * length) / lineBytes) * lineBytes);
      expect([...train, ...validation]).toEqual([...bytes]);
    }
  }
});
