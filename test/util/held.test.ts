// Memory for what is held whole: zeros, and a clear error for more than there can be.

import { expect, test } from 'vitest';
import { loadCorpus } from '../../src/data/corpus.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { heldBytes } from '../../src/util/held.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

/** More than any typed array has. */
const TOO_MANY = 2 ** 54;

test('bytes are zeros; too many of them name what has them, and the fix', () => {
  expect(heldBytes(3, 'it', 'shrink it')).toEqual(new Uint8Array(3));
  const tooMany = () => heldBytes(TOO_MANY, 'it', 'shrink it');
  expect(tooMany).toThrow(HoldfastError);
  expect(tooMany).toThrow(/^it has 18014 TB, which this runtime cannot hold in memory; shrink it$/);
});

test('a text that is too large to be held is refused in one line', async () => {
  class Huge extends MemoryFiles {
    override async stat(path: string) {
      const found = await super.stat(path);
      return found && { ...found, bytes: TOO_MANY };
    }
  }
  const huge = loadCorpus(memoryHost(new Huge({ 'text.txt': 'text' })), ['text.txt']);
  await expect(huge).rejects.toThrow(
    'the text has 18014 TB, which this runtime cannot hold in memory; use a part of it',
  );
});
