// `holdfast train`, and what it has in common with `holdfast finetune`: a run from its flags to its last line. On a terminal
// a live progress line, piped plain lines, with --json one object a step. The defaults are the library's (defaultSettings); of a short run
// the warm-up is shorter.

import { Command } from 'commander';
import { namesOf } from '../data/classes.ts';
import type { Ranks } from '../engine/ranks/ranks.ts';
import { incompleteIn, loadTokenizer } from '../formats/checkpoint.ts';
import { labelsIn } from '../formats/families/index.ts';
import { DEFAULT_SHAPE } from '../formats/shape.ts';
import { type Device, openDevice } from '../gpu/device.ts';
import { splitModel } from '../nn/tensor-parallel.ts';
import { writeReport } from '../report/run-report.ts';
import { writeTimeline } from '../report/run-timeline.ts';
import type { Host } from '../runtime/host.ts';
import { staleness } from '../train/run/callbacks.ts';
import { checkSettings, checkStepsDone } from '../train/run/check-settings.ts';
import { FINE_TUNING_EPOCHS, paceOf } from '../train/run/fine-tuning.ts';
import { placesIn, settingsOn } from '../train/run/ranks.ts';
import { lastSaved, trainRun } from '../train/run/run.ts';
import type { RunEvents } from '../train/run/run-events.ts';
import { defaultSettings, dtypeOf, modelOf, momentDtypeIn, type RunSettings } from '../train/run/run-settings.ts';
import { type RunText, readText, tokenizerFor, withEpochs } from '../train/run/run-text.ts';
import { savedSettings, savedState } from '../train/run/saved-state.ts';
import { counted } from '../util/counted.ts';
import { HoldfastError } from '../util/errors.ts';
import { memoryFromFlags } from './memory-flags.ts';
import { addShapeOptions } from './model-flags.ts';
import { Progress } from './progress.ts';
import { checkGrid, claimOnRanks, onRanks, type RankFlags } from './rank-flags.ts';
import { addTrainingOptions, type IsGiven, NEW_WARMUP, numbersIn, type TrainFlags } from './train/flags.ts';
import { goOnCommand } from './train/go-on.ts';
import { FALLBACK_TEMPLATE, newSettings } from './train/new-settings.ts';
import { resumeSettings } from './train/resume-settings.ts';
import { checkOut, claimOut } from './train/run-folder.ts';
import { describeRun, hasDiverged } from './train/summary.ts';
import { checkUpdate } from './update-flags.ts';

export function trainCommand(host: Host): Command {
  const command = new Command('train').description('train a model, or go on training one');
  addShapeOptions(command, DEFAULT_SHAPE);
  addTrainingOptions(command, { ...defaultSettings(), warmup: NEW_WARMUP }, 'TypeScript’s declarations');
  const given: IsGiven = (name) => command.getOptionValueSource(name) === 'cli';
  return command.action((flags: TrainFlags) => train(host, flags, given));
}

/** A run as the flags have it. `fineTunes`: of the weights in `flags.model`, with what suits them by default. */
export const train = (host: Host, flags: TrainFlags, given: IsGiven, fineTunes = false): Promise<void> =>
  onRanks(host, flags, given, (host, ranks) => trainOn(host, ranks, flags, given, fineTunes));

async function trainOn(
  host: Host,
  inRow: Ranks | undefined,
  flags: TrainFlags,
  given: IsGiven,
  fineTunes: boolean,
): Promise<void> {
  const memory = memoryFromFlags(host, flags);
  // Before anything is read or a device opened: from here on the folder is this process's, and can be written to.
  const claim = await claimOnRanks(inRow, () => claimOut(host, flags));
  const out = claim.folder;
  try {
    await checkOut(host, out, flags);
    const saved = flags.resume ? await resumeSettings(host, out, flags, given) : undefined;
    const ranks = inRow && saved ? asSaved(inRow, flags, saved) : inRow;
    const { settings: wanted, notes } = saved
      ? { settings: settingsOn(saved, ranks?.grid), notes: [] }
      : await newSettings(host, flags, given, fineTunes ? 'fine-tuning' : 'training');
    let settings = saved ? wanted : { ...wanted, ...placesIn(ranks) };
    // Before anything is opened or made.
    const carried = flags.resume ? await loadTokenizer(host.files, out) : undefined;
    const tokenizer = await tokenizerFor(host.files, settings, flags.resume ? out : flags.model, carried);
    const done = flags.resume ? await lastSaved(host, out) : undefined;
    // Of epochs the steps are known once the data is read.
    if (flags.epochs === undefined) checkStepsDone(settings, done ?? 0, out);
    checkSettings(settings);
    checkUpdate(settings.update ?? 'at-end', { ...flags, accumulate: settings.accumulate }, given);
    const model = modelOf(settings);
    if (settings.tensorParallel !== undefined) splitModel(model, { rank: 0, size: settings.tensorParallel });
    const progress = new Progress(host, settings, flags.json ?? false);
    for (const note of notes) progress.note(note);
    if (flags.resume) await noteCheckpoint(host, out, settings, progress);
    const { until } = flags;
    const abort = new AbortController();
    host.onInterrupt(() => {
      progress.note('stopping after this step and saving; press Ctrl-C again to leave at once');
      abort.abort();
    });
    let text: RunText | undefined;
    const tunes = fineTunes && !flags.resume;
    if (tunes && flags.chatTemplate === undefined && settings.records?.template?.name === FALLBACK_TEMPLATE)
      progress.note(`chat template: ${FALLBACK_TEMPLATE}, as the model has none`);
    const labels = labelsIn(settings.config);
    if (settings.newHead && labels && !flags.resume)
      progress.note(`head: a new one is drawn, which learns to tell ${namesOf(labels)} apart`);
    const epochs = flags.epochs ?? (tunes && flags.steps === undefined ? FINE_TUNING_EPOCHS : undefined);
    if (epochs !== undefined) {
      const options = { signal: abort.signal, onProgress: progress.events.tokenizing };
      text = await readText(host, settings, tokenizer, options);
      settings = await withEpochs(settings, text, epochs);
      checkStepsDone(settings, done ?? 0, out);
    }
    if (tunes) settings = { ...settings, ...paceOf(settings), ...numbersIn(flags) };
    else if (!flags.resume && !given('warmup'))
      settings = { ...settings, warmup: Math.min(settings.warmup, Math.ceil(settings.steps / 10)) };
    checkSettings(settings);
    if (!flags.resume) noteWarmup(settings, progress);
    progress.settings = settings;
    const device = await openDevice(host, { adapter: flags.adapter });
    try {
      if (device.adapter.embedded)
        progress.note('no GPU here: training on the embedded software adapter (SwiftShader)');
      if (flags.resume) await noteAdapter(host, out, device, progress);
      if (done !== undefined) progress.sayOver(await whyOver(host, out, settings, done, until));
      const { timeline } = flags;
      const written: { timeline?: string } = {};
      const writing = (file: string): RunEvents => ({
        lastStep: async (recording, others) => {
          await writeTimeline(host, file, recording, others);
          written.timeline = file;
        },
      });
      const summary = await trainRun(host, device, settings, out, {
        resume: flags.resume ?? false,
        ...(until === undefined ? {} : { until }),
        signal: abort.signal,
        events: {
          ...progress.events,
          ...(timeline !== undefined && writing(timeline)),
          over: (summary, state) => writeReport(host, out, summary, state),
        },
        memory,
        claim,
        tokenizer,
        text,
        ranks,
      });
      if (timeline !== undefined && written.timeline === undefined)
        progress.note(
          `--timeline ${timeline}: not written: no step was recorded (of a run that comes to its end the last one is, where warm-up is over)`,
        );
      progress.finish({ ...summary, ...written }, describeRun(summary, out, settings, goOnCommand(out, flags, given)));
      if (hasDiverged(summary))
        throw new HoldfastError(
          `the run has diverged: its validation loss is not finite, with the weights in ${summary.checkpoint}; start another with a lower --lr or --clip`,
        );
    } finally {
      device.close();
    }
  } finally {
    await claim.release();
  }
}

/**
 * In the grid of a run that goes on, along each axis that no flag says another of, where the ranks have one. Errors: HoldfastError
 * for flags that do not go with that grid.
 */
export function asSaved(
  ranks: Ranks,
  { tensorParallel, pipelineParallel, sequenceParallel, zero }: RankFlags,
  saved: Pick<RunSettings, 'tensorParallel' | 'pipelineParallel'>,
): Ranks {
  const shape = {
    tensor: tensorParallel ?? saved.tensorParallel ?? 1,
    pipeline: pipelineParallel ?? saved.pipelineParallel ?? 1,
  };
  const isGrid = ranks.size % (shape.tensor * shape.pipeline) === 0;
  const found = isGrid ? ranks.inGrid(shape) : ranks;
  const { tensor, pipeline } = found.grid;
  const asked = { ...(zero !== undefined && { zero }), ...(sequenceParallel && { sequenceParallel }) };
  checkGrid({ tensorParallel: tensor.size, pipelineParallel: pipeline.size, ...asked }, ranks.size);
  return found;
}

/** Says where a run goes on from a checkpoint that is not the latest, or in other types: a checkpoint has float32 whatever its run computed with. */
async function noteCheckpoint(host: Host, out: string, settings: RunSettings, progress: Progress): Promise<void> {
  const incomplete = await incompleteIn(host.files, out);
  if (incomplete) progress.note(`${incomplete}; the run goes on from the one before`);
  const saved = await savedSettings(host, out);
  const [before, now] = [dtypeOf(saved), dtypeOf(settings)];
  if (before !== now)
    progress.note(`--dtype ${now}: the steps so far were computed in ${before}, from here on it is ${now}`);
  const [had, has] = [momentDtypeIn(saved), momentDtypeIn(settings)];
  if (had !== has)
    progress.note(`--optimizer-state ${has}: the moments so far were kept in ${had}, from here on it is ${has}`);
  const [kept = 'f32', keeps = 'f32'] = [saved.activationDtype, settings.activationDtype];
  if (kept !== keeps)
    progress.note(
      `--activation-dtype ${keeps}: the steps so far kept activations in ${kept}, from here on it is ${keeps}`,
    );
}

/** Another adapter computes the same with other last bits. */
async function noteAdapter(host: Host, out: string, device: Device, progress: Progress): Promise<void> {
  const { adapter } = await savedState(host, out);
  const { name } = device.adapter;
  if (name !== adapter)
    progress.note(`adapter: the steps so far ran on ${adapter}, from here on it is ${name}, with other last bits`);
}

/** Why a run that goes on takes no step, and what would make it; undefined where it takes some. */
async function whyOver(
  host: Host,
  out: string,
  settings: RunSettings,
  done: number,
  until = Number.POSITIVE_INFINITY,
): Promise<string | undefined> {
  const { steps, earlyStoppingPatience: patience = Number.POSITIVE_INFINITY, earlyStoppingThreshold } = settings;
  if (done === steps)
    return `${steps === 1 ? 'the one step is' : `all ${steps} steps are`} done; to go on give more, with --steps or --epochs`;
  if (done >= until)
    return `--until ${until}: step ${done} is done, and none is taken; to go on give a later one, or leave it out`;
  const { validations } = (await savedState(host, out)).history;
  const losses = validations.map(({ loss }) => loss);
  if (staleness(losses, earlyStoppingThreshold) < patience) return undefined;
  return `early stopping ended the run after step ${done}, and none is taken; to go on give --early-stopping-patience more than ${patience}`;
}

/** Of a run that is over before its rate is at its highest. */
function noteWarmup({ steps, warmup }: RunSettings, progress: Progress): void {
  if (warmup > steps)
    progress.note(
      `--warmup ${warmup}: more than the ${counted(steps, 'step')}, so that the rate never gets to --lr; give less`,
    );
}
