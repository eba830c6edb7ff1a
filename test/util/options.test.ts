// Options by their names: one that there is not is refused where something is given by it, and nothing else is.

import { expect, test } from 'vitest';
import { anything, check, closed, number, optional } from '../../src/util/json.ts';
import { realNumber } from '../../src/util/range.ts';
import { expectMistake } from '../expect-mistake.ts';

interface Inner {
  peak?: number;
}
interface Outer {
  size: number;
  inner?: Inner;
  other?: unknown;
}
const outer = closed<Outer>({
  size: number(realNumber(0)),
  inner: optional(closed<Inner>({ peak: optional(number(realNumber(0))) })),
  other: anything,
});
const read = (given: unknown) => check(outer, given, 'the options');

test('what is given by names that there are is taken, and so is nothing by another name', () => {
  const inner = { peak: 2 };
  expect(read({ size: 1, inner, other: 'x' })).toEqual({ size: 1, inner, other: 'x' });
  expect(read({ size: 1, inner: undefined, sizes: undefined })).toEqual({ size: 1, inner: undefined });
});

test.each<[unknown, RegExp]>([
  [{ size: 1, sizes: 2 }, /^the options: no option sizes; there are size, inner, other$/],
  // Also where the right one must be there.
  [{ siez: 1 }, /^the options: no option siez; there are size, inner, other$/],
  [{ size: 1, inner: { paek: 1 } }, /^the options: inner: no option paek; there are peak$/],
  [{ size: 1, constructor: 1 }, /^the options: no option constructor; /],
  [{ size: 1, inner: 4 }, /^the options: inner is 4; it must be an object$/],
  [{}, /^the options: size is missing; it must be a number/],
  [null, /^the options is null; it must be an object$/],
])('%j is refused', (given, says) => expectMistake(() => read(given), says));
