// Files that are no text by their first bytes, whatever their names: refused by the command line and the page in the same words, with what
// to do; passed over in folders. No text is taken for one.

import { deflateSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { problemOf } from '../../demo/data.ts';
import { unreadForm } from '../../src/browser/index.ts';
import { loadCorpus } from '../../src/data/corpus.ts';
import { holdRecords } from '../../src/data/records/record-files.ts';
import { inProcess } from '../cli/in-process.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { refusal } from './refusal.ts';

const bytes = (...parts: (string | number)[]): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(parts.flatMap((part) => (typeof part === 'string' ? [...Buffer.from(part, 'latin1')] : [part])));
const noise = Uint8Array.from({ length: 5000 }, (_, i) => (Math.imul(i + 1, 2_654_435_761) >>> 24) & 0xff);
const PROSE = 'Hold fast to what is good. '.repeat(40);
const utf16 = (text: string) => Uint8Array.from(Buffer.from(`\ufeff${text}`, 'utf16le'));
const tar = () => {
  const header = new Uint8Array(512);
  header.set(bytes('a.txt'));
  header.set(bytes('ustar'), 257);
  return bytes(...header, PROSE);
};

const REFUSED: Readonly<Record<string, readonly [content: Uint8Array<ArrayBuffer>, says: string]>> = {
  PDF: [
    bytes('%PDF-1.7\n%', 0xe2, 0xe3, '\n'),
    'is a PDF document, which is not read; write its text: pdftotext "a.txt" "a-utf-8.txt"',
  ],
  'a PDF without a byte that no text has': [
    bytes('%PDF-1.4\n1 0 obj\n'),
    'is a PDF document, which is not read; write its text',
  ],
  ZIP: [
    bytes('PK', 3, 4, 20, 0),
    'is a ZIP archive, as DOCX, ODT and EPUB documents are, which is not read; write the text in it: unzip -p "a.txt" > "a-utf-8.txt", of a document pandoc -f docx (odt, epub) "a.txt" -t plain -o "a-utf-8.txt"',
  ],
  TAR: [tar(), 'is a TAR archive, which is not read; write the texts in it: tar -xOf "a.txt" > "a-utf-8.txt"'],
  gzip: [
    Uint8Array.from(gzipSync(PROSE)),
    'is packed by gzip, and text is read as it is; write what is in it: gzip -dc < "a.txt" > "a-utf-8.txt"',
  ],
  Parquet: [
    bytes('PAR1', 0x15, 4, 0x15, 0),
    'is a Parquet file, which is not read; write JSONL to a file, and name that',
  ],
  PNG: [
    bytes(0x89, 'PNG\r\n', 0x1a, '\n'),
    'is a PNG image, and no text; name a text; images are learned by a model that looks at',
  ],
  JPEG: [bytes(0xff, 0xd8, 0xff, 0xe0), 'is a JPEG image, and no text'],
  GIF: [bytes('GIF89a', 1, 0), 'is a GIF image, and no text'],
  WebP: [bytes('RIFF', 9, 0, 0, 0, 'WEBPVP8 '), 'is a WebP image, and no text'],
  'UTF-16': [
    utf16('a text'),
    'is in UTF-16, and text is read in UTF-8; write that: iconv -f UTF-16 -t UTF-8 "a.txt" > "a-utf-8.txt"',
  ],
  'Chinese in UTF-16, which has no byte 0': [utf16('\u6211\u7684\u7b14\u8bb0'), 'is in UTF-16'],
  'another binary file': [
    bytes('MZ', ...noise),
    `seems to be a binary file, and no text: of its first 5,002 bytes ${noise.filter((byte) => byte === 0).length} are 0; name a text, or write one without them: tr -d '\\0' < "a.txt" > "a-utf-8.txt"`,
  ],
  'what is packed otherwise': [
    Uint8Array.from(deflateSync(Uint8Array.from({ length: 40_000 }, (_, i) => noise[(i * 7 + (i >> 5)) % 5000] ?? 0))),
    'seems to be a binary file, and no text',
  ],
};

test.each(Object.entries(REFUSED))('%s', async (_, [content, says]) => {
  const host = memoryHost(new MemoryFiles({ 'a.txt': content, 'd/a.txt': content, 'd/b.txt': 'a text' }));
  const told = await refusal(holdRecords(host, ['a.txt']));
  expect(told.startsWith(`a.txt: ${says}`), told).toBe(true);
  expect(`a.txt: ${await unreadForm(new File([content], 'a.txt'))}`).toBe(told);
  // In a folder it is passed over, and counted.
  expect(await holdRecords(host, ['d'])).toBe(false);
  expect(await loadCorpus(host, ['d'])).toMatchObject({ names: ['d/b.txt'], skipped: 1 });
});

const READ: Readonly<Record<string, Uint8Array<ArrayBuffer> | string>> = {
  'a short text': 'a',
  'a text in Greek, Chinese and pictures': 'κράτει 抓紧 🪢 '.repeat(100),
  'a character that goes on behind what is looked at': `GIF8${'抓'.repeat(30_000)}`,
  'a text with a byte order mark': '\ufeffa text',
  'Latin-1': bytes('d', 0xe9, 'j', 0xe0, ' vu '.repeat(99)),
  'a text with a stray NUL': `${PROSE}\0${PROSE}`,
  'a text with colours of a terminal, pages and backspaces': '\x1b[1mbold\x1b[0m\fa\bb\v\x1a',
  'words that other forms begin with': 'PAR1 GIF89a BZh9 ARROW1 ustar',
  'a line about PDF': '%PDF files begin with %PDF- and a version.\n',
  'PAR1 as a word': `PAR1 ${PROSE}`,
  'GIF89a as a word': `GIF89a ${PROSE}`,
  'BZh as a word': `BZh ${PROSE}`,
  'PK as a word': `PK ${PROSE}`,
};

test.each(Object.entries(READ))('%s is read as it is', async (_, content) => {
  const files = new MemoryFiles({ 'a.txt': content, 'd/a.txt': content });
  const host = memoryHost(files);
  expect(await holdRecords(host, ['a.txt'])).toBe(false);
  expect((await loadCorpus(host, ['a.txt'])).bytes).toEqual(await files.read('a.txt'));
  expect(await unreadForm(new File([content], 'a.txt'))).toBeUndefined();
  if (!(await files.read('a.txt')).includes(0)) expect((await loadCorpus(host, ['d'])).skipped).toBe(0);
  const isEncoded = typeof content === 'string';
  expect(await problemOf(new File([content], 'a.txt'))).toBe(isEncoded ? undefined : 'is not in UTF-8');
});

test.each([
  'train --data a.txt',
  'train --data b.txt --validation a.txt',
  'train --model bert --data a.txt',
  'tokenizer train --data a.txt --out to',
])('%s', async (command) => {
  const files = new MemoryFiles({ 'a.txt': bytes('%PDF-1.7\n'), 'b.txt': PROSE });
  const { status, said } = await inProcess(files, command.split(' '));
  const line =
    'holdfast: a.txt: is a PDF document, which is not read; write its text: pdftotext "a.txt" "a-utf-8.txt"\n';
  expect([status, said]).toEqual([2, line]);
});

test('records that are packed, as their name says, are looked into', async () => {
  const packed = gzipSync('{"text": "a"}\n');
  expect(await holdRecords(memoryHost(new MemoryFiles({ 'a.jsonl.gz': packed })), ['a.jsonl.gz'])).toBe(true);
});
