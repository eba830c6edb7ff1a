// Fields of records and messages, beside those of their shape, that say what is to be learned and are not followed: each is refused
// where it says something. What else a record has (id, source, score) is its own matter.
//
// Invariant: no field that is known to change what is learned, by the names of TRL, LLaMA-Factory, axolotl, ms-swift or OpenAI, is
// passed over.

import { HoldfastError } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';

type Fields = Readonly<Record<string, unknown>>;

/** Fields that say the same. */
interface Rule {
  readonly fields: readonly string[];
  /** Whether a value asks for something. @default any but null, and what is empty */
  readonly asks?: (value: unknown) => boolean;
  /** What is wrong with it, and what to do. */
  readonly why: string;
}

/** Whether a value is there, and not empty. */
export const says = (value: unknown): boolean => {
  if (value === undefined || value === null || value === '') return false;
  if (Array.isArray(value)) return value.length > 0;
  return !isObject(value) || Object.keys(value).length > 0;
};

const isNo = (value: unknown): boolean => value === false || value === 0;
const isYes = (value: unknown): boolean => value === true || value === 1;

const MEDIA: Rule = {
  fields: ['image', 'images', 'video', 'videos', 'audio', 'audios'],
  why: 'text alone is learned; leave the field out, or what has it',
};
/** Of records of every shape, and of none. */
const OF_ALL: readonly Rule[] = [
  {
    fields: ['chosen', 'rejected', 'preferred_output', 'non_preferred_output'],
    why: 'preferences are not learned; give records with the answer to learn alone',
  },
  MEDIA,
];

const NOT_LEARNED = 'an answer that is not to be learned; leave the record out';
/** Of records with an answer. */
const OF_ANSWERED: readonly Rule[] = [
  { fields: ['label', 'kto_tag', 'train', 'training'], asks: isNo, why: NOT_LEARNED },
  { fields: ['masked'], asks: isYes, why: NOT_LEARNED },
  {
    fields: ['weight'],
    asks: (value) => typeof value === 'number' && value !== 1,
    why: 'records are learned alike; give the answers of messages a weight, 0 or 1',
  },
  { fields: ['functions'], why: 'give them as tools' },
  { fields: ['system_prompt', 'system_message'], why: 'give it as system' },
];

const LEARNS = ['train', 'training', 'trainable', 'loss'] as const;
const UNLEARNED = 'give the message "weight": 0 in its place';
/** Of every message. */
const OF_MESSAGES: readonly Rule[] = [
  MEDIA,
  {
    fields: ['train_detail', 'loss_scale', 'loss_weight'],
    asks: (value) => says(value) && value !== 1,
    why: 'messages are learned whole or not at all; leave the field out, or give the message "weight": 0',
  },
];
const OF_ANSWERS: readonly Rule[] = [
  { fields: LEARNS, asks: isNo, why: UNLEARNED },
  { fields: ['masked', 'mask'], asks: isYes, why: UNLEARNED },
  { fields: ['refusal'], why: 'give it as content' },
];
const OF_OTHERS: readonly Rule[] = [
  { fields: LEARNS, asks: isYes, why: 'answers are learned, and no other messages; leave the field out' },
];

/** Errors: HoldfastError naming the field of a record that is not followed. `isAnswered`: whether its shape has an answer. */
export const checkRecordFields = (record: Fields, at: string, isAnswered: boolean): void =>
  checkRules(record, `${at}: `, isAnswered ? [...OF_ALL, ...OF_ANSWERED] : OF_ALL);

/** Errors: HoldfastError naming the field of a message that is not followed; `at` is the place of the message. */
export const checkMessageFields = (message: Fields, role: string, at: string): void =>
  checkRules(message, `${at}.`, [...OF_MESSAGES, ...(role === 'assistant' ? OF_ANSWERS : OF_OTHERS)]);

/** Errors: HoldfastError where a record has a field that its shape has no place for. */
export const checkNone = (record: Fields, at: string, fields: readonly string[], why: string): void =>
  checkRules(record, `${at}: `, [{ fields, why }]);

function checkRules(given: Fields, at: string, rules: readonly Rule[]): void {
  for (const { fields, asks = says, why } of rules) {
    const field = fields.find((field) => Object.hasOwn(given, field) && asks(given[field]));
    if (field !== undefined) throw new HoldfastError(`${at}${field} is ${show(given[field])}; ${why}`);
  }
}
