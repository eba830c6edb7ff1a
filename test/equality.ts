// Equality of typed arrays by their bytes, for every test in Node: element by element, as Vitest has it, a hundred thousand of them
// take half a second.

import { expect } from 'vitest';

/** Once in a process, however many files it serves. */
const ADDED = Symbol.for('holdfast.typed-arrays');

/** The same bytes are equal; whether others are, and how they differ, is left to Vitest. */
function sameBytes(a: unknown, b: unknown): true | undefined {
  if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b) || a.constructor !== b.constructor) return undefined;
  const [first, second] = [a, b].map(({ buffer, byteOffset, byteLength }) =>
    Buffer.from(buffer, byteOffset, byteLength),
  );
  return first && second?.equals(first) ? true : undefined;
}

if (!(ADDED in globalThis)) {
  Object.assign(globalThis, { [ADDED]: true });
  expect.addEqualityTesters([sameBytes]);
}
