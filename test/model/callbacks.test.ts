// Callbacks of a run on a device: what they hear and when, what they may ask for, that no bit depends on them; early
// stopping, the best checkpoint, and a trainer_state.json that plotting tools read.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import type { TrainerCallback } from '../../src/train/run/callbacks.ts';
import type { HuggingFaceState } from '../../src/train/run/huggingface-state.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunOptions } from '../../src/train/run/run-events.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { asEarlierVersion } from '../earlier-checkpoint.ts';
import { hasPython } from '../formats/python-reader.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

chooseVariants(6);

const TEXT = 'hold fast, hold on; '.repeat(12);
const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);
const settings = (changes: Partial<RunSettings> = {}) =>
  defaultSettings({
    ...{ config, data: ['text.txt'], batch: 4, steps: 12, warmup: 0, sampleTokens: 0, evalWindows: 2 },
    ...{ evalEvery: 4, saveEvery: 6, sampleEvery: 0, ...changes },
  });

const fresh = () => new MemoryFiles({ 'text.txt': TEXT, 'other.txt': 'QUITE ANOTHER TEXT, IN CAPITALS. '.repeat(9) });
/** What was measured once: with other kernels, bits would be others. */
const cached = new Map<string, Uint8Array<ArrayBuffer>>();
async function start(files: MemoryFiles, changes: Partial<RunSettings> = {}, options: RunOptions = {}) {
  for (const [path, bytes] of cached) files.contents.set(path, bytes);
  const summary = await trainRun(memoryHost(files), await testDevice(), settings(changes), 'run', options);
  for (const [path, bytes] of files.contents) if (path.startsWith('/cache/')) cached.set(path, bytes);
  return summary;
}
const fileOf = async (files: MemoryFiles, step: number): Promise<HuggingFaceState> =>
  JSON.parse(new TextDecoder().decode(await files.read(`run/checkpoint-${step}/trainer_state.json`)));
const stateOf = (files: MemoryFiles, step: number) => savedState(memoryHost(files), `run/checkpoint-${step}`);
const weightsOf = (files: MemoryFiles, step: number) => files.read(`run/checkpoint-${step}/model.safetensors`);
const foldersOf = async (files: MemoryFiles) => (await files.list('run')).filter((name) => name.startsWith('check'));

/** Writes down what it hears. */
function recorder() {
  const heard: string[] = [];
  const note =
    (name: string) =>
    ({ global_step, epoch }: HuggingFaceState) =>
      void heard.push(`${name} ${global_step} ${epoch.toFixed(2)}`);
  const callback: TrainerCallback = {
    ...{ onTrainBegin: note('train begin'), onTrainEnd: note('train end') },
    ...{ onEpochBegin: note('epoch begin'), onEpochEnd: note('epoch end') },
    ...{ onStepBegin: note('step begin'), onStepEnd: note('step end') },
    ...{ onLog: note('log'), onEvaluate: note('evaluate'), onSave: note('save') },
  };
  return { heard, callback };
}

test('each event is heard, in order, and no bit depends on it', async () => {
  // 216 of 240 bytes train: 27 windows of 8 are an epoch, six steps and three quarters.
  const [plain, watched] = [fresh(), fresh()];
  await start(plain);
  const { heard, callback } = recorder();
  const slow: TrainerCallback = { onStepEnd: () => new Promise((resolve) => setTimeout(resolve, 1)) };
  await start(watched, {}, { callbacks: [slow, callback] });
  expect(await weightsOf(watched, 12)).toEqual(await weightsOf(plain, 12));
  const step = (n: number) => {
    const after = ((4 * n) / 27).toFixed(2);
    return [`step begin ${n - 1} ${((4 * (n - 1)) / 27).toFixed(2)}`, `step end ${n} ${after}`, `log ${n} ${after}`];
  };
  expect(heard).toEqual([
    ...['train begin 0 0.00', 'epoch begin 0 0.00', ...[1, 2, 3, 4].flatMap(step), 'evaluate 4 0.59'],
    ...[...[5, 6].flatMap(step), 'save 6 0.89', ...step(7), 'epoch end 7 1.04', 'epoch begin 7 1.04'],
    ...[...step(8), 'evaluate 8 1.19', ...[9, 10, 11, 12].flatMap(step), 'evaluate 12 1.78', 'save 12 1.78'],
    'train end 12 1.78',
  ]);
});

test('trainer_state.json has the fields and the log that plotting tools read, the same where the run was resumed', async () => {
  const [whole, parts] = [fresh(), fresh()];
  await start(whole);
  await start(parts, {}, { until: 5 });
  await start(parts, {}, { resume: true });
  const [file, resumed] = [await fileOf(whole, 12), await fileOf(parts, 12)];
  expect(resumed.log_history).toEqual(file.log_history);
  const { history } = await savedState(memoryHost(whole), 'run');
  expect(file.log_history.filter(({ loss }) => loss !== undefined)).toEqual(
    history.steps.map(({ step, loss, lr, gradNorm }) => ({
      ...{ step: step + 1, loss, learning_rate: lr, grad_norm: gradNorm },
      epoch: (4 * (step + 1)) / 27 < 1 ? (4 * (step + 1)) / 27 : 1 + (4 * (step + 1) - 27) / 27,
    })),
  );
  expect(file.log_history.flatMap(({ step, eval_loss }) => (eval_loss === undefined ? [] : [step]))).toEqual([
    4, 8, 12,
  ]);
  const best = Math.min(...history.validations.map(({ loss }) => loss));
  expect(file).toMatchObject({
    ...{ global_step: 12, max_steps: 12, num_train_epochs: 2, train_batch_size: 4, logging_steps: 1, eval_steps: 4 },
    ...{ save_steps: 6, best_metric: best, best_model_checkpoint: null, is_world_process_zero: true, total_flos: 0 },
  });
});

/** What a value of a field is. */
const IS = {
  number: (value) => typeof value === 'number',
  count: (value) => Number.isSafeInteger(value),
  text: (value) => typeof value === 'string',
  flag: (value) => typeof value === 'boolean',
  null: (value) => value === null,
  entries: (value) =>
    Array.isArray(value) && value.length > 0 && value.every((entry) => Object.values(entry).every(Number.isFinite)),
} satisfies Readonly<Record<string, (value: unknown) => boolean>>;

/** The fields of TrainerState in version 4.40 of Transformers, by what a value of each is. Later versions have more. */
const TRAINER_STATE: Readonly<Record<string, keyof typeof IS>> = {
  ...{ epoch: 'number', global_step: 'count', max_steps: 'count', logging_steps: 'count', eval_steps: 'count' },
  ...{ save_steps: 'count', train_batch_size: 'count', num_train_epochs: 'count', num_input_tokens_seen: 'count' },
  ...{ total_flos: 'number', log_history: 'entries', best_metric: 'number', best_model_checkpoint: 'text' },
  ...{ is_local_process_zero: 'flag', is_world_process_zero: 'flag', is_hyper_param_search: 'flag' },
  ...{ trial_name: 'null', trial_params: 'null' },
};

/** A dataclass of these fields, made of a file as Hugging Face's is, by its names. */
const DATACLASS = `
import dataclasses, json, sys
path, names = sys.argv[1], sys.argv[2].split()
State = dataclasses.make_dataclass('TrainerState', [(name, object, None) for name in names])
state = State(**json.load(open(path, encoding='utf-8')))
print(json.dumps(dataclasses.asdict(state)))
`;

test('every key of trainer_state.json is a field of Hugging Face’s TrainerState, and each field is there, of its type', async () => {
  const files = fresh();
  await start(files, { keepBest: true });
  const file = await fileOf(files, 12);
  expect(Object.keys(file).toSorted()).toEqual(Object.keys(TRAINER_STATE).toSorted());
  for (const [name, value] of Object.entries(file)) {
    const type = TRAINER_STATE[name];
    expect(type && IS[type](value), `${name} is a ${type}: ${JSON.stringify(value)}`).toBe(true);
  }
  if (!hasPython) return;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-trainer-state-'));
  try {
    const at = path.join(folder, 'trainer_state.json');
    writeFileSync(at, await files.read('run/checkpoint-12/trainer_state.json'));
    const names = Object.keys(TRAINER_STATE).join(' ');
    const read = execFileSync('python3', ['-c', DATACLASS, at, names], { encoding: 'utf8' });
    expect(JSON.parse(read)).toEqual(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a checkpoint of an earlier version, whose states are in one file, goes on to the bit, and is two files from then on', async () => {
  const [whole, parts] = [fresh(), fresh()];
  await start(whole);
  await start(parts, {}, { until: 6 });
  await asEarlierVersion(parts, 'run/checkpoint-6');
  const before = await stateOf(parts, 6);
  expect(before.trainer.step).toBe(6);
  await start(parts, {}, { resume: true });
  for (const name of ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json'])
    expect(await parts.read(`run/checkpoint-12/${name}`), name).toEqual(await whole.read(`run/checkpoint-12/${name}`));
  const timeless = async (files: MemoryFiles) => {
    const { history, ...state } = await stateOf(files, 12);
    return { ...state, steps: history.steps.map(({ tokensPerSecond: _, ...figures }) => figures) };
  };
  expect(await timeless(parts)).toEqual(await timeless(whole));
  expect(await parts.list('run/checkpoint-12')).toContain('holdfast_state.json');
});

test('what a callback asks for is done behind the step: it ends the run, which can be gone on with', async () => {
  const [whole, steered] = [fresh(), fresh()];
  await start(whole);
  const saved: number[] = [];
  const steering: TrainerCallback = {
    onStepEnd({ global_step }, control) {
      control.shouldEvaluate = global_step === 2;
      control.shouldSave = global_step === 3;
      if (global_step === 5) control.shouldTrainingStop = true;
    },
    onSave: ({ global_step }) => void saved.push(global_step),
  };
  const summary = await start(steered, {}, { callbacks: [steering] });
  expect(summary).toMatchObject({ steps: 5, interrupted: false, stopped: true });
  expect(saved).toEqual([3, 5]);
  const { history } = await savedState(memoryHost(steered), 'run');
  expect(history.validations.map(({ step }) => step)).toEqual([2, 4]);
  await start(steered, {}, { resume: true });
  expect(await weightsOf(steered, 12)).toEqual(await weightsOf(whole, 12));
});

test('early stopping ends a run whose validations get worse, keeps the best, and holds when it is resumed', async () => {
  const files = fresh();
  const other = { validationFile: 'other.txt', evalEvery: 2, saveEvery: 3, steps: 80, lr: 0.05, keepBest: true };
  const stopping = { ...other, earlyStoppingPatience: 3 };
  const summary = await start(files, stopping);
  const { history } = await savedState(memoryHost(files), 'run');
  const losses = history.validations.map(({ loss }) => loss);
  const best = losses.indexOf(Math.min(...losses));
  expect(losses.length).toBe(best + 1 + 3);
  const step = 2 * (best + 1);
  expect(summary).toMatchObject({ steps: step + 6, stopped: true, best: { step, loss: losses[best] } });
  expect(summary.best?.checkpoint).toBe(`run/checkpoint-${step}`);
  const { best_metric, best_model_checkpoint } = await fileOf(files, step + 6);
  expect([best_metric, best_model_checkpoint]).toEqual([losses[best], `run/checkpoint-${step}`]);
  // The best, and the newest two.
  const kept = await foldersOf(files);
  expect(kept).toHaveLength(3);
  expect(kept).toContain(`checkpoint-${step}`);
  expect((await stateOf(files, step)).trainer.step).toBe(step);

  const again = await start(files, stopping, { resume: true });
  expect([again.steps, again.stopped]).toEqual([step + 6, true]);
  const on = await start(files, { ...stopping, earlyStoppingPatience: 4 }, { resume: true });
  expect([on.steps, on.best?.step]).toEqual([step + 8, step]);
  expect(await foldersOf(files)).toContain(`checkpoint-${step}`);

  const whole = fresh();
  const straight = await start(whole, { ...stopping, earlyStoppingPatience: 4 });
  expect(straight.steps).toBe(step + 8);
  expect(await weightsOf(whole, step + 8)).toEqual(await weightsOf(files, step + 8));
});

test('early stopping without validations is refused', async () => {
  await expect(start(fresh(), { evalEvery: 0, earlyStoppingPatience: 1 })).rejects.toThrow(
    'early stopping goes by validations, and there is one at the end only; give --eval-every',
  );
});
