// What comes through standard input and pipes in another form than text: refused by its first bytes with what to do, as files are by
// their names; what only looks like one is read.

import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { loadCorpus } from '../../src/data/corpus.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { refusal } from './refusal.ts';

const encode = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const utf16 = (text: string): Uint8Array => new Uint8Array(Buffer.from(`\ufeff${text}`, 'utf16le'));
const tar = (): Uint8Array => {
  const header = new Uint8Array(512);
  header.set(encode('a.txt'));
  header.set(encode('ustar'), 257);
  return header;
};

const REFUSED: Readonly<Record<string, readonly [content: Uint8Array, says: string]>> = {
  'UTF-16, little-endian': [utf16('text'), 'is in UTF-16, and text is read in UTF-8; .*: iconv -f UTF-16 -t UTF-8'],
  'UTF-16, big-endian': [utf16('text').map((_, i, all) => all[i ^ 1] ?? 0), 'is in UTF-16'],
  PDF: [encode('%PDF-1.7\n%\xe2'), 'is a PDF document, which is not read; send its text: pdftotext FILE -'],
  DOCX: [encode('PK\x03\x04\x14\0'), 'is a ZIP archive, as DOCX, ODT and EPUB documents are, .* pandoc FILE -t plain'],
  TAR: [tar(), 'is a TAR archive, which is not read; send the texts in it: tar -xOf FILE'],
  gzip: [gzipSync('text'), 'is packed by gzip, .*: gzip -dc'],
  zstd: [new Uint8Array([0x28, 0xb5, 0x2f, 0xfd, 0]), 'is packed by zstd, .*: zstd -dc'],
  bzip2: [new Uint8Array([...encode('BZh91AY&SY'), 0x94, 0xf2, 0, 0x80]), 'is packed by bzip2, .*: bzip2 -dc'],
  xz: [new Uint8Array([0xfd, ...encode('7zXZ\0')]), 'is packed by xz, .*: xz -dc'],
  Parquet: [encode('PAR1\x15\x04\x15\0'), 'is a Parquet file, which is not read; write JSONL'],
  PNG: [new Uint8Array([0x89, ...encode('PNG\r\n\x1a\n\0')]), 'is a PNG image, and no text; name a text; images are'],
  'records, a line each': [encode('{"text": "a"}\n{"text": "b"}\n'), 'brings JSON records, which are read from files'],
  'a record that has a label': [encode('{"sentence": "a", "label": 1}'), 'brings JSON records'],
  'a list of records': [encode('[\n  {"prompt": "a", "completion": "b"},\n'), 'brings JSON records'],
  'a list in one line': [encode('\ufeff[{"text": "a"}, {"text": "b"}]'), 'brings JSON records'],
};
const READ: Readonly<Record<string, Uint8Array>> = {
  text: encode('hold fast'),
  'bytes of any kind': new Uint8Array([0, 1, 2, 255, 254]),
  'another object a line': encode('{"time": 1}\n{"time": 2}\n'),
  'code that begins with a bracket': encode('{ "text": a }\n[x, y] = [y, x]\n'),
  'a short one': encode('P'),
  'words that another form begins with': encode('BZh is no word, PAR1 is none, too'),
  'a line about PDF': encode('%PDF is how a document of that kind begins'),
};

const pipes = (content: Uint8Array) => {
  class Piped extends MemoryFiles {
    override stat = async () => ({ kind: 'pipe' as const, bytes: 0 });
    override read = async () => new Uint8Array(content);
  }
  return memoryHost(new Piped());
};
const input = (content: Uint8Array) => ({
  ...memoryHost(new MemoryFiles()),
  readStandardInput: async () => new Uint8Array(content),
});

test.each(Object.entries(REFUSED))('%s is refused', async (_, [content, says]) => {
  expect(await refusal(loadCorpus(input(content), ['-']))).toMatch(new RegExp(`^standard input: ${says}`));
  expect(await refusal(loadCorpus(pipes(content), ['/dev/fd/63']))).toMatch(new RegExp(`^/dev/fd/63: ${says}`));
});

test.each(Object.entries(READ))('%s is read as it comes', async (_, content) => {
  expect((await loadCorpus(input(content), ['-'])).bytes).toEqual(content);
});
