// Byte counts as people write them ("64MB", "1.5GiB", "4096") and as messages show them ("64.0 MB").
//
// KB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB powers of 1024. A bare "64M" is refused: it would
// leave open which. Invariant: parsing is exact decimal arithmetic, and a fraction of a byte is rounded
// down, so that a budget is never larger than what was asked.

import { asText, HoldfastError } from './errors.ts';

const UNITS: ReadonlyMap<string, bigint> = new Map([
  ['', 1n],
  ['b', 1n],
  ['kb', 1000n],
  ['mb', 1000n ** 2n],
  ['gb', 1000n ** 3n],
  ['tb', 1000n ** 4n],
  ['kib', 1024n],
  ['mib', 1024n ** 2n],
  ['gib', 1024n ** 3n],
  ['tib', 1024n ** 4n],
]);

/** Bytes of "4096", "64MB", "64 MiB", "1.5GB"; units in any case. Errors: HoldfastError quoting the text. */
export function parseBytes(text: string): number {
  const written = asText(text);
  const match = /^\s*(\d+)(?:\.(\d+))?\s*([a-z]*)\s*$/i.exec(written);
  const unit = UNITS.get(match?.[3]?.toLowerCase() ?? '?');
  if (!match || unit === undefined) {
    throw new HoldfastError(
      `${JSON.stringify(written)} is not a byte count: write a number and B, KB, MB, GB, TB (powers of 1000) ` +
        'or KiB, MiB, GiB, TiB (powers of 1024), for example 64MB',
    );
  }
  const [, whole, fraction = ''] = match;
  const bytes = (BigInt(whole + fraction) * unit) / 10n ** BigInt(fraction.length);
  if (bytes > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new HoldfastError(`${JSON.stringify(written)} is past the largest byte count, 9007 TB: ask for less`);
  }
  return Number(bytes);
}

/** "0 B", "999 B", "1.00 KB", "64.0 MB": powers of 1000, three significant digits. Errors: HoldfastError for what is no number. */
export function formatBytes(bytes: number): string {
  if (typeof bytes !== 'number')
    throw new HoldfastError(`${JSON.stringify(asText(bytes))} is not a number of bytes: give a number`);
  if (bytes < 999.5) return `${Math.round(bytes)} B`;
  const units = ['KB', 'MB', 'GB', 'TB'];
  let value = bytes / 1000;
  let unit = 0;
  // 999.5 and above would print as 1000: the next unit up shows it as 1.00.
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${value.toFixed(decimals)} ${units[unit]}`;
}

/** "811KB", "8.11MB", "12.0GB": as a flag takes it, three significant digits, rounded up, so that it is never less than asked for. */
export function flagBytes(bytes: number): string {
  const units = ['KB', 'MB', 'GB', 'TB'];
  for (const [power, unit] of units.entries()) {
    const scale = 1000 ** (power + 1);
    for (const decimals of [2, 1, 0]) {
      // In whole steps of the last digit: a fraction of one would round on its way.
      const steps = Math.ceil((bytes * 10 ** decimals) / scale);
      if (steps <= 999) return `${(steps / 10 ** decimals).toFixed(decimals)}${unit}`;
    }
  }
  return `${Math.ceil(bytes / 1e12)}TB`;
}
