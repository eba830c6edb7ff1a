// A checksum over 32-bit words, fast enough to guard every value that goes to disk: XXH32 (Yann Collet, 2012)
// for whole words, seeded with the value's number so that what was written for another is told apart.
//
// Invariant: a change within one word always changes the result. Each step is a bijection of the lane for a
// given word and of the word for a given lane, and the lanes are added; wider damage slips by once in 2^32.

import { assert } from '../../util/errors.ts';

const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f | 0;

/** `bytes`: a multiple of 4, starting at a multiple of 4. Returns a signed 32-bit word. */
export function checksum(bytes: Uint8Array<ArrayBuffer>, seed: number): number {
  assert(bytes.length % 4 === 0, `checksum of ${bytes.length} bytes: whole words only`);
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  let a = (seed + P1 + P2) | 0;
  let b = (seed + P2) | 0;
  let c = seed | 0;
  let d = (seed - P1) | 0;
  const stripes = words.length & ~3;
  for (let i = 0; i < stripes; i += 4) {
    const w = words[i];
    const x = words[i + 1];
    const y = words[i + 2];
    const z = words[i + 3];
    if (w === undefined || x === undefined || y === undefined || z === undefined) break;
    a = (a + Math.imul(w, P2)) | 0;
    b = (b + Math.imul(x, P2)) | 0;
    c = (c + Math.imul(y, P2)) | 0;
    d = (d + Math.imul(z, P2)) | 0;
    a = Math.imul((a << 13) | (a >>> 19), P1);
    b = Math.imul((b << 13) | (b >>> 19), P1);
    c = Math.imul((c << 13) | (c >>> 19), P1);
    d = Math.imul((d << 13) | (d >>> 19), P1);
  }
  let sum = ((a << 1) | (a >>> 31)) + ((b << 7) | (b >>> 25)) + ((c << 12) | (c >>> 20)) + ((d << 18) | (d >>> 14));
  sum = (sum + bytes.length) | 0;
  for (const word of words.subarray(stripes)) {
    sum = (sum + Math.imul(word, P3)) | 0;
    sum = Math.imul((sum << 17) | (sum >>> 15), P4);
  }
  sum = Math.imul(sum ^ (sum >>> 15), P2);
  sum = Math.imul(sum ^ (sum >>> 13), P3);
  return sum ^ (sum >>> 16);
}
