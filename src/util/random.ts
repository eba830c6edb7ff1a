// Seeded random numbers: xoshiro128** (Blackman and Vigna, 2018), one generator per named stream, so that
// drawing more for the weights never changes the batches. Not for secrets.
//
// Invariant: state() is everything. A generator restored from it draws what the original would have drawn;
// no value is kept back between calls. Integers are the same everywhere; normal() uses Math.log and Math.cos,
// which are bit-equal wherever V8 runs and may differ in the last bit elsewhere.

import { having } from './arguments.ts';
import { HoldfastError } from './errors.ts';
import { check, show, text } from './json.ts';

/** One step of splitmix32: a bijection of 32-bit words that spreads every input bit over all of them. */
export function splitmix32(word: number): number {
  let z = (word + 0x9e3779b9) | 0;
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return (z ^ (z >>> 15)) >>> 0;
}

const rotateLeft = (word: number, bits: number): number => (word << bits) | (word >>> (32 - bits));

/** Four of them. */
type Words = Uint32Array & Record<0 | 1 | 2 | 3, number>;

/** Seeded random numbers, one generator a named stream; not for secrets. */
export class Random {
  readonly #words = new Uint32Array(4) as Words;

  /** `seed`: a whole number from 0 to 2^53 - 1. `stream`: what the numbers are for, such as "weights". */
  constructor(seed: number, stream: string) {
    if (!Number.isSafeInteger(seed) || seed < 0) {
      throw new HoldfastError(`seed ${show(seed)}: must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
    }
    check(text, stream, 'stream');
    const input = [seed % 2 ** 32, Math.floor(seed / 2 ** 32), ...Array.from(stream, (c) => c.codePointAt(0) ?? 0)];
    // Four chains over the same input from different starts. Each link is a bijection, so the four words
    // differ and the state is never all zeros, where the generator would stand still.
    for (let i = 0; i < 4; i++) {
      this.#words[i] = input.reduce((chain, word) => splitmix32(chain ^ word), splitmix32(i));
    }
  }

  /** Uniform over 0 .. 2^32 - 1. */
  uint32(): number {
    const s = this.#words;
    const result = Math.imul(rotateLeft(Math.imul(s[1], 5), 7), 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotateLeft(s[3], 11);
    return result;
  }

  /** Uniform in [0, 1), in steps of 2^-53. */
  uniform(): number {
    const high = this.uint32() >>> 5;
    const low = this.uint32() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  }

  /** Uniform over the whole numbers 0 .. n - 1, for n from 1 to 2^32; unbiased by rejection. Errors: HoldfastError for another n. */
  below(n: number): number {
    if (!(Number.isInteger(n) && n >= 1 && n <= 2 ** 32))
      throw new HoldfastError(`below ${show(n)}: must be a whole number from 1 to ${2 ** 32}`);
    const limit = 2 ** 32 - (2 ** 32 % n);
    let word = this.uint32();
    while (word >= limit) word = this.uint32();
    return word % n;
  }

  /** Standard normal by Box-Muller. The second value of the pair is not used: it would be hidden state. */
  normal(): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos((2 * Math.PI * this.uint32()) / 2 ** 32);
  }

  /** Four 32-bit words; plain JSON. */
  state(): number[] {
    return Array.from(this.#words);
  }

  /** Continues from what state() gave. Errors: HoldfastError when it is not such a state. */
  restore(state: readonly number[]): void {
    const isWord = (word: unknown) => Number.isInteger(word) && (word as number) >= 0 && (word as number) < 2 ** 32;
    if (!Array.isArray(state) || state.length !== 4 || !state.every(isWord) || state.every((word) => word === 0)) {
      throw new HoldfastError('random state: expected four 32-bit words, not all 0; the checkpoint is damaged');
    }
    this.#words.set(state);
  }
}

/** Errors: HoldfastError for what is no Random. */
export const checkRandom = (random: Random): void =>
  void check(having<Random>('a Random', 'uniform'), random, 'random');
