// Typed access to one part of a tokenizer.json (its model, a normalizer, a pre-tokenizer, a decoder), with the defaults of
// Hugging Face's library. Not for our own files, which have schemas (util/json.ts).
//
// Invariant: after `done`, every field of the part was read or is null: what would change the ids is never passed over.

import { HoldfastError, shortened } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';

/** Parts lie in parts: sequences of normalizers, for one. */
const DEEPEST = 16;

export class Part {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #file: string;
  readonly #name: string;
  readonly #depth: number;
  readonly #known = new Set<string>(['type']);

  /** `file` and `name` are for messages. */
  constructor(json: unknown, file: string, name: string, depth = 0) {
    this.#file = file;
    this.#name = name;
    this.#depth = depth;
    if (!isObject(json)) this.#refuse(`${name} is ${show(json)}; it must be an object`);
    if (depth > DEEPEST) this.#refuse(`${name} lies more than ${DEEPEST} parts deep`);
    this.#json = json;
  }

  /** Undefined where the part names none. */
  get type(): string | undefined {
    const { type } = this.#json;
    return typeof type === 'string' ? type : undefined;
  }

  /** The field as it is; absent, null and undefined are the same. */
  value(field: string): unknown {
    this.#known.add(field);
    return (Object.hasOwn(this.#json, field) ? this.#json[field] : undefined) ?? undefined;
  }

  text(field: string, fallback?: string): string {
    const value = this.value(field) ?? fallback;
    return typeof value === 'string' ? value : this.refuse(field, value, 'a text');
  }

  flag(field: string, fallback?: boolean): boolean {
    const value = this.value(field) ?? fallback;
    return typeof value === 'boolean' ? value : this.refuse(field, value, 'true or false');
  }

  count(field: string, fallback?: number): number {
    const value = this.value(field) ?? fallback;
    const fits = Number.isSafeInteger(value) && (value as number) >= 0;
    return fits ? (value as number) : this.refuse(field, value, 'a whole number, 0 or more');
  }

  list(field: string, fallback?: readonly unknown[]): readonly unknown[] {
    const value = this.value(field) ?? fallback;
    return Array.isArray(value) ? value : this.refuse(field, value, 'a list');
  }

  object(field: string): Readonly<Record<string, unknown>> {
    const value = this.value(field);
    return isObject(value) ? value : this.refuse(field, value, 'an object');
  }

  /** The part in a field; undefined where there is none. */
  part(field: string): Part | undefined {
    const value = this.value(field);
    return value === undefined ? undefined : new Part(value, this.#file, this.#at(field), this.#depth + 1);
  }

  /** The parts of a list. */
  parts(field: string): Part[] {
    return this.list(field, []).map(
      (item, i) => new Part(item, this.#file, `${this.#at(field)}[${i}]`, this.#depth + 1),
    );
  }

  /** Checks that a field has a value that changes nothing here, or none. */
  neutral(field: string, ...values: readonly unknown[]): void {
    const value = this.value(field);
    if (value === undefined || values.includes(value)) return;
    this.refuse(field, value, [...values, null].map(show).join(' or '), 'supported');
  }

  /** Checks that nothing was passed over. */
  done(): void {
    for (const [field, value] of Object.entries(this.#json)) {
      if (this.#known.has(field) || value === null) continue;
      this.#refuse(
        `${shortened(this.#at(field))} is ${show(value)}; no such field is known here, so that its ids may be others`,
      );
    }
  }

  /** Names the field, or the part itself, and what is allowed. */
  refuse(field: string, value: unknown, allowed: string, word = 'it must be'): never {
    return this.#refuse(
      `${shortened(this.#at(field))} is ${show(value)}; ${word}${word === 'supported' ? ':' : ''} ${allowed}`,
    );
  }

  /** Of a type that this version does not know. */
  refuseType(supported: readonly string[]): never {
    return this.#refuse(`${this.#name} is of type ${show(this.#json['type'])}; supported: ${supported.join(', ')}`);
  }

  /** For a problem that no single field has. */
  fail(problem: string): never {
    return this.#refuse(`${this.#name} ${problem}`);
  }

  #at(field: string): string {
    return this.#name === '' ? field : `${this.#name}.${field}`;
  }

  #refuse(problem: string): never {
    throw new HoldfastError(`${shortened(this.#file)}: ${problem}`);
  }
}
