// Mutants through a reader: each is used, or refused by a HoldfastError in one line. No other error, and no memory to speak of.

import { expect } from 'vitest';
import { HoldfastError } from '../../src/util/errors.ts';

/** Of the heap, in use at any time: the tests' own files, and garbage. */
const MOST_BYTES = 600e6;
/** Beside the heap: arrays. */
const MOST_ARRAYS = 600e6;

/** Tries mutants by number; returns how many were accepted. What fails is named by its number. */
export async function tryAll(
  what: string,
  count: number,
  mutantOf: (seed: number) => Uint8Array<ArrayBuffer>,
  use: (bytes: Uint8Array<ArrayBuffer>) => unknown,
): Promise<number> {
  let accepted = 0;
  for (let seed = 0; seed < count; seed++) {
    const mutant = mutantOf(seed);
    try {
      await use(mutant);
      accepted++;
    } catch (error) {
      const shown = `${what} ${seed}: ${new TextDecoder().decode(mutant).slice(0, 3000)}`;
      if (!(error instanceof HoldfastError))
        throw new Error(`${error instanceof Error ? error.stack : error}\n${shown}`);
      expect(error.message, shown).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}]/u);
      expect(error.message.length, shown).toBeLessThan(600);
    }
    if (seed % 100 > 0) continue;
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    expect(heapUsed).toBeLessThan(MOST_BYTES);
    expect(arrayBuffers).toBeLessThan(MOST_ARRAYS);
  }
  return accepted;
}
