// Kernel variants without their timing. Trials compile every variant of every kernel that a run uses, and take longer than
// the small runs of most tests; where the choice by time itself is tested, and in processes of their own, they run.

import { vi } from 'vitest';
import { Trial } from '../src/engine/compile/trial.ts';

const isSlow = (name: string): boolean => name === 'quads' || name.startsWith('tiled');

/**
 * Kernel variants are chosen by the throw of a die instead of by timing: trials take seconds, and so every variant
 * has its turn; another `seed` is another choice. SwiftShader compiles the variants on quads and the tiled ones for seconds, and runs
 * the latter slowly, which wait for each other all the time: only with `slow` they take part.
 */
export function chooseVariants(seed: number, slow = false): void {
  const die = (name: string) =>
    [...name].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193) >>> 1, seed);
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async (variants) => {
    const quick = variants.filter(({ name }) => slow || !isSlow(name));
    const [chosen] = [...(quick.length > 0 ? quick : variants)].sort((one, other) => die(one.name) - die(other.name));
    return chosen?.name ?? '';
  });
}
