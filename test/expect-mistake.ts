// A mistake of the library's user: one line that names it, whatever it is made of.

import { expect } from 'vitest';
import { HoldfastError } from '../src/util/errors.ts';

/** Expects `mistake` to throw, or to reject, with a HoldfastError of one line that `says` matches. */
export async function expectMistake(mistake: () => unknown, says: RegExp): Promise<void> {
  const error = await (async () => mistake())().then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).toMatch(says);
  expect(error.message).not.toMatch(/internal|\n/);
}
