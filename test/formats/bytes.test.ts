import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { flagBytes, formatBytes, parseBytes } from '../../src/util/bytes.ts';
import { HoldfastError } from '../../src/util/errors.ts';

describe('parseBytes', () => {
  test.each([
    ['0', 0],
    ['4096', 4096],
    ['4096B', 4096],
    ['64MB', 64_000_000],
    ['64MiB', 67_108_864],
    ['1KB', 1000],
    ['1KiB', 1024],
    ['1.5GB', 1_500_000_000],
    ['1.5 GiB', 1_610_612_736],
    [' 8gb ', 8_000_000_000],
    ['2TB', 2e12],
    ['1TiB', 2 ** 40],
    ['4.35MB', 4_350_000],
  ])('%s is %d bytes', (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  test('a fraction of a byte is rounded down: a budget never grows', () => {
    expect(parseBytes('1.0009KB')).toBe(1000);
    expect(parseBytes('0.9')).toBe(0);
  });

  test.each(['', 'MB', '64M', '-1MB', '1e3', '1,5GB', '64 apples', '1.GB', '.5GB', 'Infinity'])(
    'refuses %j',
    (text) => {
      expect(() => parseBytes(text)).toThrow(HoldfastError);
      expect(() => parseBytes(text)).toThrow(JSON.stringify(text));
    },
  );

  test('refuses more than a number can count', () => {
    expect(() => parseBytes('9008TB')).toThrow('largest byte count');
  });

  test('is exact for every whole number and every decimal of a unit', () => {
    fc.assert(
      fc.property(fc.nat(), (n) => {
        expect(parseBytes(String(n))).toBe(n);
        expect(parseBytes(`${Math.floor(n / 1000)}.${String(n % 1000).padStart(3, '0')}KB`)).toBe(n);
      }),
    );
  });

  test('any text gives a whole number of bytes or a HoldfastError in one line', () => {
    const unit = fc.constantFrom('', 'B', 'kb', 'MiB', 'm', 'tib');
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.tuple(fc.double(), unit).map(([n, u]) => n + u),
        ),
        (text) => {
          try {
            expect(Number.isSafeInteger(parseBytes(text))).toBe(true);
          } catch (error) {
            expect(error).toBeInstanceOf(HoldfastError);
            expect((error as Error).message).not.toContain('\n');
          }
        },
      ),
    );
  });
});

describe('formatBytes', () => {
  test.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.00 KB'],
    [9_996, '10.0 KB'],
    [999_499, '999 KB'],
    [999_500, '1.00 MB'],
    [64_000_000, '64.0 MB'],
    [1_234_567_890, '1.23 GB'],
    [2e15, '2000 TB'],
  ])('%d is %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  test('reads back within half a unit of its third digit', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9e14 }), (bytes) => {
        // Three digits: at worst 0.5 in 100.
        expect(Math.abs(parseBytes(formatBytes(bytes)) - bytes) / bytes).toBeLessThanOrEqual(0.005);
      }),
    );
  });
});

test('bytes as a flag takes them are never less than asked for, and less than a hundredth more', () => {
  expect([1000, 8_095_001, 999_001, 12_345_678, 4e15].map(flagBytes)).toEqual([
    '1.00KB',
    '8.10MB',
    '1.00MB',
    '12.4MB',
    '4000TB',
  ]);
  fc.assert(
    fc.property(fc.integer({ min: 1000, max: 9e15 }), (bytes) => {
      const named = parseBytes(flagBytes(bytes));
      expect(named).toBeGreaterThanOrEqual(bytes);
      expect(named).toBeLessThan(1.01 * bytes);
    }),
  );
});
