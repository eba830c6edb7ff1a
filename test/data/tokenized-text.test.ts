// A text as token ids: the same in pieces as in one, once made and then read from the cache, and made again where that is
// damaged; meanwhile others have their turn.

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { openText } from '../../src/data/corpus.ts';
import { type TokenizedText, tokenizedText } from '../../src/data/tokenized-text.ts';
import { ByteTokenizer, type Tokenizer } from '../../src/data/tokenizer.ts';
import { SELF } from '../../src/runtime/headless/processes.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError, Stopped } from '../../src/util/errors.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { idsOf } from './ids-of.ts';
import { bert, llama2, made, SMALL } from './tokenizers.ts';

const TEXT = 'The thing is, it’s 12 日本 lines.\nAnother one in there:\n\n  the end 😀. '.repeat(4000);

const host = (files: MemoryFiles) => memoryHost(files);
const corpus = (files: MemoryFiles, data = ['text.txt']) => openText(host(files), { data, seed: 0 });

/** The parts, each tokenized as a whole. */
function expected(text: string, tokenizer: Tokenizer) {
  const bytes = new TextEncoder().encode(text);
  let border = Math.floor((bytes.length * 9) / 10);
  while (((bytes[border] ?? 0) & 0xc0) === 0x80) border++;
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return [bytes.subarray(0, border), bytes.subarray(border)].map((part) => [...tokenizer.encode(decoder.decode(part))]);
}

const found = async ({ train, validation }: TokenizedText) => [await idsOf(train), await idsOf(validation)];

test.each([
  ['GPT-2', SMALL],
  ['Llama 2', llama2()],
  ['BERT', bert()],
])('in pieces, the ids are those of the whole: %s', async (_, json) => {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const source = await corpus(files);
  const text = await tokenizedText(host(files), source, made(json));
  expect(await found(text)).toEqual(expected(TEXT, made(json)));
  expect(text.identity.bytes).toBe(new TextEncoder().encode(TEXT).length);
});

test('the border between training and validation is a character’s, wherever files and pieces end', async () => {
  const tokenizer = made(llama2());
  const parts = fc.array(fc.constantFrom('a', 'é', '日', '😀', ' ', 'the '), { minLength: 2, maxLength: 30 });
  const property = fc.asyncProperty(parts, fc.array(fc.nat({ max: 100 }), { maxLength: 4 }), async (parts, ends) => {
    const bytes = new TextEncoder().encode(parts.join(''));
    // Files that end inside of characters.
    const cuts = [0, ...ends.map((end) => end % bytes.length).sort((a, b) => a - b), bytes.length];
    const pieces = cuts.slice(1).map((end, i) => bytes.subarray(cuts[i], end));
    const files = new MemoryFiles(Object.fromEntries(pieces.map((piece, i) => [`t/${i}`, piece])));
    const text = await tokenizedText(host(files), await corpus(files, ['t']), tokenizer);
    expect(await found(text)).toEqual(expected(parts.join(''), tokenizer));
  });
  await fc.assert(property, { seed: 10, numRuns: 100 });
});

test('is tokenized once: then it comes from the cache, whatever its path is, and again where that is damaged', async () => {
  const files = new MemoryFiles({ 'text.txt': TEXT, 'copy/of.txt': TEXT });
  const tokenizer = made(SMALL);
  const encode = vi.spyOn(tokenizer, 'encode');
  // As one string: hundreds of thousands of ids are not for toEqual.
  const read = async (path = 'text.txt') =>
    JSON.stringify(await found(await tokenizedText(host(files), await corpus(files, [path]), tokenizer)));
  const first = await read();
  const calls = encode.mock.calls.length;
  expect(calls).toBeGreaterThan(3);
  expect(await read('copy')).toEqual(first);
  expect(encode.mock.calls.length).toBe(calls);
  const names = () => [...files.contents.keys()].filter((path) => path.startsWith('/cache/tokens/'));
  expect(names()).toHaveLength(1);
  const [name = ''] = names();
  const whole = await files.read(name);
  /** The line behind the ids, with another border. */
  const moved = (bytes: Uint8Array<ArrayBuffer>) => {
    const line = new TextDecoder().decode(bytes.subarray(-512));
    const other = line.replace(/"train":(\d+),"validation":(\d+)/, (_, train, validation) => {
      return `"train":${Number(train) - 1},"validation":${Number(validation) + 1}`;
    });
    expect(other).not.toBe(line);
    bytes.set(new TextEncoder().encode(other), bytes.length - 512);
    return bytes;
  };
  const other = await tokenizedText(host(files), await corpus(files), made(llama2()));
  const [, otherName = ''] = names();
  const foreign = await files.read(otherName);
  files.contents.delete(otherName);
  const damages: [string, (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>][] = [
    ['a bit', (bytes) => bytes.map((byte, i) => (i === 1000 ? byte ^ 4 : byte))],
    ['cut off', (bytes) => bytes.slice(0, -300)],
    ['cut off in the line', (bytes) => bytes.slice(0, -10)],
    ['empty', () => new Uint8Array()],
    ['its last line alone', (bytes) => bytes.slice(-512)],
    ['another border', (bytes) => moved(bytes.slice())],
    ['another’s', () => foreign.slice()],
    ['garbage', (bytes) => bytes.map((_, i) => (i * 31) % 251)],
  ];
  for (const [what, damage] of damages) {
    files.contents.set(name, damage(whole));
    const before = encode.mock.calls.length;
    expect(await read(), what).toEqual(first);
    expect(encode.mock.calls.length, what).toBe(before + calls);
    expect(names(), what).toEqual([name]);
    expect(Buffer.from(whole).equals(await files.read(name)), what).toBe(true);
  }
  // Another tokenizer, other ids.
  expect(JSON.stringify(await found(other))).not.toEqual(first);
});

test('what a writer that was killed left in the cache goes with the next one', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-tokens-'));
  try {
    const { files } = headlessHost();
    const cache = path.join(folder, 'tokens');
    mkdirSync(cache);
    const { pid } = spawnSync(process.execPath, ['--version']);
    const name = `00000007-${'a'.repeat(64)}.tokens.partial-${SELF.place}-${pid}-${SELF.started}-0`;
    writeFileSync(path.join(cache, name), 'x');
    const real = memoryHost(files, { cacheFolder: folder });
    const source = await openText(memoryHost(new MemoryFiles({ 'text.txt': TEXT })), { data: ['text.txt'], seed: 0 });
    await tokenizedText(real, source, made(SMALL));
    expect(readdirSync(cache)).toEqual([expect.stringMatching(/^00000001-[0-9a-f]{64}\.tokens$/)]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a cache that cannot be written costs nothing but time, and leaves nothing behind', async () => {
  class Full extends MemoryFiles {
    written = 0;
    override async writeStream(path: string) {
      const stream = await super.writeStream(path);
      return {
        ...stream,
        write: async (bytes: Uint8Array) => {
          this.written += bytes.length;
          if (this.written > 50_000) throw new HoldfastError('the disk is full');
          await stream.write(bytes);
        },
      };
    }
  }
  const files = new Full({ 'text.txt': TEXT });
  const text = await tokenizedText(host(files), await corpus(files), made(SMALL));
  expect(await found(text)).toEqual(expected(TEXT, made(SMALL)));
  expect([...files.contents.keys()]).toEqual(['text.txt']);
});

test('others have their turn meanwhile, progress is told, and it can be ended', async () => {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const abort = new AbortController();
  let turns = 0;
  const timer = setInterval(() => turns++, 0);
  const told: number[] = [];
  const total = new TextEncoder().encode(TEXT).length;
  try {
    await tokenizedText(host(files), await corpus(files), made(SMALL), {
      onProgress: (done, all) => {
        told.push(done);
        expect(all).toBe(total);
      },
    });
  } finally {
    clearInterval(timer);
  }
  expect(turns).toBeGreaterThan(3);
  expect(told.length).toBeGreaterThan(3);
  expect(told).toEqual(told.toSorted((a, b) => a - b));
  expect(told.at(-1)).toBe(total);
  const fresh = new MemoryFiles({ 'text.txt': TEXT });
  const ended = tokenizedText(host(fresh), await corpus(fresh), made(SMALL), {
    signal: abort.signal,
    onProgress: () => abort.abort(),
  });
  await expect(ended).rejects.toThrow('stopped while the text was tokenized');
  expect([...fresh.contents.keys()]).toEqual(['text.txt']);
});

test('a text that changes while it is read is none to learn from', async () => {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const source = await corpus(files);
  let reads = 0;
  const pieces = () => {
    if (++reads === 2) files.contents.set('text.txt', new TextEncoder().encode(TEXT.replace('end', 'and')));
    return source.pieces();
  };
  await expect(tokenizedText(host(files), { ...source, pieces }, made(SMALL))).rejects.toThrow(
    'was changed while it was read',
  );
  expect([...files.contents.keys()]).toEqual(['text.txt']);
});

test('bytes are their own ids, and no cache is made of them', async () => {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const text = await tokenizedText(host(files), await corpus(files), new ByteTokenizer());
  const bytes = new TextEncoder().encode(TEXT);
  const border = Math.floor((bytes.length * 9) / 10);
  expect(await found(text)).toEqual([[...bytes.subarray(0, border)], [...bytes.subarray(border)]]);
  expect([...files.contents.keys()]).toEqual(['text.txt']);
});

test('what validates is another share, or another text; neither is taken for what was cached of another border', async () => {
  const files = new MemoryFiles({ 'text.txt': TEXT, 'other.txt': 'The other thing, 12 lines 日本.\n'.repeat(2000) });
  const [tokenizer, source, other] = [made(SMALL), await corpus(files), await corpus(files, ['other.txt'])];
  const bytes = new TextEncoder().encode(TEXT);
  const ids = (text: string) => [...tokenizer.encode(text)];
  for (let round = 0; round < 2; round++) {
    expect(await found(await tokenizedText(host(files), source, tokenizer))).toEqual(expected(TEXT, tokenizer));
    const [train, validation] = await found(await tokenizedText(host(files), source, tokenizer, { heldBack: 0.5 }));
    const border = tokenizer.decode(train ?? []).length;
    expect(new TextEncoder().encode(TEXT.slice(0, border)).length - bytes.length / 2).toBeLessThan(4);
    expect([train, validation]).toEqual([ids(TEXT.slice(0, border)), ids(TEXT.slice(border))]);
    const told: [number, number][] = [];
    const onProgress = (done: number, total: number) => void told.push([done, total]);
    const text = await tokenizedText(host(files), source, tokenizer, { heldBack: other, onProgress });
    expect(text.identity.bytes).toBe(source.bytes);
    expect(await found(text)).toEqual([ids(TEXT), ids('The other thing, 12 lines 日本.\n'.repeat(2000))]);
    // The second time all of it comes from the cache.
    const total = source.bytes + other.bytes;
    expect(told.at(-1)).toEqual(round === 0 ? [total, total] : undefined);
  }
  const plain = await tokenizedText(host(files), source, new ByteTokenizer(), { heldBack: other });
  expect([plain.train.length, plain.validation.length]).toEqual([source.bytes, other.bytes]);
});

test.each([
  ['bytes', new ByteTokenizer()],
  ['tokens', made(SMALL)],
])('reading is ended before a text becomes %s', async (_, tokenizer) => {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const signal = AbortSignal.abort();
  await expect(tokenizedText(host(files), await corpus(files), tokenizer, { signal })).rejects.toThrow(
    new Stopped('stopped while the text was read, before the first step; start again'),
  );
});
