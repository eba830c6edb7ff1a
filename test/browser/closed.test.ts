// A Holdfast that was closed, in a page: every call of its trainer is refused, whenever it was made.

import { expect, test } from 'vitest';
import { openHoldfast } from '../../src/browser/index.ts';

const CLOSED = /this Holdfast was closed.*openHoldfast/;

test('a call that is not answered yet, and every later one, is refused', async () => {
  const holdfast = await openHoldfast();
  expect(await holdfast.trainer.runs()).toBeInstanceOf(Array);
  const underWay = expect(holdfast.trainer.runs()).rejects.toThrow(CLOSED);
  holdfast.close();
  await underWay;
  await expect(holdfast.trainer.runs()).rejects.toThrow(CLOSED);
  await expect(holdfast.trainer.stop()).rejects.toThrow(CLOSED);
  holdfast.close();
});

test('one that saved its run before is refused in the same words', async () => {
  const holdfast = await openHoldfast();
  await holdfast.trainer.close();
  holdfast.close();
  await expect(holdfast.trainer.environment()).rejects.toThrow(CLOSED);
});
