// Random orders of eviction, as a program may bring its own.

import type { Order } from '../../src/memory/plan/policies.ts';

/** A victim for every moment since the first step, by the throw of a seeded die. */
export const randomOrder =
  (seed: number): Order =>
  (a, b) => {
    const die = ({ chunk, now }: typeof a) => Math.imul((seed ^ (chunk * 0x9e3779b1)) + now, 0x85ebca6b) >>> 8;
    return die(a) - die(b) || a.chunk - b.chunk;
  };
