// Records of texts with their classes: {"text": ..., "label": ...}, or two texts and a label by the names that the GLUE tasks
// have for them. What a label is to a model is classes.ts; how texts become rows, labelled-texts.ts.
//
// Invariant: a record that is given has a text and a label, and all labels of a reading are names, or all are numbers.

import * as v from 'valibot';
import { MOST_CLASSES } from '../../formats/families/labels.ts';
import type { ReadingHost } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { check, isObject, object, type Schema, show, text } from '../../util/json.ts';
import { type DataClasses, type Label, sortedNames } from '../classes.ts';
import { JSON_FILE, RECORDS } from './file-names.ts';
import { fieldsIn, hasLabel, KNOWN_FIELDS, LABEL, type TextFields } from './labelled-fields.ts';
import { firstRecord, type LineOptions, recordsOf } from './lines.ts';
import { ownFilesOf, recordFilesOf } from './record-files.ts';

/** A record as it is read. */
export interface LabelledRecord {
  /** For messages: the file and the line, or the item. */
  readonly at: string;
  readonly first: string;
  readonly second?: string | undefined;
  readonly label: Label;
}

const label: Schema<Label> = v.custom<Label>(
  (value) =>
    (typeof value === 'string' && value.trim() !== '') || (Number.isSafeInteger(value) && (value as number) >= 0),
  'a name, or a whole number from 0 on',
);

/** Whether the sources begin with a record that has a text and a label. */
export async function holdLabelled(host: ReadingHost, sources: readonly string[]): Promise<boolean> {
  for await (const { path, kind } of ownFilesOf(host.files, sources)) {
    if (kind !== 'file') return false;
    const first = await firstRecord(host.files, path);
    return hasLabel(first?.value);
  }
  return false;
}

/** Whether the sources begin with a record of two texts. */
export async function holdPairs(host: ReadingHost, sources: readonly string[]): Promise<boolean> {
  for await (const { path } of recordFilesOf(host.files, sources))
    return fieldsIn((await firstRecord(host.files, path))?.value)?.length === 2;
  return false;
}

/** Of what learns nothing else from records. Errors: HoldfastError for sources that begin with one that has no text and label by known names. */
export async function refuseUnlabelled(host: ReadingHost, sources: readonly string[]): Promise<void> {
  for await (const { path, name, isFound, kind } of ownFilesOf(host.files, sources)) {
    const isOfRecords = kind === 'file' && (RECORDS.test(name) || (JSON_FILE.test(name) && !isFound));
    const first = isOfRecords ? await firstRecord(host.files, path) : undefined;
    if (!isObject(first?.value) || hasLabel(first.value)) return;
    const own = shortened(JSON.stringify(Object.keys(first.value).join(', ')));
    throw new HoldfastError(
      `${first.at} has fields ${own}, and of records a model that writes no text learns classes; it must have ${KNOWN_FIELDS}`,
    );
  }
}

/** Tells the texts of records, of which the first says what the fields are called. Errors: HoldfastError naming the place of what has none. */
function textsReader(): (value: unknown, at: string) => readonly [first: string, second?: string] {
  let fields: TextFields | undefined;
  return (value, at) => {
    fields ??= fieldsIn(value);
    if (!fields) throw new HoldfastError(`${at} is ${show(value)} without a text; it must have ${KNOWN_FIELDS}`);
    const [first, second] = fields;
    const entries = { [first]: text, ...(second !== undefined && { [second]: text }) };
    const texts: Record<string, string> = check(object(entries), value, at);
    const one = texts[first] ?? '';
    return second === undefined ? [one] : [one, texts[second] ?? ''];
  };
}

/**
 * The text of each record of a file, or the two of a pair, whether it has a label or not. Errors: HoldfastError naming the place of a record
 * that has none, and for no records.
 */
export async function recordTexts({ files }: ReadingHost, path: string): Promise<(readonly string[])[]> {
  const textsOf = textsReader();
  const found: (readonly string[])[] = [];
  for await (const { at, value } of recordsOf(files, path)) found.push(textsOf(value, at) as readonly string[]);
  if (found.length > 0) return found;
  throw new HoldfastError(`${path}: no records; name a file of them`);
}

/** The records of all files. Errors: HoldfastError naming the file, the line and the field of what cannot be used. */
export async function* labelledRecords(
  host: ReadingHost,
  sources: readonly string[],
  options: LineOptions = {},
): AsyncGenerator<LabelledRecord> {
  let kind: string | undefined;
  const textsOf = textsReader();
  for await (const { path } of recordFilesOf(host.files, sources)) {
    for await (const { at, value } of recordsOf(host.files, path, options)) {
      const [first, second] = textsOf(value, at);
      const { label: is } = check(object({ [LABEL]: label }), value, at) as { label: Label };
      kind ??= typeof is;
      if (typeof is !== kind) {
        const [others, own] = kind === 'string' ? ['names', 'a number'] : ['numbers', 'a name'];
        throw new HoldfastError(`${at}: label is ${show(is)}, ${own}; those before it are ${others}`);
      }
      yield { at, first, second, label: is };
    }
  }
  if (kind === undefined) throw new HoldfastError(`${shortened(sources.join(', '))}: no records; name a file of them`);
}

/** The classes that records are of. Errors: as `labelledRecords`, and for more classes than are told apart. */
export async function recordClasses(host: ReadingHost, sources: readonly string[]): Promise<DataClasses> {
  const places = new Map<string, string>();
  let count = 0;
  for await (const { at, label } of labelledRecords(host, sources)) {
    if (typeof label === 'number') count = Math.max(count, label + 1);
    else if (!places.has(label)) places.set(label, at);
    if (Math.max(count, places.size) <= MOST_CLASSES) continue;
    const problem =
      typeof label === 'number' ? `label is ${label}, and classes are numbered from 0 on` : 'one class more';
    throw new HoldfastError(`${at}: ${problem}; ${MOST_CLASSES} at most are told apart`);
  }
  return places.size > 0 ? { kind: 'named', names: sortedNames(places.keys()), places } : { kind: 'numbered', count };
}
