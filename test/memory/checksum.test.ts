import { describe, expect, it } from 'vitest';
import { checksum } from '../../src/memory/tiers/checksum.ts';
import { Random } from '../../src/util/random.ts';

function randomBytes(length: number): Uint8Array<ArrayBuffer> {
  const random = new Random(1, 'checksum');
  return new Uint8Array(new Uint32Array(length / 4).map(() => random.uint32()).buffer);
}

/** XXH32's rounds, over thirty-two lanes that are then taken as words. */
function reference(bytes: Uint8Array<ArrayBuffer>, seed: number): number {
  const [p1, p2, p3, p4] = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f] as const;
  const turned = (word: number, by: number) => (word << by) | (word >>> (32 - by));
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const stripes = Math.floor(words.length / 32) * 32;
  const lanes = Array.from({ length: 32 }, (_, lane) => (Math.imul(seed + lane, p2) + p1) | 0);
  words.subarray(0, stripes).forEach((word, i) => {
    lanes[i % 32] = Math.imul(turned((lanes[i % 32]! + Math.imul(word, p2)) | 0, 13), p1);
  });
  let sum = (seed + bytes.length) | 0;
  for (const word of [...lanes, ...words.subarray(stripes)]) {
    sum = Math.imul(turned((sum + Math.imul(word, p3)) | 0, 17), p4);
  }
  sum = Math.imul(sum ^ (sum >>> 15), p2);
  sum = Math.imul(sum ^ (sum >>> 13), p3);
  return sum ^ (sum >>> 16);
}

describe('the checksum', () => {
  it('changes with every single flipped bit', () => {
    for (const length of [2048, 4, 28, 44]) {
      const bytes = randomBytes(length);
      const before = checksum(bytes, 3);
      for (let bit = 0; bit < bytes.length * 8; bit++) {
        bytes[bit >> 3]! ^= 1 << (bit & 7);
        expect(checksum(bytes, 3), `bit ${bit} of ${length} bytes`).not.toBe(before);
        bytes[bit >> 3]! ^= 1 << (bit & 7);
      }
      expect(checksum(bytes, 3)).toBe(before);
    }
  });

  it('changes with the chunk, so that equal bytes of another chunk are told apart', () => {
    const zeros = new Uint8Array(1024);
    const sums = Array.from({ length: 10_000 }, (_, chunk) => checksum(zeros, chunk));
    expect(new Set(sums).size).toBe(sums.length);
  });

  it('changes when two words, or two stripes, change places', () => {
    const bytes = randomBytes(1024);
    const words = new Uint32Array(bytes.buffer);
    const before = checksum(bytes, 0);
    for (let i = 1; i < words.length; i++) {
      [words[0], words[i]] = [words[i]!, words[0]!];
      expect(checksum(bytes, 0), `words 0 and ${i}`).not.toBe(before);
      [words[0], words[i]] = [words[i]!, words[0]!];
    }
    const swapped = Uint8Array.from([...bytes.subarray(16, 32), ...bytes.subarray(0, 16), ...bytes.subarray(32)]);
    expect(checksum(swapped, 0)).not.toBe(before);
  });

  it('is that of the same rounds in plain integers, for lengths within and past what is taken at once', () => {
    for (const length of [0, 4, 124, 128, 132, 2 ** 17 - 4, 2 ** 17, 2 ** 17 + 128, 2 ** 18 + 260]) {
      const bytes = randomBytes(length);
      expect(checksum(bytes, 11), `${length} bytes`).toBe(reference(bytes, 11));
    }
  });

  it('looks at its range of a larger buffer only', () => {
    const bytes = randomBytes(4096);
    expect(checksum(bytes.subarray(1024, 2048), 7)).toBe(checksum(bytes.slice(1024, 2048), 7));
  });
});
