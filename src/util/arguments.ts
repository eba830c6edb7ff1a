// Arguments of the library's functions as schemas, for `check` of util/json.ts: what TypeScript's types say, said again to
// programs that have none. Of an object with a class or methods, a few members tell whether it is one.

import * as v from 'valibot';
import { check, number, type Schema } from './json.ts';
import { wholeNumber } from './range.ts';

/** An object, of whatever class, that has these members. `what` it is, for messages, as it follows "it must be". */
export const having = <T extends object>(what: string, ...members: readonly (keyof T & string)[]): Schema<T> =>
  v.custom<T>(
    (value) => typeof value === 'object' && value !== null && members.every((name) => (value as T)[name] !== undefined),
    what,
  );

/** The signal of an AbortController, not the controller itself: that would end nothing, and not say so. */
export const abortSignal = having<AbortSignal>('an AbortSignal', 'aborted', 'addEventListener');

/** A function. */
export const callable = v.custom<(...given: never[]) => unknown>((value) => typeof value === 'function', 'a function');

/** Bytes. */
export const bytes = v.instance(Uint8Array, 'a Uint8Array');

/** Floats of 32 bits. */
export const floats = v.instance(Float32Array, 'a Float32Array');

/** A map by names. */
export const mapByName = v.instance(Map, 'a Map');

/** What can be gone through: a list, a map, a set. */
export const iterable = v.custom<Iterable<unknown>>(
  (value) => typeof value === 'object' && value !== null && Symbol.iterator in value,
  'a list, or something else to go through',
);

/** Errors: HoldfastError where an argument of this name is no whole number, `least` or more. */
export const checkWholeNumber = (value: number, name: string, least = 0): void =>
  void check(number(wholeNumber(least)), value, name);

/** The options that are given: in memory, absent and undefined are the same. */
export const withoutUndefined = <T extends object>(options: T): T =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
