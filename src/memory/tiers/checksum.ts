// A checksum over 32-bit words, fast enough to guard every value that goes to disk: the rounds of XXH32 (Yann Collet, 2012)
// over thirty-two lanes, not four, in WebAssembly SIMD; seeded with the value's number so that what was written for another is
// told apart. Of this process's files alone: it is kept nowhere.
//
// Invariant: a change within one word always changes the result. Each step is a bijection of the lane for a
// given word and of the word for a given lane, and lanes are taken one after the other; wider damage slips by once in 2^32.

import MODULE from '../../../assembly/checksum.ts?wasm';
import { assert } from '../../util/errors.ts';
import { moduleOf } from '../../util/wasm.ts';

const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f | 0;

const LANES = 32;
const WORD = 4;
const PAGE = 2 ** 16;
/** What the module was compiled for. */
const MOST_PAGES = 2 ** 16;
/** Bytes at once: what stays in a core's cache. */
const WINDOW = 2 ** 17;

interface Place {
  takeStripes(lanes: number, words: number, count: number): void;
  readonly window: Int32Array<ArrayBuffer>;
  readonly lanes: Int32Array<ArrayBuffer>;
}

let made: Place | undefined;

function place(): Place {
  if (made) return made;
  const memory = new WebAssembly.Memory({ initial: WINDOW / PAGE + 1, maximum: MOST_PAGES });
  const { exports } = new WebAssembly.Instance(moduleOf(MODULE), { env: { memory } });
  const takeStripes = exports['takeStripes'] as Place['takeStripes'];
  const window = new Int32Array(memory.buffer, 0, WINDOW / WORD);
  made = { takeStripes, window, lanes: new Int32Array(memory.buffer, WINDOW, LANES) };
  return made;
}

/** `bytes`: a multiple of 4, starting at a multiple of 4. Returns a signed 32-bit word. */
export function checksum(bytes: Uint8Array<ArrayBuffer>, seed: number): number {
  assert(bytes.length % WORD === 0, `checksum of ${bytes.length} bytes: whole words only`);
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / WORD);
  const stripes = words.length - (words.length % LANES);
  const { takeStripes, window, lanes } = place();
  for (let lane = 0; lane < LANES; lane++) lanes[lane] = Math.imul(seed + lane, P2) + P1;
  for (let at = 0; at < stripes; at += window.length) {
    const part = words.subarray(at, Math.min(at + window.length, stripes));
    window.set(part);
    takeStripes(lanes.byteOffset, window.byteOffset, part.length);
  }
  let sum = (seed + bytes.length) | 0;
  for (const some of [lanes, words.subarray(stripes)]) {
    for (const word of some) {
      sum = (sum + Math.imul(word, P3)) | 0;
      sum = Math.imul((sum << 17) | (sum >>> 15), P4);
    }
  }
  sum = Math.imul(sum ^ (sum >>> 15), P2);
  sum = Math.imul(sum ^ (sum >>> 13), P3);
  return sum ^ (sum >>> 16);
}
