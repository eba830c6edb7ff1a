// The saved state of a run: holdfast_state.json, all of a checkpoint besides weights and moments. All that a run needs
// to go on, and all that it has to show for itself; and the one place that reads it, for resume, import, parity, fork,
// report and page. Earlier versions wrote it into trainer_state.json, among Hugging Face's fields, where it is still read.
//
// Invariant: a SavedState is whole and agrees with the checkpoint that it lies in. Fields that are not known are left
// out: a format of another meaning has another name.

import type { TextIdentity } from '../../data/corpus.ts';
import type { ChoiceRecord } from '../../engine/compile/choices.ts';
import { type Rates, ratesSchema } from '../../engine/compile/rates.ts';
import { checkpointsOf, incompleteIn, type LoadedState, loadState } from '../../formats/checkpoint.ts';
import { differenceOf, type ModelConfig, parseConfig } from '../../formats/config.ts';
import { labelsIn } from '../../formats/families/index.ts';
import { checkPreparation } from '../../formats/preprocessor.ts';
import type { Device } from '../../gpu/device.ts';
import { LARGEST_SCALE, LEAST_SCALE, SCALER, STATE } from '../../kernels/step-control.ts';
import type { Files, Host } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import {
  check,
  figure,
  list,
  namesTo,
  number,
  object,
  oneOf,
  optional,
  parsed,
  type Schema,
  show,
  text,
} from '../../util/json.ts';
import { realNumber, wholeNumber } from '../../util/range.ts';
import { checkSchedule } from '../step/schedule.ts';
import { CONTROL_LENGTHS, type TrainerState } from '../step/trainer-state.ts';
import { type RunSettings, settingsBy, trainAlike } from './run-settings.ts';

const FORMAT = 'holdfast 1';

/** What a run has to show for itself, step by step. A figure that is not finite (of a skipped step) is NaN. */
export interface RunHistory {
  steps: { step: number; loss: number; lr: number; gradNorm: number; tokensPerSecond: number }[];
  validations: Validation[];
  samples: { step: number; text: string }[];
}

/** Whether a step changed nothing. */
export const isSkipped = ({ loss, gradNorm }: { readonly loss: number; readonly gradNorm: number }): boolean =>
  !(Number.isFinite(loss) && Number.isFinite(gradNorm));

export interface Validation {
  step: number;
  loss: number;
  /** Of a task: the share of unseen problems that were solved; of a classifier: that of labels told right. */
  accuracy?: number;
}

export interface SavedState {
  format: typeof FORMAT;
  settings: RunSettings;
  /** Where the run was forked or given more steps: what it was trained with before, and up to which step. */
  earlier?: { settings: RunSettings; until: number }[];
  /** Of a low-rank update: the identity of the weights that it belongs to (base-identity.ts). */
  base?: string;
  corpus: TextIdentity;
  trainer: TrainerState;
  batches: number[];
  sampling: number[];
  choices: ChoiceRecord;
  /** Of `adapter`, by which its plan was made within a budget: the plan of the same run again is the same. */
  rates?: Rates;
  adapter: string;
  /** NaN is null in the file. */
  history: RunHistory;
}

/** The settings that a checkpoint was made with. */
export async function savedSettings(host: Host, out: string): Promise<RunSettings> {
  if ((await checkpointsOf(host.files, out)).length === 0) {
    const incomplete = await incompleteIn(host.files, out);
    throw new HoldfastError(
      incomplete
        ? `${incomplete}; put that back, or start without --resume in another folder`
        : `${out}: there is no checkpoint to resume; start without --resume`,
    );
  }
  return (await savedState(host, out)).settings;
}

/** What the latest checkpoint says of its run. */
export async function savedState(host: Host, out: string): Promise<SavedState> {
  return stateOf(await loadState(host.files, out));
}

/** The settings of a run; undefined where a folder is none of a run, or its state cannot be read. */
export async function settingsIn(files: Files, folder: string): Promise<RunSettings | undefined> {
  try {
    return stateOf(await loadState(files, folder)).settings;
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}

/**
 * What a checkpoint says of its run. Errors: HoldfastError naming the file, the first field that is not what a run writes,
 * what was found and what is allowed.
 */
export function stateOf({ state: json, config, statePath: file }: LoadedState): SavedState {
  const found = (json as Partial<SavedState> | null)?.format;
  if (found !== FORMAT) {
    throw new HoldfastError(
      `${file}: format is ${show(found)}; this version reads ${show(FORMAT)}, use a checkpoint that it wrote`,
    );
  }
  const state = check(schemaFor(file, config), json, file);
  checkStep(state, file);
  checkTogether(state, (problem) => {
    throw new HoldfastError(`${file}: ${problem}`);
  });
  return state;
}

/** The rates that a run goes on by; undefined on another adapter, which has its own. */
export const ratesIn = ({ rates, adapter }: SavedState, device: Device): Rates | undefined =>
  device.adapter.name === adapter ? rates : undefined;

// ---- Field by field -------------------------------------------------------------------------------------------

const count = wholeNumber(0);
const words = list(number(wholeNumber(0, 2 ** 32 - 1)), 4);
const step = number(count);
const positive = number(realNumber(0, Number.MAX_VALUE));

/** Floats of the GPU, exactly; those that a skipped step leaves may be infinite. */
const control = list(figure);

const corpus: Schema<TextIdentity> = object({ bytes: number(count), sha256: text });

const history: Schema<RunHistory> = object({
  steps: list(object({ step, loss: figure, lr: positive, gradNorm: figure, tokensPerSecond: positive })),
  validations: list(object({ step, loss: figure, accuracy: optional(number(realNumber(0, 1))) })),
  samples: list(object({ step, text })),
});

/** The schema of a file beside this config.json: all settings are of that model. */
function schemaFor(file: string, config: ModelConfig): Schema<SavedState> {
  const configAt = (at: string) =>
    parsed((json) => {
      const found = parseConfig(json, `${file}: ${at}.config`);
      const difference = differenceOf(found, config);
      if (!difference) return found;
      const { name, one, other } = difference;
      throw new HoldfastError(
        `${file}: ${at}.config.${name} is ${one}; in config.json beside it, it is ${other}; both must be of one model`,
      );
    });
  return object({
    format: oneOf<typeof FORMAT>([FORMAT]),
    settings: settingsBy(configAt('settings')),
    earlier: optional(list(object({ settings: settingsBy(configAt('earlier.settings')), until: step }))),
    base: optional(text),
    corpus,
    trainer: object({ step, control }),
    batches: list(number(count)),
    sampling: words,
    choices: namesTo(text),
    rates: optional(ratesSchema),
    adapter: text,
    history,
  });
}

// ---- Field with field -----------------------------------------------------------------------------------------

/** Up to here float32 counts every step. */
const EXACT_COUNT = 2 ** 24;

/** Errors: HoldfastError where the folder of `file`, in which a state lies or lay, is called as the checkpoint of another step. */
export function checkStep({ trainer }: SavedState, file: string): void {
  const named = /(?:^|\/)checkpoint-(\d+)(?:\.replaced)?\/[^/]+$/.exec(file)?.[1];
  if (named === undefined || Number(named) === trainer.step) return;
  throw new HoldfastError(`${file}: trainer.step is ${trainer.step}; the folder's name says ${Number(named)}`);
}

function checkTogether(state: SavedState, refuse: (problem: string) => never): void {
  const { trainer, settings, earlier = [], history, corpus } = state;
  const { step: done } = trainer;
  checkControl(trainer, refuse);
  if ((settings.lora === undefined) !== (state.base === undefined))
    refuse(`base is ${show(state.base)}; it is there for a low-rank update, and only then`);
  if (!/^[0-9a-f]{64}$/.test(corpus.sha256))
    refuse(`corpus.sha256 is ${show(corpus.sha256)}; it must be 64 hexadecimal digits`);
  checkBatches(state, refuse);
  if (state.sampling.every((word) => word === 0)) refuse('sampling is all 0; no random state is');
  for (const { config, images, ...schedule } of [...earlier.map(({ settings }) => settings), settings]) {
    if (images) checkPreparation(images, config, (problem) => refuse(`settings.images.${problem}`));
    const { lr, minLr, schedule: decay, warmup, steps } = schedule;
    try {
      checkSchedule({ decay, peak: lr, min: minLr, warmup, steps });
    } catch (error) {
      if (error instanceof HoldfastError) refuse(`settings: ${error.message}`);
      throw error;
    }
  }
  const inOrder = (name: string, steps: readonly number[], most: number, gap: number) => {
    let least = 0;
    for (const [i, step] of steps.entries()) {
      if (step > most || (i > 0 && step < least)) {
        refuse(
          `${name.replace('[]', `[${i}]`)} is ${step}; in order, after ${done} steps, it must be from ${least} to ${most}`,
        );
      }
      least = step + gap;
    }
  };
  const stepsOf = (records: readonly { step: number }[]) => records.map((record) => record.step);
  inOrder(
    'earlier[].until',
    earlier.map(({ until }) => until),
    done,
    0,
  );
  inOrder('history.steps[].step', stepsOf(history.steps), done - 1, 1);
  inOrder('history.validations[].step', stepsOf(history.validations), done, 0);
  inOrder('history.samples[].step', stepsOf(history.samples), done, 0);
}

/** Of records, of what has a class, and of text in epochs, an epoch and a row; of other text, a random state. */
function checkBatches({ batches, settings }: SavedState, refuse: (problem: string) => never): void {
  const isShuffled = settings.records !== undefined || labelsIn(settings.config) !== undefined;
  const lengths = isShuffled ? [2] : [2, 4];
  if (!lengths.includes(batches.length))
    refuse(`batches is a list of ${batches.length}; it must be a list of ${lengths.join(' or ')}`);
  if (batches.length === 2) return;
  const large = batches.find((word) => word >= 2 ** 32);
  if (large !== undefined) refuse(`batches has ${large}; they must be words of 32 bits`);
  if (batches.every((word) => word === 0)) refuse('batches is all 0; no random state is');
}

/** What the optimizer's kernel leaves (step-control.ts). */
function checkControl({ control, step }: TrainerState, refuse: (problem: string) => never): void {
  if (!CONTROL_LENGTHS.includes(control.length))
    refuse(`trainer.control is a list of ${control.length}; it must be a list of ${CONTROL_LENGTHS.join(' or ')}`);
  const [scale, good] = [control[SCALER.gradientScale], control[SCALER.goodSteps]];
  if (scale !== undefined && !(scale >= LEAST_SCALE && scale <= LARGEST_SCALE && Number.isInteger(Math.log2(scale))))
    refuse(
      `trainer.control[${SCALER.gradientScale}] (gradientScale) is ${scale}; it must be a power of two, from ${LEAST_SCALE} to ${LARGEST_SCALE}`,
    );
  if (good !== undefined && !(Number.isSafeInteger(good) && good >= 0))
    refuse(`trainer.control[${SCALER.goodSteps}] (goodSteps) is ${good}; it must be a whole number, 0 or more`);
  const [skipped, updates] = [at(control, STATE.skipped), at(control, STATE.updates)];
  const whole = (value: number) => Number.isSafeInteger(value) && value >= 0;
  for (const [name, fits, allowed] of [
    ['skip', (value) => value === 0 || value === 1, '0 or 1'],
    ['skipped', whole, 'a whole number, 0 or more'],
    ['updates', whole, 'a whole number, 0 or more'],
    ['coefficient', (value) => value >= 0 && value <= 1, 'a number from 0 to 1'],
    // Rounding may carry 1 - beta^n past 1 by its last bit.
    [
      'correction1',
      (value) => (updates === 0 ? value === 0 : value > 0 && value < 1.0001),
      'above 0 and at most 1, 0 before the first update',
    ],
    [
      'correction2',
      (value) => (updates === 0 ? value === 0 : value > 0 && value < 1.0001),
      'above 0 and at most 1, 0 before the first update',
    ],
  ] as [keyof typeof STATE, (value: number) => boolean, string][]) {
    const value = at(control, STATE[name]);
    if (!fits(value)) refuse(`trainer.control[${STATE[name]}] (${name}) is ${value}; it must be ${allowed}`);
  }
  for (const name of ['loss', 'gradNorm'] as const) {
    const value = at(control, STATE[name]);
    // Of a step that was skipped.
    if (Number.isNaN(value) && control[STATE.skip] !== 1)
      refuse(`trainer.control[${STATE[name]}] (${name}) is null; only a step that was skipped has none`);
  }
  const rounded = control.findIndex((value) => !Number.isNaN(value) && Math.fround(value) !== value);
  if (rounded >= 0) refuse(`trainer.control[${rounded}] is ${control[rounded]}; it must be a float32`);
  if (step < EXACT_COUNT && skipped + updates !== step)
    refuse(`trainer.step is ${step}; trainer.control counts ${updates} updates and ${skipped} skipped steps`);
}

/** The state of a run that goes on with other settings. */
export function withSettings(state: SavedState, settings: RunSettings): SavedState {
  const { earlier = [], trainer } = state;
  if (trainAlike(state.settings, settings)) return { ...state, settings };
  return { ...state, settings, earlier: [...earlier, { settings: state.settings, until: trainer.step }] };
}
