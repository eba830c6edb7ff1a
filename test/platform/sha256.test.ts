// Hashes in WebAssembly, whose instances are used again: of several at once each has its own bytes, and what was read of one stays.

import { createHash } from 'node:crypto';
import { afterEach, expect, test, vi } from 'vitest';
import { sha256 } from '../../src/runtime/browser/sha256.ts';

const instantiate = vi.spyOn(WebAssembly, 'instantiate');
afterEach(() => instantiate.mockClear());

const bytesOf = (text: string) => new TextEncoder().encode(text);
const wanted = (text: string) => createHash('sha256').update(text).digest('hex');

test('files one after the other are hashed in one instance, each from its beginning', async () => {
  for (const text of ['', 'one', 'another, longer', 'one']) {
    const hash = await sha256();
    for (const piece of text.split(',')) hash.update(bytesOf(piece));
    expect(hash.hex()).toBe(wanted(text.replaceAll(',', '')));
    expect(hash.hex()).toBe(wanted(text.replaceAll(',', '')));
  }
  expect(instantiate.mock.calls.length).toBeLessThanOrEqual(1);
});

test('those that are under way at once do not mix, and one that is done takes no more', async () => {
  const [one, two] = [await sha256(), await sha256()];
  one.update(bytesOf('a'));
  two.update(bytesOf('b'));
  expect(one.hex()).toBe(wanted('a'));
  const third = await sha256();
  third.update(bytesOf('c'));
  two.update(bytesOf('b'));
  expect(() => one.update(bytesOf('a'))).toThrow('internal: a hash that is done');
  expect([third.hex(), two.hex(), one.hex()]).toEqual([wanted('c'), wanted('bb'), wanted('a')]);
});
