// Values and errors as texts: whatever is given, or thrown, something is said of it, and nothing is thrown on the way.

import { expect, test } from 'vitest';
import { asText, HoldfastError, messageOf, Stopped } from '../../src/util/errors.ts';
import { show } from '../../src/util/json.ts';

const strange = {
  toString() {
    throw new Error('no');
  },
};

test.each<[unknown, string, string]>([
  ['text', 'text', '"text"'],
  [undefined, 'undefined', 'missing'],
  [Number.NaN, 'NaN', 'NaN'],
  [1n, '1', '1n'],
  [Symbol('a'), 'Symbol(a)', 'symbol'],
  [Object.create(null), 'an object', 'an object'],
  [strange, 'an object', 'an object'],
  [[Object.create(null)], 'an object', 'a list of 1'],
])('%o', (value, text, shown) => {
  expect(asText(value)).toBe(text);
  expect(messageOf(value)).toBe(text);
  expect(show(value)).toBe(shown);
  if (value === undefined) return;
  expect(new HoldfastError(value as string).message).toBe(text);
  expect(new Stopped(value as string).message).toBe(text);
});

test('an error without a message has none, and one has its cause', () => {
  expect(new HoldfastError().message).toBe('');
  const cause = new Error('why');
  expect(new HoldfastError('what', { cause }).cause).toBe(cause);
});
