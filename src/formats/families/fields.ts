// Typed access to the fields of a Hugging Face config.json, with their defaults and the values that are supported. Not for
// our own files, which have schemas (util/json.ts).
//
// Invariant: a field that is absent or null has its default, as in Transformers; any other that is not supported is
// refused by name.

import { HoldfastError } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';

export class Fields {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #name: string;
  readonly #prefix: string;
  readonly #read = new Set<string>();

  /** `name` is for messages, and so is `prefix`, of an object inside another. */
  constructor(json: Readonly<Record<string, unknown>>, name: string, prefix = '') {
    this.#json = json;
    this.#name = name;
    this.#prefix = prefix;
  }

  /** Undefined where it is absent or null. */
  #take(field: string): unknown {
    this.#read.add(field);
    return this.#json[field] ?? undefined;
  }

  has(field: string): boolean {
    return (this.#json[field] ?? undefined) !== undefined;
  }

  /** Whether it was asked for its value: what its family reads is not refused for being there. */
  wasRead(field: string): boolean {
    return this.#read.has(field);
  }

  /** A whole number above 0. Without a fallback it has to be there. */
  count(field: string, fallback?: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a whole number above 0`);
  }

  /** A whole number above 0, or null: of the fields where null is a value, and not the default. */
  countOrNull(field: string, fallback: number): number | null {
    const value = this.count(field, fallback);
    return this.#json[field] === null ? null : value;
  }

  /** A whole number, 0 or above. */
  countFrom0(field: string, fallback: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a whole number, 0 or above`);
  }

  /** A finite number above 0. Without a fallback it has to be there. */
  positive(field: string, fallback?: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isFinite(value) && (value as number) > 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a number above 0`);
  }

  /** One of the supported values. */
  only<T>(field: string, supported: readonly T[], fallback?: T): T {
    const value = this.#take(field) ?? fallback;
    const found = supported.find((item) => item === value);
    if (found !== undefined) return found;
    return this.refuse(`${field} is ${show(value)}; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that a field which is not supported is absent, null, or has a value that changes nothing. */
  neutral(field: string, values: readonly unknown[]): void {
    const value = this.#json[field] ?? undefined;
    const isNear = (item: unknown) =>
      item === value || (typeof item === 'number' && typeof value === 'number' && Math.abs(value / item - 1) < 1e-6);
    if (value === undefined || values.some(isNear)) return;
    this.refuse(`${field} is ${show(value)}; supported: ${[...values, null].map(show).join(', ')}`);
  }

  /** A list of supported values, one for each layer where it is said how many these are; undefined where it is absent. */
  items<T>(field: string, supported: readonly T[], layers?: number): readonly T[] | undefined {
    const value = this.#take(field);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) return this.refuse(`${field} is ${show(value)}; it must be a list`);
    const other = value.find((item) => !supported.includes(item));
    if (other !== undefined)
      this.refuse(`${field} has ${show(other)} in it; supported: ${supported.map(show).join(', ')}`);
    if (layers !== undefined && value.length !== layers)
      this.refuse(`${field} has ${value.length} items; it must have ${layers}, one for each layer`);
    return value;
  }

  /** Checks that one field's value divides another's. */
  divides(small: string, divisor: number, large: string, value: number): void {
    if (value % divisor === 0) return;
    const works = Math.max(1, Math.round(value / divisor)) * divisor;
    this.refuse(`${large} is ${value}, not a multiple of ${small} (${divisor}); ${works} would work`);
  }

  inside(field: string): Fields {
    const value = this.#take(field);
    if (isObject(value)) return new Fields(value, this.#name, `${this.#prefix}${field}.`);
    return this.refuse(`${field} is ${show(value)}; it must be an object`);
  }

  /** `problem` begins with a field's name. */
  refuse(problem: string): never {
    throw new HoldfastError(`${this.#name}: ${this.#prefix}${problem}`);
  }
}
