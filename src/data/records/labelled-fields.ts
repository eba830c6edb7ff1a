// Fields of records that have a text and its class: {"text": ..., "label": ...}, or two texts and a label by the names that the GLUE
// tasks have for them. Nothing of what is in them.

import { isObject } from '../../util/json.ts';

/** One text, or two. */
export type TextFields = readonly [first: string, second?: string];

/** The fields with texts: of several that a record has, those that come first here. */
const TEXTS: readonly TextFields[] = [
  ['text', 'text_pair'],
  ['sentence1', 'sentence2'],
  ['premise', 'hypothesis'],
  ['question1', 'question2'],
  ['question', 'sentence'],
  ['text'],
  ['sentence'],
];
/** The field with the class. */
export const LABEL = 'label';
/** All of them, for messages. */
export const KNOWN_FIELDS = `${LABEL}, and ${TEXTS.map((fields) => fields.join(' and ')).join(', or ')}`;

/** The fields with its texts. */
export const fieldsIn = (value: unknown): TextFields | undefined =>
  isObject(value)
    ? TEXTS.find((fields) => fields.every((field) => field !== undefined && Object.hasOwn(value, field)))
    : undefined;

/** Whether it has a text and a label, whatever is in them. */
export const hasLabel = (value: unknown): boolean =>
  isObject(value) && Object.hasOwn(value, LABEL) && fieldsIn(value) !== undefined;
