// Files that are brought as text: what is wrong with each, by its first bytes.

import { expect, test } from 'vitest';
import { problemOf } from '../../demo/data.ts';

const CHINESE = '这是我的私人笔记没有空格'.repeat(200);
const file = (bytes: Uint8Array<ArrayBuffer> | string) => new File([bytes], 'notes.txt');
const utf16 = (text: string) => Uint8Array.from(Buffer.from(`\ufeff${text}`, 'utf16le'));
const latin1 = (text: string) => Uint8Array.from(Buffer.from(text, 'latin1'));

test.each([
  ['an empty file', file(''), 'is empty'],
  ['English in UTF-16', file(utf16('private notes')), 'is in UTF-16'],
  ['Chinese in UTF-16, which has no byte 0', file(utf16(CHINESE)), 'is in UTF-16'],
  ['French in Latin-1', file(latin1('d\u00e9j\u00e0 vu '.repeat(300))), 'is not in UTF-8'],
  ['a JPEG', file(Uint8Array.of(0xff, 0xd8, 0xff, 0xe0, 0, 16)), 'is no text'],
  ['Chinese in UTF-8, cut within a character at 64 KiB', file(CHINESE.repeat(20)), undefined],
  ['a text with a stray byte', file(latin1(`${'plain words '.repeat(500)}\u00e9`)), undefined],
  ['a text that begins with a byte order mark', file('\ufeffplain words'), undefined],
])('%s', async (_, given, problem) => {
  expect(await problemOf(given)).toBe(problem);
});
