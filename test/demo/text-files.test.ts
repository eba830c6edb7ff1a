// Files that are brought as text: what is wrong with each, by its first bytes.

import { expect, test } from 'vitest';
import { problemOf } from '../../demo/data.ts';

const CHINESE = '这是我的私人笔记没有空格'.repeat(200);
const file = (bytes: Uint8Array<ArrayBuffer> | string) => new File([bytes], 'notes.txt');
const latin1 = (text: string) => Uint8Array.from(Buffer.from(text, 'latin1'));

test.each([
  ['an empty file', file(''), 'is empty'],
  ['French in Latin-1', file(latin1('d\u00e9j\u00e0 vu '.repeat(300))), 'is not in UTF-8'],
  ['Chinese in UTF-8, cut within a character at 64 KiB', file(CHINESE.repeat(20)), undefined],
  ['a text with a stray byte', file(latin1(`${'plain words '.repeat(500)}\u00e9`)), undefined],
  ['a text that begins with a byte order mark', file('\ufeffplain words'), undefined],
])('%s', async (_, given, problem) => {
  expect(await problemOf(given)).toBe(problem);
});
