// Kernel variants without their timing. Trials compile every variant of every kernel that a run uses, and take longer than
// the small runs of most tests; where the choice by time itself is tested, and in processes of their own, they run.

import { vi } from 'vitest';
import { Trial } from '../src/engine/compile/choices.ts';

const SLOW = ['quads', 'tiled'];

/**
 * Kernel variants are chosen by the throw of a die instead of by timing: trials take seconds, and so every variant
 * has its turn; another `seed` is another choice. SwiftShader compiles the variants on quads for seconds, and runs the tiled
 * ones slowly, which wait for each other all the time: only with `slow` they take part.
 */
export function chooseVariants(seed: number, slow = false): void {
  const die = (name: string) =>
    [...name].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193) >>> 1, seed);
  const isSlow = ({ name }: { readonly name: string }) => SLOW.includes(name) && !slow;
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async (variants) => {
    const quick = variants.filter((variant) => !isSlow(variant));
    const [chosen] = [...(quick.length > 0 ? quick : variants)].sort((one, other) => die(one.name) - die(other.name));
    return chosen?.name ?? '';
  });
}
