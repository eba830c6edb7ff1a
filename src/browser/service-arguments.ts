// Arguments of the trainer's methods, checked before anything is done: a page may give anything, and it comes as a message.
// Settings and budgets are not looked into here: they are read wherever they are used (readSettings, readMemory).

import * as v from 'valibot';
import { TRAIN_ON } from '../data/records/read-records.ts';
import { SAVED_DTYPES } from '../formats/export.ts';
import { TENSOR_TYPE_NAMES } from '../formats/gguf/tensor-types.ts';
import type { HubSource } from '../formats/remote/hub-model.ts';
import { callable, having } from '../util/arguments.ts';
import {
  anything,
  check,
  closed,
  kinds,
  list,
  namesTo,
  number,
  object,
  oneOf,
  optional,
  type Schema,
  text,
  truth,
} from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { STORED_BLOCKS } from '../values/stored-elements.ts';
import { chosenFiles, file } from './arguments.ts';
import type {
  ChatRequest,
  Fork,
  ModelExport,
  NewRun,
  RecordChoice,
  SampleRequest,
  WritingRequest,
} from './protocol.ts';
import type { ResumeOptions } from './run-records.ts';

/** A list, or what else it may be. */
const listOr = (items: Schema<unknown>, other: Schema<unknown>): Schema<unknown> =>
  v.lazy((value) => (Array.isArray(value) ? items : other));

const trainingText = v.custom<string | Blob>(
  (value) => typeof value === 'string' || value instanceof Blob,
  'a text or a File',
);
const hub = closed<HubSource>({ hub: text, endpoint: optional(text), token: optional(text) });
const modelFiles = listOr(chosenFiles, hub);
const someText = optional(trainingText);
const images = optional(chosenFiles);
const records = closed<RecordChoice>({
  trainOn: optional(oneOf(TRAIN_ON)),
  pack: optional(oneOf(['yes', 'no'])),
  template: optional(text),
});
/** Of a run: one of nothing but spaces could not be seen, or pressed. */
const runName = v.custom<string>(
  (value) => typeof value === 'string' && value.trim() !== '',
  'a text that is not blank',
);
const newRun = closed<NewRun>({
  settings: anything,
  name: optional(runName),
  memory: anything,
  text: someText,
  images,
  tokenizer: optional(list(file)),
  records: optional(records),
});
const resumption = closed<ResumeOptions & { readonly paused?: boolean }>({
  memory: anything,
  steps: optional(number(wholeNumber(1))),
  text: someText,
  images,
  paused: optional(truth),
});
const fork = closed<Fork>({ name: optional(runName), changes: optional(object({})), memory: anything });
/** How it is written is looked into where it is. */
const writing = {
  adapter: anything,
  tokens: optional(number(wholeNumber(0))),
  temperature: anything,
  topP: anything,
  seed: anything,
} as const satisfies Record<keyof WritingRequest, unknown>;
const message = object({ role: text, content: text });
const stored = namesTo(oneOf(Object.keys(STORED_BLOCKS)));
type ExportAs<F> = Extract<ModelExport, { readonly form: F }>;
const wantedExport = kinds<unknown>('form', {
  adapter: closed<ExportAs<'adapter'>>({ form: text }),
  model: closed<ExportAs<'model'>>({ form: text, dtype: optional(oneOf(Object.keys(SAVED_DTYPES))) }),
  gguf: closed<ExportAs<'gguf'>>({ form: text, type: optional(oneOf(TENSOR_TYPE_NAMES)) }),
});
const target = having<FileSystemDirectoryHandle>('a folder, as showDirectoryPicker gives', 'getFileHandle');

/** Arguments by their names, in the order of the method's. */
type Arguments = Readonly<Record<string, Schema<unknown>>>;

const id: Arguments = { 'the id of the run': text };
const onText: Arguments = { 'the function for text': optional(callable) };
const name: Arguments = { 'the name': optional(runName) };

/** Of every method that has any, but for those whose arguments are settings and budgets alone. */
const ARGUMENTS = {
  listen: { 'the listener': callable },
  estimate: {
    'the settings': anything,
    'the memory settings': anything,
    'what the weights are stored as': optional(stored),
    'where the speed is from': optional(oneOf(['measured', 'known'])),
  },
  plan: {
    'the settings': anything,
    'the memory settings': anything,
    'what the weights are stored as': optional(stored),
  },
  history: id,
  rename: { ...id, 'the name': runName },
  remove: id,
  start: { 'the new run': newRun },
  resume: { ...id, 'the options of resume': optional(resumption) },
  hasData: id,
  fork: { ...id, 'the fork': optional(fork) },
  sample: { ...id, 'the request': closed<SampleRequest>({ ...writing, prompt: text }), ...onText },
  next: { ...id, 'the prompt': text, 'the number of tokens': optional(number(wholeNumber(1))) },
  chat: { ...id, 'the request': closed<ChatRequest>({ ...writing, messages: list(message) }), ...onText },
  voiceOf: id,
  classify: { ...id, 'the pair of texts': listOr(list(text, 2), anything) },
  inspectModel: { 'the model': v.lazy((given) => (typeof given === 'string' ? text : modelFiles)) },
  isAdapterZip: { 'the zip': file },
  importModel: { 'the model': modelFiles, ...name, 'the function for progress': optional(callable) },
  recordsIn: { 'the text': trainingText },
  classesIn: { 'the settings': anything, 'the data': listOr(chosenFiles, trainingText) },
  exportModel: { ...id, 'the export': wantedExport },
  vocabularyOf: { 'the tokenizer': list(file) },
  trainTokenizer: { 'the vocabulary': number(wholeNumber(1)), 'the text': someText },
  exportZip: id,
  exportFolder: { ...id, 'the folder': target },
  report: id,
  importRun: { 'the run': list(file), ...name },
  weightsOf: id,
} as const satisfies Readonly<Record<string, Arguments>>;

/** A service with these methods, made to refuse what they cannot be given. Errors, of each: HoldfastError naming the argument. */
export function refusing<T extends Record<keyof typeof ARGUMENTS, (...given: never[]) => unknown>>(service: T): T {
  for (const [name, schemas] of Object.entries<Arguments>(ARGUMENTS)) {
    const method = service[name as keyof typeof ARGUMENTS] as (...given: unknown[]) => unknown;
    const checked = (...given: unknown[]) => {
      for (const [i, [called, schema]] of Object.entries(schemas).entries()) check(schema, given[i], called);
      return method.apply(service, given);
    };
    Object.defineProperty(service, name, { value: checked });
  }
  return service;
}
