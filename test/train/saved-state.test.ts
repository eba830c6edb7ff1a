// holdfast_state.json on its way in: what a run writes is read as it was, and anything else is refused in one line that
// names the file, the field, what was found and what is allowed.

import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { runReport } from '../../src/report/run-report.ts';
import { checkSettings } from '../../src/train/run/check-settings.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { tokenizerFor } from '../../src/train/run/run-text.ts';
import { savedSettings, savedState } from '../../src/train/run/saved-state.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { vitCheckpoint } from '../formats/checkpoints.ts';
import { memoryHost } from '../memory-files.ts';
import { CHECKPOINT, changedRun, LLAMA_SETTINGS, RUN, SETTINGS, STEPS, savedRun } from '../saved-run.ts';

/** Of the images of a small model. */
const SIDES = { height: 4, width: 4 };

// biome-ignore lint/suspicious/noExplicitAny: JSON to break
type Change = (state: any) => unknown;

async function refusal(change: Change, settings = SETTINGS): Promise<string> {
  const files = await changedRun(change, settings);
  const error = await savedState(memoryHost(files), RUN).then(
    () => expect.fail('the state was accepted'),
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).not.toContain('\n');
  return error.message;
}

test('what a run writes is read as it was; a figure that is not finite is NaN', async () => {
  const { files, state } = await savedRun();
  expect(await savedState(memoryHost(files), RUN)).toEqual(state);
  expect(await savedSettings(memoryHost(files), RUN)).toEqual(SETTINGS);
});

test('a last step that was skipped is a legal record, and the report says so', async () => {
  const files = await changedRun(({ history, trainer }) => {
    Object.assign(history.steps.at(-1), { loss: null, gradNorm: null });
    // loss, norm, skip, skipped, updates
    trainer.control.splice(3, 5, null, null, 1, 2, STEPS - 2);
  });
  const state = await savedState(memoryHost(files), RUN);
  expect(state.history.steps.at(-1)).toMatchObject({ loss: NaN, gradNorm: NaN });
  const page = await runReport(memoryHost(files), state);
  expect(page).toMatch(/final loss<\/dt><dd>not finite: the last step was skipped</);
  expect(page).not.toContain('NaN</dd>');
});

test('a tokenizer is recorded; a run of an earlier version has none, and is of bytes', async () => {
  expect(SETTINGS.tokenizer).toBeUndefined();
  const { files } = await savedRun();
  const { settings } = await savedState(memoryHost(files), RUN);
  expect(settings).toEqual(SETTINGS);
  expect((await tokenizerFor(files, settings)).identity).toEqual({ kind: 'byte' });
  expect(defaultSettings().tokenizer).toEqual({ kind: 'byte' });
  const named = await savedRun({ ...SETTINGS, tokenizer: { kind: 'byte' } });
  const found = await savedState(memoryHost(named.files), RUN);
  expect(found.settings.tokenizer).toEqual({ kind: 'byte' });
  const larger = { ...settings, config: configOfShape({ vocabulary: 300 }) };
  await expect(tokenizerFor(files, larger, 'it')).rejects.toThrow(
    'it: its vocabulary has 300 tokens, of a tokenizer that is not there',
  );
});

test('fields of a newer version are left out', async () => {
  const files = await changedRun((state) =>
    Object.assign(state, { later: { a: 1 } }, { settings: { ...state.settings, b: 2 } }),
  );
  const state = await savedState(memoryHost(files), RUN);
  expect(Object.keys(state)).not.toContain('later');
  expect(state.settings).toEqual(SETTINGS);
});

describe('refused, by name', () => {
  const cases: [string, Change, string][] = [
    ['another format', (s) => (s.format = 'holdfast 2'), 'format is "holdfast 2"; this version reads "holdfast 1"'],
    ['no format', (s) => delete s.format, 'format is missing; this version reads'],
    [
      'other heads',
      (s) => (s.settings.config.n_head = 4),
      'settings.config.n_head is 4; in config.json beside it, it is 2;',
    ],
    [
      'an activation',
      (s) => (s.settings.config.activation_function = 'relu'),
      'settings.config: activation_function is "relu"; supported',
    ],
    [
      'an epsilon',
      (s) => (s.settings.config.layer_norm_epsilon = 0.5),
      'settings.config.layer_norm_epsilon is 0.5; in config.json',
    ],
    [
      'an earlier model',
      (s) => (s.earlier[0].settings.config.n_layer = 2),
      'earlier.settings.config.n_layer is 2; in config.json',
    ],
    ['clip', (s) => (s.settings.clip = 'abc'), 'settings.clip is "abc"; it must be a number, 0 or more'],
    ['no clip', (s) => delete s.settings.clip, 'settings.clip is missing; it must be a number, 0 or more'],
    ['lr past float32', (s) => (s.settings.lr = 1e39), 'settings.lr is 1e+39; it must be a number'],
    ['lr of nothing', (s) => (s.settings.lr = 0), 'settings: learning rate 0: must be above 0'],
    ['half a sequence', (s) => (s.settings.batch = 1.5), 'settings.batch is 1.5; it must be a whole number, 1 or more'],
    ['no batch', (s) => (s.settings.batch = 0), 'settings.batch is 0; it must be a whole number, 1 or more'],
    ['no micro-batch', (s) => (s.settings.accumulate = 0), 'settings.accumulate is 0; it must be'],
    ['fewer windows than none', (s) => (s.settings.evalWindows = -1), 'settings.evalWindows is -1; it must be'],
    [
      'a schedule',
      (s) => (s.settings.schedule = 'constructor'),
      'settings.schedule is "constructor"; it must be one of "constant"',
    ],
    ['a task', (s) => (s.settings.task = '__proto__'), 'settings.task is "__proto__"; it must be one of "addition"'],
    ['data', (s) => (s.settings.data = ['a', 1]), 'settings.data[1] is 1; it must be a text'],
    [
      'a tokenizer',
      (s) => (s.settings.tokenizer = { kind: 'pieces' }),
      'settings.tokenizer.kind is "pieces"; it must be one of "byte", "huggingface"',
    ],
    [
      'no kind of tokenizer',
      (s) => (s.settings.tokenizer = {}),
      'settings.tokenizer.kind is missing; it must be one of "byte", "huggingface"',
    ],
    ['a rate', (s) => (s.rates.flops = 0), 'rates.flops is 0; it must be a number'],
    ['no link', (s) => delete s.rates.upBytes, 'rates.upBytes is missing; it must be a number'],
    ['from', (s) => (s.settings.from = null), 'settings.from is null; it must be a text'],
    ['step as text', (s) => (s.trainer.step = '12'), 'trainer.step is "12"; it must be a whole number, 0 or more'],
    ['another step', (s) => (s.trainer.step = 13), "trainer.step is 13; the folder's name says 12"],
    ['one control number', (s) => (s.trainer.control = [0]), 'trainer.control is a list of 1; it must be a list of 8'],
    ['nine', (s) => s.trainer.control.push(0), 'trainer.control is a list of 9; it must be a list of 8'],
    [
      'a scale that is no power of two',
      (s) => s.trainer.control.push(1000, 0),
      'trainer.control[8] (gradientScale) is 1000; it must be a power of two, from 1 to 16777216',
    ],
    [
      'a scale of nothing',
      (s) => s.trainer.control.push(0, 0),
      'trainer.control[8] (gradientScale) is 0; it must be a power of two',
    ],
    [
      'half a step',
      (s) => s.trainer.control.push(65536, 0.5),
      'trainer.control[9] (goodSteps) is 0.5; it must be a whole number',
    ],
    ['activations', (s) => (s.settings.activationDtype = 'f8'), 'settings.activationDtype is "f8"; it must be one of'],
    [
      'control of nothing',
      (s) => s.trainer.control.fill(0),
      'trainer.step is 12; trainer.control counts 0 updates and 0',
    ],
    ['no float32', (s) => (s.trainer.control[3] = 1e300), 'trainer.control[3] is 1e+300; it must be a float32'],
    [
      'a loss that is none',
      (s) => (s.trainer.control[4] = null),
      'trainer.control[4] (loss) is null; only a step that was skipped',
    ],
    ['a correction', (s) => (s.trainer.control[0] = 0), 'trainer.control[0] (correction1) is 0; it must be above 0'],
    ['random words', (s) => s.batches.pop(), 'batches is a list of 3; it must be a list of 2 or 4'],
    [
      'a word',
      (s) => (s.sampling[2] = 2 ** 32),
      'sampling[2] is 4294967296; it must be a whole number from 0 to 4294967295',
    ],
    ['no random state', (s) => s.sampling.fill(0), 'sampling is all 0'],
    ['no random state of batches', (s) => s.batches.fill(0), 'batches is all 0'],
    [
      'a large word of batches',
      (s) => (s.batches[1] = 2 ** 32),
      'batches has 4294967296; they must be words of 32 bits',
    ],
    [
      'random words where an epoch and a row are due',
      (s) => (s.settings.records = { trainOn: 'all', pack: 'no' }),
      'batches is a list of 4; it must be a list of 2',
    ],
    [
      'records learned from in no known way',
      (s) => (s.settings.records = { trainOn: 'some', pack: 'no' }),
      'settings.records.trainOn is "some"; it must be one of "answers", "all"',
    ],
    [
      'a template without text',
      (s) => (s.settings.records = { trainOn: 'all', pack: 'no', template: { name: 'x', date: '2026-01-01' } }),
      'settings.records.template.text is missing; it must be a text',
    ],
    ['a choice', (s) => (s.choices['matmul x'] = 5), 'choices.matmul x is 5; it must be a text'],
    ['a corpus', (s) => (s.corpus.bytes = '<b>'), 'corpus.bytes is "<b>"; it must be a whole number'],
    ['a hash', (s) => (s.corpus.sha256 = 'x'), 'corpus.sha256 is "x"; it must be 64 hexadecimal digits'],
    ['no history', (s) => delete s.history, 'history is missing; it must be an object'],
    [
      "a sample's step",
      (s) => (s.history.samples[0].step = '<img src=x>'),
      'history.samples[0].step is "<img src=x>"; it must be a whole',
    ],
    ["a sample's text", (s) => (s.history.samples[0].text = 1), 'history.samples[0].text is 1; it must be a text'],
    ["a step's step", (s) => (s.history.steps[11].step = '<svg onload=alert(2)>'), 'history.steps[11].step is "<svg'],
    ['steps out of order', (s) => s.history.steps.reverse(), 'history.steps[1].step is 10; in order'],
    [
      'a step twice',
      (s) => (s.history.steps[3].step = 2),
      'history.steps[3].step is 2; in order, after 12 steps, it must be from 3 to 11',
    ],
    ['a step to come', (s) => (s.history.steps[11].step = 12), 'history.steps[11].step is 12; in order'],
    ['a validation to come', (s) => (s.history.validations[1].step = 13), 'history.validations[1].step is 13'],
    [
      'a loss as text',
      (s) => (s.history.steps[2].loss = '5'),
      'history.steps[2].loss is "5"; it must be a number, or null',
    ],
    ['no speed', (s) => (s.history.steps[2].tokensPerSecond = null), 'history.steps[2].tokensPerSecond is null'],
    [
      'an accuracy',
      (s) => (s.history.validations[0].accuracy = 2),
      'history.validations[0].accuracy is 2; it must be a number from 0 to 1',
    ],
    ['earlier, but later', (s) => (s.earlier[0].until = 13), 'earlier[0].until is 13; in order'],
    ['no object', (s) => (s.trainer = [1]), 'trainer is a list of 1; it must be an object'],
  ];
  test.each(cases)('%s', async (_, change, message) => {
    const found = await refusal(change);
    expect(found.startsWith(`${CHECKPOINT}/holdfast_state.json: `), found).toBe(true);
    expect(found).toContain(message);
  });
});

test('a field that config.json may lack and does not have is refused, too, and one that the settings alone lack', async () => {
  const scaling = { rope_type: 'linear', factor: 4 };
  const scaled = { ...LLAMA_SETTINGS, config: { ...LLAMA_SETTINGS.config, rope_scaling: scaling } } as RunSettings;
  expect(await refusal((s) => (s.settings.config.rope_scaling = scaling), LLAMA_SETTINGS)).toContain(
    'settings.config.rope_scaling is {"rope_type":"linear","factor":4}; in config.json beside it, it is missing;',
  );
  expect(await refusal((s) => delete s.earlier[0].settings.config.rope_scaling, scaled)).toContain(
    'earlier.settings.config.rope_scaling is missing; in config.json beside it, it is {"rope_type":"linear","factor":4};',
  );
  for (const settings of [LLAMA_SETTINGS, scaled])
    expect(await savedSettings(memoryHost((await savedRun(settings)).files), RUN)).toEqual(settings);
});

describe('what is done with images', () => {
  const { config, images = {} } = vitCheckpoint(1);
  const pixels = { factor: 1, mean: [0], std: [1] };
  const stateWith = async (found: unknown) => {
    const files = await changedRun((s) => {
      Object.assign(s, { batches: [0, 0] });
      Object.assign(s.settings, { config, images: found });
      Object.assign(s.earlier[0].settings, { config });
    });
    await files.writeAtomic(`${CHECKPOINT}/config.json`, JSON.stringify(config));
    return savedState(memoryHost(files), RUN);
  };

  test('that suits the model is read as it was', async () => {
    for (const each of [images, { pixels }, { resize: { height: 9, width: 7, filter: 'bilinear' }, crop: SIDES }])
      expect((await stateWith(each)).settings.images).toEqual(each);
  });

  test.each<[object, string]>([
    [{ crop: { height: 1, width: 1 } }, "crop is 1 x 1; the model's images are of 4 x 4"],
    [{ resize: { ...SIDES, width: 5, filter: 'bilinear' } }, "resize is 4 x 5; the model's images are of 4 x 4"],
    [
      { resize: { height: 3, width: 9, filter: 'bilinear' }, crop: SIDES },
      'crop is 4 x 4; no more than 3 x 9, to which images are brought',
    ],
    [
      { resize: { height: 1e9, width: 4, filter: 'bilinear' } },
      'resize.height is 1000000000; it must be a whole number from 1 to 8192',
    ],
    [{ pixels: { ...pixels, mean: [] } }, 'pixels.mean is a list of 0; it must be a number for each of the 1 channels'],
    [{ pixels: { ...pixels, std: [1, 1] } }, 'pixels.std is a list of 2; it must be a number for each of the 1'],
    [{ pixels: { ...pixels, std: [0] } }, 'pixels makes NaN of a byte; its factor, mean and std must leave finite'],
    [{ pixels: { ...pixels, factor: 1e38 } }, 'pixels makes Infinity of a byte'],
    [{ pixels: { ...pixels, factor: null } }, 'pixels.factor is null; it must be a number'],
  ])('that does not is refused by name: %j', async (found, message) => {
    await expect(stateWith(found)).rejects.toThrow(`${CHECKPOINT}/holdfast_state.json: settings.images.${message}`);
  });

  test('is held against the model in settings of a page and of a program, too', () => {
    const settings = { ...SETTINGS, config, images: { crop: { height: 1, width: 1 } } };
    expect(() => checkSettings(settings)).toThrow("images.crop is 1 x 1; the model's images are of 4 x 4");
  });
});

test('settings of a classifier whose head is not known yet are legal, of several micro-batches, too', () => {
  const bare = parseConfig({ model_type: 'bert', architectures: ['BertModel'] }, 'test');
  expect(() => checkSettings(defaultSettings({ config: bare, accumulate: 2 }))).not.toThrow();
});
