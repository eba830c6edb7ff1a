import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { defaultCorpus, loadCorpus, split } from '../../src/data/corpus.ts';
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
    await expect(loadCorpus(empty, ['/e'])).rejects.toThrow('corpus /e: no text in it (1 binary files skipped)');
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
