// Check of a run's settings against each other: made before anything of that size is made. What each may be by itself
// is RANGES of run-settings.ts.

import { checkTokens } from '../../data/batches.ts';
import { gridPlacesOf } from '../../engine/ranks/grid.ts';
import { familyOf, labelsIn, shapeOf } from '../../formats/families/index.ts';
import { checkPreparation } from '../../formats/preprocessor.ts';
import { checkStages } from '../../nn/pipeline-parallel.ts';
import { checkSize } from '../../nn/size.ts';
import { counted } from '../../util/counted.ts';
import { HoldfastError } from '../../util/errors.ts';
import { stepPart } from '../step/rank-part.ts';
import { checkSchedule } from '../step/schedule.ts';
import { checkBatch } from '../step/step-programs.ts';
import { checkOperators } from '../step/training-workload.ts';
import { modelOf, type RunSettings } from './run-settings.ts';

/**
 * The characters of a run's longest record, holdfast_state.json: V8 makes no longer text than 2^29 - 24, so that a longer
 * one could not be saved.
 */
const MOST_RECORD = 2 ** 29 - 2 ** 20;
const STEP_CHARACTERS = 160;
/** A byte that is no printable character is six of them in JSON. */
const TOKEN_CHARACTERS = 6;

/** Why several ranks do not update inside the backward pass. */
export const UPDATE_ON_RANKS =
  '--update in-backward: several ranks add up all gradients before they update; leave it out, or train alone';

/**
 * Checks what settings ask for together, before anything of that size is made. Errors: HoldfastError naming the setting
 * and the largest that works.
 */
export function checkSettings(settings: RunSettings): void {
  const { config, batch, seq, evalWindows, steps, schedule, lr, minLr, warmup } = settings;
  checkSize(config);
  const refuseImages = (problem: string): never => {
    throw new HoldfastError(`images.${problem}`);
  };
  if (settings.images) checkPreparation(settings.images, config, refuseImages);
  const { ranks = 1, tensorParallel = 1, pipelineParallel = 1 } = settings;
  const isAlone = ranks * tensorParallel * pipelineParallel === 1;
  if (!isAlone && settings.update === 'in-backward') throw new HoldfastError(UPDATE_ON_RANKS);
  if (settings.lora && settings.from === undefined) {
    throw new HoldfastError('a low-rank update needs a model with weights to update; name its folder with --model');
  }
  const { label, writes, classifier } = familyOf(config);
  if (!writes && (settings.records || settings.task)) {
    const classes = classifier && settings.records ? ', or give each record a text and a label' : '';
    throw new HoldfastError(
      `${label} writes no text: ${settings.task ? 'a task' : 'answers of JSON records'} cannot be learned by it; use a model that does, such as gpt2 or llama${classes}`,
    );
  }
  if (settings.newHead && (settings.from === undefined || !labelsIn(config)))
    throw new HoldfastError('a head that is drawn anew is of a classifier, and of a model with weights');
  if (settings.newHead && settings.lora && !settings.lora.modulesToSave)
    throw new HoldfastError(
      'a head for these classes has to be drawn, and the adapter trains none; leave the adapter out, or take a model of these classes',
    );
  checkStages(shapeOf(config).layers, pipelineParallel);
  checkBatch({ shape: shapeOf(config) }, batch, seq);
  checkTokens('validation', evalWindows, seq);
  checkSchedule({ decay: schedule, peak: lr, min: minLr, warmup, steps });
  if (settings.earlyStoppingPatience !== undefined && settings.evalEvery === 0)
    throw new HoldfastError('early stopping goes by validations, and there is one at the end only; give --eval-every');
  const times = (every: number) => (every > 0 ? Math.ceil(steps / every) : 1);
  const perStep = STEP_CHARACTERS + (times(settings.evalEvery) / steps) * STEP_CHARACTERS;
  const samples = settings.sampleTokens > 0 ? times(settings.sampleEvery) : 0;
  const texts = samples * (settings.sampleTokens * TOKEN_CHARACTERS + STEP_CHARACTERS);
  if (steps * perStep + texts <= MOST_RECORD) {
    checkMicroBatches(settings);
    return;
  }
  const most = Math.floor((MOST_RECORD - texts) / perStep);
  throw new HoldfastError(
    `${steps} steps with ${samples} samples of ${settings.sampleTokens} tokens: more than the record of ` +
      `a run holds; ${most > 0 ? `at most ${most} steps, or fewer samples` : 'use fewer or shorter samples'}`,
  );
}

/** Errors: HoldfastError where a run that goes on, which is called `name`, has more steps behind it than it is to have in all. */
export function checkStepsDone({ steps }: Pick<RunSettings, 'steps'>, done: number, name: string): void {
  if (steps < done)
    throw new HoldfastError(
      `${name}: has ${counted(done, 'step')} already, and ${steps} in all are asked for; give more than ${done}`,
    );
}

/** A step of several is traced: how many may be depends on the operators of one. */
function checkMicroBatches(settings: RunSettings): void {
  const { config, batch, seq, accumulate, records, activationDtype } = settings;
  const { classifier } = familyOf(config);
  // One that is bare has no head to trace yet: its classes are found first.
  if (accumulate === 1 || classifier?.isBare?.(config)) return;
  const { ranks = 1, tensorParallel: tensor = 1, pipelineParallel: pipeline = 1 } = settings;
  const places = gridPlacesOf({ rank: 0, size: ranks * tensor * pipeline }, { tensor, pipeline });
  const how = { packed: records?.pack === 'yes', activationDtype };
  checkOperators(stepPart(modelOf(settings), batch, seq, places, how).programs, accumulate);
}
