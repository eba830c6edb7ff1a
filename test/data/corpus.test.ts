import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { defaultCorpus, loadCorpus, split } from '../../src/data/corpus.ts';
import { allOf } from '../../src/runtime/headless/all-of.ts';
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
    for (const name of ['a', 'deep/b', 'deep/er/c', 'other/d']) writeFileSync(at(name), name.slice(-1));
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

describe('a stream of unknown size has a bound, and the error says what to do', () => {
  const FIX = 'it has more than 1.07 GB; write it to a file first, and name that';
  /** Ends where a bound is missing: twice behind it. */
  async function* endless() {
    const piece = new Uint8Array(2 ** 26);
    for (let read = 0; read < 2 ** 31; read += piece.length) yield piece;
  }
  test('a pipe', async () => {
    class PipedFiles extends MemoryFiles {
      override stat = async () => ({ kind: 'pipe' as const, bytes: 0 });
      override read = (path: string, most?: number, fix?: string) => allOf(endless(), path, most, fix);
    }
    await expect(loadCorpus(memoryHost(new PipedFiles()), ['pipe'])).rejects.toThrow(`cannot read pipe: ${FIX}`);
  });

  test('several pipes, all together', async () => {
    class PipedFiles extends MemoryFiles {
      override stat = async () => ({ kind: 'pipe' as const, bytes: 0 });
      override read = async (path: string, most?: number, fix?: string) =>
        path === 'half' ? new Uint8Array(2 ** 29) : allOf(endless(), path, most, fix);
    }
    const host = memoryHost(new PipedFiles());
    await expect(loadCorpus(host, ['half', 'endless'])).rejects.toThrow(
      'cannot read endless: it has more than 537 MB; with the pipes before it, 1.07 GB in all; write it to a file first',
    );
  });

  test('standard input that never ends', async () => {
    const stdin = process.stdin;
    Object.defineProperty(process, 'stdin', { value: endless(), configurable: true });
    try {
      await expect(loadCorpus(headlessHost(), ['-'])).rejects.toThrow(`cannot read standard input: ${FIX}`);
    } finally {
      Object.defineProperty(process, 'stdin', { value: stdin, configurable: true });
    }
  });

  test('up to it, nothing is lost', async () => {
    async function* pieces() {
      for (const piece of ['ab', '', 'c']) yield new TextEncoder().encode(piece);
    }
    expect(text(await allOf(pieces(), 'x', 3))).toBe('abc');
    await expect(allOf(pieces(), 'x', 2, 'less')).rejects.toThrow('cannot read x: it has more than 2 B; less');
  });
});

describe('defaultCorpus', () => {
  const packed = readFileSync(new URL('../../assets/example.txt.gz', import.meta.url));
  const at = '/package/assets/example.txt.gz';

  test.each([
    ['as it lies in the package', packed],
    ['unpacked by a server', gunzipSync(packed)],
  ])('is the text that all figures are bound to: %s', async (_, stored) => {
    const { bytes } = await defaultCorpus(memoryHost(new MemoryFiles({ [at]: stored })));
    expect(bytes.length).toBe(3_784_293);
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      '0623bc0bdba11eec8a241859abf73503bf748f53448d7e0043722e1fc1c4450d',
    );
  });

  test('says what to do where it is damaged', async () => {
    const files = new MemoryFiles({ [at]: packed.subarray(0, 1000) });
    await expect(defaultCorpus(memoryHost(files))).rejects.toThrow(
      /^the example text is damaged .*install the package/,
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
