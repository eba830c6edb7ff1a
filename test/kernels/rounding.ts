// How far f32 arithmetic may lead a kernel from its float64 reference, element by element.
//
// Counted in ULP = 2^-23, relative: WGSL lets +, -, * round in either direction (one ulp), division is good
// to 2.5 ulp, sqrt to 4.5 (it is 1 / inverseSqrt), exp(x) to 3 + 2|x|, log to 3 or, on [0.5, 2], to 2^-21
// absolute (WGSL, "Floating point accuracy"). A sum of n terms in any order errs by at most n ulp of the
// sum of their absolute values. Second-order terms are left out, small change is rounded up.

import type { Arrays } from '../../src/kernels/kernel.ts';

const { abs } = Math;

export const ULP = 2 ** -23;

/** Results that underflow may be flushed to zero, and clamped tails are this small. */
export const TINY = 1e-28;

/** What float64 loses where it computes 1 + tanh(u) near tanh(u) = -1. */
export const CANCELLED = 2 ** -52;

/** The distance of floats of 32 bits there. */
export const ulpOf = (value: number): number => 2 ** (Math.max(-126, Math.floor(Math.log2(value))) - 23);

/**
 * Ulp of what AdamW subtracts from a parameter, which WGSL lets a GPU compute so far off: three quotients (2.5 each, that under the
 * root half of it), a root (4.5), and what rounds as everywhere.
 */
export const UPDATE_ULP = 2.5 + 2.5 + 1.25 + 4.5 + 2;

export type Bound = (i: number) => number;
/** A method, so that each may say which operands it reads. */
export type Bounds<P> = { of(problem: P, before: Arrays, after: Arrays): Record<string, Bound> }['of'];
export const exact: Bound = () => 0;

/** The mean of term(0..n-1). */
export function average(n: number, term: Bound): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += term(i);
  return sum / n;
}

/** A bound computed once a row, then asked for each element of it. */
export function byRow(width: number, make: (r: number) => (c: number) => number): Bound {
  let row = -1;
  let bound: (c: number) => number = exact;
  return (i) => {
    const r = Math.floor(i / width);
    if (r !== row) {
      row = r;
      bound = make(r);
    }
    return bound(i - r * width);
  };
}

/** Ulps of exp(x), and of its argument when that was computed with `argument` relative ulps. */
export const expUlps = (x: number, argument = 0) => 3 + (2 + argument) * abs(x);
