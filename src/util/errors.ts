// Two kinds of failure: `HoldfastError` for the user's and the world's (its message names the thing, the
// limit and the fix, in one line), `assert` for our own mistakes.

/** An error that a user can act on. The command line prints its message as one line, exit status 2. */
export class HoldfastError extends Error {
  /** Tells it apart where classes are not shared. */
  override name = 'HoldfastError';

  constructor(message?: string, options?: ErrorOptions) {
    super(message === undefined ? message : asText(message), options);
  }
}

/** The end of a work that was asked to end, by a signal: no failure. */
export class Stopped extends HoldfastError {}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`internal: ${message}`);
}

/** Any value as a text: what String makes of it, also where that would throw. */
export function asText(value: unknown): string {
  try {
    return String(value);
  } catch {
    return 'an object';
  }
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : asText(error);
}

/** Runs `work` and then every one of `ends`, whatever fails. Errors: the first of them, the one that matters. */
export async function finishing<T>(work: () => Promise<T>, ...ends: (() => unknown)[]): Promise<T> {
  let failed: { readonly reason: unknown } | undefined;
  const run = async <R>(step: () => R): Promise<Awaited<R> | undefined> => {
    try {
      return await step();
    } catch (reason) {
      failed ??= { reason };
      return undefined;
    }
  };
  const result = await run(work);
  for (const end of ends) await run(end);
  if (failed) throw failed.reason;
  return result as T;
}

/** What steers a terminal, or ends a line. */
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}]+/gu;

/** On one line, without what a terminal would obey: a message may quote what a file or a server brings. */
export const oneLine = (text: string): string =>
  text
    .trim()
    .replace(/\s*\n\s*/g, ' ')
    .replace(CONTROL, ' ');

/** A name in a message: one that a damaged file brings may be of any length, and have anything in it. */
export const shortened = (name: string): string =>
  (name.length <= 200 ? name : `${name.slice(0, 200)}...`).replace(CONTROL, ' ');

const FEW = 5;

/** Names in a message: the first few of them. */
export const firstFew = (names: readonly string[]): string =>
  [...names.slice(0, FEW).map(shortened), ...(names.length > FEW ? ['...'] : [])].join(', ');

/** Names that a message lists beside one that is not among them, at most. */
const MOST_LISTED = 6;

/** For a message about a name that is none of these: the names that begin and end most like it. */
export function namesLike(name: string, names: Iterable<string>): string {
  const common = (one: string, other: string): number => {
    let length = 0;
    while (length < one.length && one[length] === other[length]) length++;
    return length;
  };
  const reversed = (text: string) => [...text].reverse().join('');
  const alike = (other: string) => common(other, name) + common(reversed(other), reversed(name));
  const all = [...names].toSorted((a, b) => alike(b) - alike(a));
  const rest = all.length - MOST_LISTED;
  const listed = all.slice(0, MOST_LISTED).map(shortened).join(', ');
  return `there ${listed ? `are ${listed}` : 'is none'}${rest > 0 ? ` and ${rest} more` : ''}`;
}

/** What `work` makes, or undefined where it is refused: a HoldfastError. Other errors are thrown on. */
export function unlessRefused<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
