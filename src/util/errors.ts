// Two kinds of failure: `HoldfastError` for the user's and the world's (its message names the thing, the
// limit and the fix, in one line), `assert` for our own mistakes.

/** An error that a user can act on. The command line prints its message as one line, exit status 2. */
export class HoldfastError extends Error {
  /** Tells it apart where classes are not shared. */
  override name = 'HoldfastError';
}

/** The end of a work that was asked to end: no failure. */
export class Stopped extends HoldfastError {}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`internal: ${message}`);
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
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

/** What `work` makes, or undefined where it is refused: a HoldfastError. Other errors are thrown on. */
export function unlessRefused<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
