// Ranges of numbers that come from outside: one statement of what is allowed, for flags, files, forms and messages.
//
// Invariant: what `inRange` accepts is a finite number; of whole numbers, one that is exact.

export interface Range {
  readonly whole: boolean;
  readonly least: number;
  /** The largest that is allowed. */
  readonly most: number;
}

/** The largest float32: what goes to the GPU as a number must not become infinite there. */
const MOST_FLOAT32 = 2 ** 128 - 2 ** 104;

export const wholeNumber = (least: number, most = Number.MAX_SAFE_INTEGER): Range => ({ whole: true, least, most });

export const realNumber = (least: number, most = MOST_FLOAT32): Range => ({ whole: false, least, most });

export function inRange({ whole, least, most }: Range, value: unknown): value is number {
  if (typeof value !== 'number' || value < least || value > most) return false;
  return whole ? Number.isSafeInteger(value) : Number.isFinite(value);
}

/** "a whole number, 1 or more", "a number from 0 to 1": what follows "it must be". */
export function describeRange({ whole, least, most }: Range): string {
  const kind = whole ? 'a whole number' : 'a number';
  if (most === Number.MAX_VALUE) {
    if (least === -most) return kind;
    if (least === Number.MIN_VALUE) return `${kind} above 0`;
    return `${kind}, ${least} or more`;
  }
  if (most === Number.MAX_SAFE_INTEGER) return `${kind}, ${least} or more`;
  if (most === MOST_FLOAT32) return `${kind}, ${least} or more, that float32 holds`;
  return `${kind} from ${least} to ${most}`;
}
