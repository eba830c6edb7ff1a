import { describe, expect, it } from 'vitest';
import { checksum } from '../../src/memory/tiers/checksum.ts';
import { Random } from '../../src/util/random.ts';

function randomBytes(length: number): Uint8Array<ArrayBuffer> {
  const random = new Random(1, 'checksum');
  return new Uint8Array(new Uint32Array(length / 4).map(() => random.uint32()).buffer);
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

  it('looks at its range of a larger buffer only', () => {
    const bytes = randomBytes(4096);
    expect(checksum(bytes.subarray(1024, 2048), 7)).toBe(checksum(bytes.slice(1024, 2048), 7));
  });
});
