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

  /** `name` is for messages, and so is `prefix`, of an object inside another. */
  constructor(json: Readonly<Record<string, unknown>>, name: string, prefix = '') {
    this.#json = json;
    this.#name = name;
    this.#prefix = prefix;
  }

  has(field: string): boolean {
    return (this.#json[field] ?? undefined) !== undefined;
  }

  /** A whole number above 0. */
  count(field: string, fallback: number): number {
    const value = this.#json[field] ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a whole number above 0`);
  }

  /** A finite number above 0. */
  positive(field: string, fallback: number): number {
    const value = this.#json[field] ?? fallback;
    if (Number.isFinite(value) && (value as number) > 0) return value as number;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a number above 0`);
  }

  /** One of the supported values. */
  only<T>(field: string, supported: readonly T[], fallback?: T): T {
    const value = this.#json[field] ?? fallback;
    const found = supported.find((item) => item === value);
    if (found !== undefined) return found;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that a field which is not supported is absent, null, or has a value that changes nothing. */
  neutral(field: string, values: readonly unknown[]): void {
    const value = this.#json[field] ?? undefined;
    const isNear = (item: unknown) =>
      item === value || (typeof item === 'number' && typeof value === 'number' && Math.abs(value / item - 1) < 1e-6);
    if (value === undefined || values.some(isNear)) return;
    this.refuse(`${this.#prefix}${field} is ${show(value)}; supported: ${[...values, null].map(show).join(', ')}`);
  }

  /** Checks that such a field, a list with an item for each layer, has none but these. */
  every(field: string, supported: readonly unknown[]): void {
    const value = this.#json[field] ?? [];
    if (!Array.isArray(value)) this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a list`);
    const other = (value as unknown[]).find((item) => !supported.includes(item));
    if (other === undefined) return;
    this.refuse(`${this.#prefix}${field} has ${show(other)} in it; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that one field's value divides another's. */
  divides(small: string, divisor: number, large: string, value: number): void {
    if (value % divisor === 0) return;
    const works = Math.max(1, Math.round(value / divisor)) * divisor;
    this.refuse(`${large} is ${value}, not a multiple of ${small} (${divisor}); ${works} would work`);
  }

  inside(field: string): Fields {
    const value = this.#json[field];
    if (isObject(value)) return new Fields(value, this.#name, `${field}.`);
    return this.refuse(`${field} is ${show(value)}; it must be an object`);
  }

  refuse(problem: string): never {
    throw new HoldfastError(`${this.#name}: ${problem}`);
  }
}
