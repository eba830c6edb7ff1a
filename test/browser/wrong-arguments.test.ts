// Every method of the trainer that a page has, and what opens it, called with wrong values (wrong-arguments.ts).

import { afterAll, expect, test } from 'vitest';
import {
  configOfShape,
  DEFAULT_SHAPE,
  defaultSettings,
  type Holdfast,
  openHoldfast,
  type RunInfo,
} from '../../src/browser/index.ts';
import { TrainerService } from '../../src/browser/service.ts';
import { openBrowserHost } from '../../src/runtime/browser.ts';
import { type Call, mistakesOf, strangersTaken } from '../wrong-arguments.ts';

const trainer = await TrainerService.open(await openBrowserHost());
/** Other files find nothing of it: they share the site. */
afterAll(async () => {
  for (const run of await trainer.runs()) await trainer.remove(run.id);
  await (await navigator.storage.getDirectory()).removeEntry('out', { recursive: true });
  await trainer.close();
});

const config = configOfShape({ ...DEFAULT_SHAPE, family: 'gpt2', layers: 1, width: 8, heads: 2, context: 16 });
const settings = defaultSettings({
  config,
  ...{ batch: 2, seq: 8, steps: 2, warmup: 0, evalEvery: 0, sampleEvery: 0, saveEvery: 0, sampleTokens: 0 },
});
const text = 'a text that is learned, again and again. '.repeat(40);
const file = new File(['{}'], 'tokenizer.json');
const memory = { gpu: 1e8, host: 1e8, disk: 1e8, recovery: 'step', policy: 'planned' } as const;
const pixels = { width: 1, height: 1, data: new Uint8ClampedArray(4) };

/** A run that has ended. */
async function trained(): Promise<string> {
  const over = new Promise<void>((resolve) => {
    trainer.listen((events) => {
      if (events.some(({ type }) => type === 'ended' || type === 'failed')) resolve();
    });
  });
  const { id } = await trainer.start({ settings, text, name: 'first' });
  await over;
  return id;
}

/** What was started ends again, and is gone. */
async function ended(made: Promise<{ readonly id: string }>, kept?: string): Promise<void> {
  const { id } = await made;
  // It may have ended by itself.
  await trainer.stop().catch(() => {});
  if (id !== kept) await trainer.remove(id);
}

const method =
  (name: keyof TrainerService) =>
  (...args: unknown[]): unknown =>
    (trainer[name] as (...given: unknown[]) => unknown)(...args);

const making =
  (name: 'fork' | 'importModel' | 'importRun' | 'resume', kept?: string) =>
  async (...args: unknown[]): Promise<void> =>
    ended(method(name)(...args) as Promise<RunInfo>, kept);

const id = await trained();
const out = await (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true });
// Takes longer than others: it measures.
await trainer.estimate(settings);
const writing = { tokens: 2, temperature: 1, topP: 0.5, seed: 1, adapter: 'none' };

const CALLS: Readonly<Record<string, Call>> = {
  chat: { args: [id, { ...writing, messages: [] }, () => {}], call: method('chat') },
  'chat, message': {
    args: [{ role: 'user', content: 'hi' }],
    call: (message) => trainer.chat(id, { messages: [message] }),
  },
  classesIn: { args: [settings, text], call: method('classesIn') },
  classify: { args: [id, { ...pixels }], call: method('classify') },
  'classify, pair': { args: [id, ['a', 'b']], call: method('classify') },
  compareActivations: { args: [settings, memory], call: method('compareActivations') },
  comparePolicies: { args: [settings, memory], call: method('comparePolicies') },
  environment: { args: [], call: () => trainer.environment() },
  estimate: {
    args: [settings, memory, { 'wte.weight': 'f32' }, 'known'],
    call: method('estimate'),
  },
  plan: { args: [settings, memory, { 'wte.weight': 'f32' }], call: method('plan') },
  exportFolder: { args: [id, out], call: method('exportFolder') },
  exportModel: {
    args: [id, { form: 'model', dtype: 'f32' }],
    call: method('exportModel'),
  },
  'exportModel, GGUF': { args: [{ form: 'gguf', type: 'F16' }], call: (wanted) => trainer.exportModel(id, wanted) },
  exportZip: { args: [id], call: (given) => trainer.exportZip(given) },
  fork: {
    args: [id, { name: 'other', changes: { steps: 3 }, memory }],
    call: making('fork'),
  },
  'fork, changes': {
    args: [{ steps: 3, lr: 0.1, schedule: 'cosine' }],
    call: (changes) => ended(trainer.fork(id, { changes })),
  },
  hasData: { args: [id], call: (given) => trainer.hasData(given) },
  history: { args: [id], call: (given) => trainer.history(given) },
  importModel: {
    args: [[{ path: 'model/config.json', file }], 'name', () => {}],
    call: making('importModel'),
  },
  'importModel, hub': {
    args: [{ hub: 'no such name', endpoint: 'https://127.0.0.1:9', token: 'token' }],
    call: (source) => trainer.importModel(source),
  },
  importRun: { args: [[file], 'name'], call: making('importRun') },
  inspectModel: { args: [[{ path: 'model/config.json', file }]], call: (source) => trainer.inspectModel(source) },
  'inspectModel, run': { args: [id], call: (source) => trainer.inspectModel(source) },
  'inspectModel, file': {
    args: [{ path: 'model/config.json', file }],
    call: (chosen) => trainer.inspectModel([chosen]),
  },
  isAdapterZip: { args: [file], call: (given) => trainer.isAdapterZip(given) },
  listen: { args: [() => {}], call: (listener) => trainer.listen(listener) },
  next: { args: [id, 'a', 2], call: method('next') },
  pause: { args: [], call: () => trainer.pause() },
  recordStep: { args: [], call: () => trainer.recordStep() },
  recordsIn: { args: [text], call: (given) => trainer.recordsIn(given) },
  remove: { args: ['none'], call: (given) => trainer.remove(given) },
  rename: { args: [id, 'name'], call: method('rename') },
  report: { args: [id], call: (given) => trainer.report(given) },
  resume: {
    args: [id, { memory, steps: 2, text, images: undefined, paused: false }],
    call: making('resume', id),
  },
  'resume, images': {
    args: [{ path: 'cat/1.png', file }],
    call: (chosen) => ended(trainer.resume(id, { images: [chosen] }), id),
  },
  runs: { args: [], call: () => trainer.runs() },
  sample: { args: [id, { ...writing, prompt: 'a' }, () => {}], call: method('sample') },
  setMemory: { args: [memory], call: (given) => trainer.setMemory(given) },
  start: {
    args: [{ settings, name: 'name', memory, text, images: undefined, tokenizer: undefined, records: undefined }],
    call: (wanted) => ended(trainer.start(wanted)),
  },
  'start, images': {
    args: [{ path: 'cat/1.png', file }],
    call: (chosen) => ended(trainer.start({ settings, images: [chosen] })),
  },
  'start, records': {
    args: [{ trainOn: 'answers', pack: 'yes', template: 'chatml' }],
    call: (records) => ended(trainer.start({ settings, text, records })),
  },
  step: { args: [], call: () => trainer.step() },
  stop: { args: [], call: () => trainer.stop() },
  trainTokenizer: { args: [260, text], call: method('trainTokenizer') },
  unpause: { args: [], call: () => trainer.unpause() },
  vocabularyOf: { args: [[file]], call: (chosen) => trainer.vocabularyOf(chosen) },
  'vocabularyOf, file': { args: [file], call: (chosen) => trainer.vocabularyOf([chosen]) },
  voiceOf: { args: [id], call: (given) => trainer.voiceOf(given) },
  weightsOf: { args: [id], call: (given) => trainer.weightsOf(given) },
};

/** Data, not options. */
const HOLDS_MORE =
  /\.(?:config|tokenizer)$|^(?:chat, message|classify|(?:estimate|plan), argument 2)|, (?:file|images),/;

test('a method of the trainer refuses a wrong argument in one line, or takes it, and an option that there is not', async () => {
  const named = new Set(Object.keys(CALLS).map((name) => name.replace(/,.*$/, '')));
  const methods = Object.getOwnPropertyNames(TrainerService.prototype);
  expect(methods.filter((name) => !named.has(name) && !['constructor', 'close'].includes(name))).toEqual([]);
  expect(await mistakesOf(CALLS)).toEqual([]);
  expect((await strangersTaken(CALLS)).filter((what) => !HOLDS_MORE.test(what))).toEqual([]);
  // It works still.
  expect(await trainer.sample(id, { prompt: 'a', tokens: 2 })).toEqual(expect.any(String));
});

test('a run has no name of spaces alone', async () => {
  const blank = /^the (name|new run|fork)\b.*must be a text that is not blank$/;
  const { name } = (await trainer.runs()).find((run) => run.id === id) as RunInfo;
  expect(() => trainer.rename(id, ' ')).toThrow(blank);
  expect(() => trainer.fork(id, { name: '', changes: { steps: 3 } })).toThrow(blank);
  expect(() => trainer.start({ settings, text, name: '\t' })).toThrow(blank);
  expect((await trainer.runs()).map((run) => [run.id, run.name])).toEqual([[id, name]]);
  const zip = new File([await trainer.exportZip(id)], ' .zip');
  const imported = await trainer.importRun([zip]);
  expect(imported.name).toBe('imported');
  await trainer.remove(imported.id);
});

test('what opens the library refuses a wrong option in one line, or takes it', async () => {
  const open = async (...args: Parameters<typeof openHoldfast>) => {
    const holdfast: Holdfast = await openHoldfast(...args);
    holdfast.close();
  };
  expect(
    await mistakesOf({ openHoldfast: { args: [{ onEvents: undefined, worker: undefined }], call: open } }),
  ).toEqual([]);
});
