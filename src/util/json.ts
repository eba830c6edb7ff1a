// Our own JSON on its way in: parsed, held against a schema, and refused in one line that names the file, the field,
// what was found and what is allowed. Of records in IndexedDB and of messages too: plain data that is not to be trusted.
//
// Not for Hugging Face's config.json, whose defaults and supported values are its own (formats/families/fields.ts). Fields that a
// schema does not know are left out: what changes the meaning of a format changes its name ("holdfast 1").

import * as v from 'valibot';
import { HoldfastError, messageOf, namesLike, oneLine, shortened } from './errors.ts';
import { describeRange, inRange, type Range } from './range.ts';

export type Schema<T> = v.GenericSchema<unknown, T>;

// ---- Schemas -------------------------------------------------------------------------------------------------
// The message of each says what it allows, as it follows "it must be".

export const number = (range: Range): Schema<number> =>
  v.custom<number>((value) => inRange(range, value), describeRange(range));

export const text = v.string('a text');

/** A text that goes to the terminal: nothing in it steers one, or ends its line. */
export const line: Schema<string> = v.custom<string>(
  (value) => typeof value === 'string' && !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(value),
  'a text on one line, without control characters',
);

export const truth = v.boolean('true or false');

export const oneOf = <const T extends string | number>(allowed: readonly T[]): Schema<T> =>
  v.picklist(allowed, allowed.length === 1 ? show(allowed[0]) : `one of ${allowed.map(show).join(', ')}`);

/** Where `length` is given, of so many. */
export const list = <T>(item: Schema<T>, length?: number): Schema<T[]> => {
  if (length === undefined) return v.array(item, 'a list');
  return v.pipe(v.array(item, `a list of ${length}`), v.length(length, `a list of ${length}`));
};

/** What can have fields: for this library, a list could too. */
const fields = v.custom<Record<string, unknown>>(isObject, 'an object');

/** An object as a map: any names, one kind of value. */
export const namesTo = <T>(item: Schema<T>): Schema<Record<string, T>> =>
  v.pipe(fields, v.record(v.string(), item, 'an object'));

/** A figure that was measured: what is not finite is null in JSON, and NaN here. */
export const figure: Schema<number> = v.pipe(
  v.custom<number | null>(
    (value) => value === null || typeof value === 'number',
    'a number, or null where it is not finite',
  ),
  v.transform((value) => (value !== null && Number.isFinite(value) ? value : Number.NaN)),
);

/** A field that may be absent; in memory, absent and undefined are the same. */
export const optional = <T>(schema: Schema<T>) =>
  v.optional(schema) as unknown as v.ExactOptionalSchema<Schema<T>, undefined>;

/** What another parser makes of it, which says itself what it refuses. */
export const parsed = <T>(parse: (value: unknown) => T): Schema<T> => v.pipe(v.unknown(), v.transform(parse));

/** An object of one of several kinds, which `field` names. */
export const kinds = <T>(field: string, options: Readonly<Record<string, Schema<T>>>): Schema<T> =>
  v.lazy((value) => {
    const kind = isObject(value) ? value[field] : undefined;
    const found = typeof kind === 'string' && Object.hasOwn(options, kind) ? options[kind] : undefined;
    return found ?? (object({ [field]: oneOf(Object.keys(options)) }) as unknown as Schema<T>);
  });

/** An object with these fields. */
export const object = <const E extends v.ObjectEntries>(entries: E) =>
  v.pipe(
    fields,
    // Of a field that is missing, the issue is the object's.
    v.object(entries, ({ path }) => allowedBy(entries[path?.at(-1)?.key as string])),
  );

/** What is looked into elsewhere. */
export const anything: Schema<unknown> = optional(v.unknown());

/** What a name that is none is told by, among the other issues, and what it is told as. */
const NO_SUCH_OPTION = 'raw_check';
const noSuch = (what: string, name: string, names: readonly string[]): string =>
  `no ${what} ${shortened(name)}; ${namesLike(name, names)}`;

/**
 * Options, every one by its name. Another name that something is given by is refused: one that is misspelt would be as if
 * nothing were said.
 */
export const closed = <T extends object>(entries: { readonly [K in keyof T]-?: Schema<unknown> }): Schema<T> =>
  v.pipe(
    fields,
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const isNone = (name: string) => !Object.hasOwn(entries, name) && dataset.value[name] !== undefined;
      const name = Object.keys(dataset.value).find(isNone);
      if (name !== undefined) addIssue({ message: noSuch('option', name, Object.keys(entries)) });
    }),
    object(entries as v.ObjectEntries),
  ) as unknown as Schema<T>;

/**
 * Handlers of events, each by its name. A function by another name would never be called, and is refused; in an object of a class, which
 * may have methods of its own, where it is called as handlers are (`on…`), or no handler is there at all.
 */
export const handlers = <T extends object>(names: { readonly [K in keyof T]-?: true }): Schema<T> =>
  v.pipe(
    fields,
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const { value } = dataset;
      const known = Object.keys(names);
      const wrong = known.find((name) => value[name] !== undefined && typeof value[name] !== 'function');
      if (wrong !== undefined)
        return addIssue({ message: `the handler ${wrong} is ${show(value[wrong])}; it must be a function` });
      const others = functionsOf(value).filter((name) => !Object.hasOwn(names, name));
      const handlesNone = known.every((name) => value[name] === undefined);
      const isStrict = handlesNone || [Object.prototype, null].includes(Object.getPrototypeOf(value));
      const stranger = others.find((name) => isStrict || /^on[A-Z_]/.test(name));
      if (stranger !== undefined) addIssue({ message: noSuch('handler', stranger, known) });
    }),
  ) as unknown as Schema<T>;

/** The names of an object's functions, those of its class among them. */
function functionsOf(value: object): string[] {
  const names: string[] = [];
  for (let at: object | null = value; at !== null && at !== Object.prototype; at = Object.getPrototypeOf(at))
    for (const [name, { value: found }] of Object.entries(Object.getOwnPropertyDescriptors(at)))
      if (typeof found === 'function' && name !== 'constructor') names.push(name);
  return names;
}

function allowedBy(schema: object | undefined): string {
  if (!schema) return 'there';
  if ('pipe' in schema) return allowedBy((schema.pipe as object[])[0]);
  return 'message' in schema && typeof schema.message === 'string' ? schema.message : 'an object';
}

// ---- Reading -------------------------------------------------------------------------------------------------

/** `fix` is what to do about a file that is no JSON. Errors: HoldfastError. */
export function parseJSON(bytes: Uint8Array, name: string, fix: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new HoldfastError(`${name}: not JSON (${shortened(messageOf(error).split('\n')[0] ?? '')}); ${fix}`);
  }
}

/** `value`, if it is what the schema says. Errors: HoldfastError naming the first field that is not. */
export function check<T>(schema: Schema<T>, value: unknown, name: string): T {
  const found = v.safeParse(schema, value, { abortEarly: true });
  if (found.success) return found.output;
  const [{ path, input, message, type }] = found.issues;
  const field = (path ?? []).reduce(
    (all, { key }) => (typeof key === 'number' ? `${all}[${key}]` : all === '' ? String(key) : `${all}.${String(key)}`),
    '',
  );
  const where = `${name}${field === '' ? '' : `: ${shortened(field)}`}`;
  throw new HoldfastError(
    type === NO_SUCH_OPTION ? `${where}: ${message}` : `${where} is ${show(input)}; it must be ${message}`,
  );
}

/** `value` if it fits, undefined where it does not: for caches, which can be made again. */
export function accept<T>(schema: Schema<T>, value: unknown): T | undefined {
  const found = v.safeParse(schema, value, { abortEarly: true });
  return found.success ? found.output : undefined;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Any value in a message: short, on one line. What is given without types may be what no template takes, such as a symbol. */
export function show(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  // JSON has no word for these.
  if (typeof value === 'bigint') return `${value}n`;
  const shown = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? typeof value);
  return oneLine(shown.length <= 60 ? shown : `${shown.slice(0, 60)}...`);
}
