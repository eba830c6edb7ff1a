// Refusals of data: one line, by a HoldfastError.

import { expect } from 'vitest';
import { HoldfastError } from '../../src/util/errors.ts';

/** What it says. */
export async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  const { message } = error as Error;
  expect(message).not.toContain('\n');
  expect(message.length).toBeLessThan(600);
  return message;
}
