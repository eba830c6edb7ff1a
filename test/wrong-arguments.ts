// Functions called with wrong values of each argument, and of each option in one: as a JavaScript program may, which has no
// types. What comes of it is a HoldfastError of one line, or a result; never another error.

import { HoldfastError, messageOf } from '../src/util/errors.ts';

/** A call that works, by what it is of and its arguments. */
export interface Call {
  readonly args: readonly unknown[];
  // biome-ignore lint/suspicious/noExplicitAny: what is called is given what it does not take
  readonly call: (...args: any[]) => unknown;
}

const WRONG: readonly unknown[] = [
  undefined,
  null,
  Number.NaN,
  -1,
  0.5,
  1e300,
  'wrong',
  true,
  {},
  [],
  [null],
  () => {},
  1n,
  Symbol('wrong'),
  Object.create(null),
  [1n],
  [Symbol('wrong')],
  [Object.create(null)],
];

/** Not what the library has made, such as a model or a source: those have methods. */
const isOptions = (given: unknown): boolean =>
  Object.getPrototypeOf(given ?? 0) === Object.prototype &&
  !Object.values(given as object).some((value) => typeof value === 'function');

/** The arguments, with one of them, or one option in one of them, replaced by each wrong value. */
function* changed(args: readonly unknown[]): Generator<{ readonly what: string; readonly args: unknown[] }> {
  for (const [i, given] of args.entries()) {
    for (const wrong of WRONG) {
      yield { what: `argument ${i} ${shown(wrong)}`, args: args.with(i, wrong) };
      if (!isOptions(given)) continue;
      for (const name of Object.keys(given as object)) {
        const options = { ...(given as object), [name]: wrong };
        yield { what: `argument ${i}.${name} ${shown(wrong)}`, args: args.with(i, options) };
      }
    }
  }
}

/** JSON has no words for some of them. */
function shown(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'bigint') return 'a BigInt';
  if (Array.isArray(value)) return `a list of ${value.map(shown).join(', ') || 'nothing'}`;
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.getPrototypeOf(value) === null ? 'an object without a prototype' : 'an object';
}

/** What has been made is taken to its first piece: of a generator nothing runs before. */
export async function taken(result: unknown): Promise<unknown> {
  const made = await result;
  if (typeof made !== 'object' || made === null) return made;
  if (Symbol.asyncIterator in made) for await (const _ of made as AsyncIterable<unknown>) return made;
  if (Symbol.iterator in made && 'next' in made) for (const _ of made as Iterable<unknown>) return made;
  return made;
}

/** Far more than any of these takes, on a busy machine too. */
const HANG_MS = 120_000;

/** What a call ends in; undefined: a result. */
async function reason(call: () => unknown): Promise<unknown> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const hang = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('it hangs')), HANG_MS);
  });
  try {
    await Promise.race([(async () => taken(call()))(), hang]);
    return undefined;
  } catch (error) {
    return error;
  } finally {
    clearTimeout(timer);
  }
}

async function outcome(call: () => unknown): Promise<string | undefined> {
  const error = await reason(call);
  const isNamed = error === undefined || (error instanceof HoldfastError && !/internal|\n/.test(error.message));
  return isNamed ? undefined : `${(error as Error).name}: ${messageOf(error).slice(0, 200)}`;
}

/** An object with a name that no option has, and so each object in it. */
function* withStrangers(given: object, path: string): Generator<{ readonly path: string; readonly changed: object }> {
  yield { path, changed: { ...given, stranger: 1 } };
  for (const [name, value] of Object.entries(given)) {
    if (!isOptions(value)) continue;
    for (const inner of withStrangers(value, `${path}.${name}`))
      yield { path: inner.path, changed: { ...given, [name]: inner.changed } };
  }
}

/** The objects among arguments, of all calls, that take a name which none of their options has. */
export async function strangersTaken(calls: Readonly<Record<string, Call>>): Promise<string[]> {
  const taken: string[] = [];
  for (const [name, { args, call }] of Object.entries(calls)) {
    for (const [i, given] of args.entries()) {
      if (!isOptions(given)) continue;
      for (const { path, changed } of withStrangers(given as object, `${name}, argument ${i}`)) {
        const problem = await reason(() => call(...args.with(i, changed)));
        if (!/: no option stranger; there are /.test(messageOf(problem))) taken.push(path);
      }
    }
  }
  return taken;
}

/** The calls with wrong arguments, of all, that end in another error than a HoldfastError of one line, and in which. */
export async function mistakesOf(calls: Readonly<Record<string, Call>>): Promise<string[]> {
  const failed: string[] = [];
  for (const [name, { args, call }] of Object.entries(calls)) {
    for (const { what, args: wrong } of changed(args)) {
      const problem = await outcome(() => call(...wrong));
      if (problem !== undefined) failed.push(`${name}, ${what}: ${problem}`);
    }
  }
  return failed;
}
