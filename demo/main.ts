// The page: opens the trainer's worker and ties the parts together. What a part shows, and requests, is in its own file.

import {
  type ClassesFound,
  FAMILIES,
  type Holdfast,
  type MemorySettings,
  messageOf,
  openHoldfast,
  type RunEvent,
  type RunInfo,
  type RunSettings,
  shapeOf,
} from '../src/browser/index.ts';
import { ClassData } from './class-data.ts';
import { type ComparedRun, Curves } from './curves.ts';
import { DataPanel } from './data.ts';
import { takeDrops } from './drop.ts';
import { whole } from './figures.ts';
import { FormEstimate } from './form-estimate.ts';
import { isolate } from './isolation.ts';
import { Live } from './live.ts';
import { MemoryPanel, sayBudget } from './memory-panel.ts';
import { ModelForm } from './model.ts';
import { Notes, sayEvent } from './notes.ts';
import { showObstacle } from './obstacles.ts';
import { OwnModel } from './own-model.ts';
import { byId, setText } from './page.ts';
import { Panels } from './panels.ts';
import { RunButtons } from './run-buttons.ts';
import { RunList } from './runs.ts';
import { Seeing } from './seeing.ts';
import { isElsewhere, isHalted, mayTakeUp, noteTakenUp, untilLeft } from './taken-up.ts';
import { Telling } from './telling.ts';
import { Training, type TrainingPhase } from './training.ts';
import { Writing } from './writing.ts';

const notes = new Notes();
const live = new Live();
const curves = new Curves();
const data = new DataPanel(
  async (text) => (await trainer()).recordsIn(text),
  () => estimate.changed(),
);
const own = new OwnModel(
  () => trainer(),
  () => model.ownChosen(),
  () => model.ownChanged(),
);
const model = new ModelForm(own, () => estimate.changed());
const classes = new ClassData(
  () => holdfast?.trainer,
  () => estimate.changed(),
);
const memory = new MemoryPanel({
  wanted: (asked) => changeMemory(asked),
  picture: async () => training?.picture(),
});
const estimate = new FormEstimate({ model, own, memory }, () => ({ holdfast, training }), estimated);
const writing = new Writing(() => holdfast?.trainer);
const seeing = new Seeing(() => holdfast?.trainer);
const telling = new Telling(() => holdfast?.trainer);
const panels = new Panels(() => holdfast?.trainer, seeing, telling);
const runs = new RunList(() => (holdfast as Holdfast).trainer, {
  look: (run) => look(run),
  goOn: (run) => begins(() => goOn(run)),
  use: (run) => own.use(run),
  compared: (others) => {
    compared = others;
    phaseChanged();
  },
  gone: () => {
    memory.clear();
    training?.forget();
  },
  attempt: (work) => attempt(work),
  say: (text) => notes.say(text),
});
let compared: readonly ComparedRun[] = [];
let holdfast: Holdfast | undefined;
let training: Training | undefined;
/** Whether a run is being made ready that is not open yet. */
let beginning = false;
const opening = open();

// ---- What a person does ----------------------------------------------------------------------------------------

const buttons = new RunButtons({
  train: () => attempt(() => begins(train)),
  pause: () => attempt(async () => (training?.phase === 'paused' ? training.unpause() : training?.pause())),
  step: () => attempt(async () => training?.step()),
  stop: () => attempt(async () => training?.stop()),
});
takeDrops(async (files, what) => {
  await attempt(async () => {
    if (what === 'text') await data.take(files);
    else if (what === 'images') data.takeImages(files);
    else if (what === 'model' || (await own.isAdapterZip(files))) await own.take(files);
    else await runs.import(files.map(({ file }) => file));
  });
  // What is said of it is seen, wherever it was dropped.
  byId(what === 'text' || what === 'images' ? 'text-note' : 'status', HTMLElement).scrollIntoView({ block: 'nearest' });
});

/** What is asked for when it is pressed is trained: to keep the model may take minutes. */
async function train(): Promise<void> {
  await data.looked;
  const { settings, seq, found } = wanted();
  if (classes.problem !== undefined) throw new Error(classes.problem);
  const text = data.text(seq, found !== undefined);
  const { images } = data;
  const records = found ? undefined : data.records;
  notes.say('Preparing …');
  void holdfast?.persist();
  const kept = await keptModel();
  memory.clear();
  await training?.start({
    ...{ settings: { ...settings, ...(kept?.from && { from: kept.from }) }, memory: memory.memory },
    ...(text !== undefined && { text }),
    ...(images && { images }),
    ...(records && { records }),
    ...(kept && { name: kept.name }),
  });
}

/** What the form and the text say; and `found`, the classes of labelled data, with the head that learns them. */
function wanted(): { settings: RunSettings; seq: number; found?: ClassesFound } {
  const { task } = data;
  data.modelChats(model.isOwn && own.info?.chats === true);
  const settings = { ...model.settings(), ...(task && { task }) };
  const { seq } = settings;
  const found = classesFor(settings);
  data.classesFound(found !== undefined);
  return { settings, seq, ...(found && { found }) };
}

/** Errors: an Error where the data and the model do not go together. */
function classesFor(settings: RunSettings): ClassesFound | undefined {
  const { info } = own;
  const isEncoder = model.isOwn && info !== undefined && !FAMILIES[info.config.model_type].writes;
  if (!isEncoder) {
    classes.clear();
    if (data.images)
      throw new Error('These are images, and the model reads text: bring one that looks at images (ViT).');
    return undefined;
  }
  const found = classes.of(settings, data.labelled, data.version);
  if (classes.problem !== undefined) return undefined;
  const needs = info.classes !== undefined || shapeOf(info.config).vocabulary === 0;
  if (needs && !found && data.labelled === undefined)
    throw new Error(
      shapeOf(info.config).vocabulary === 0
        ? 'This model tells images apart: bring a folder of them, with a folder for each class.'
        : 'This model tells texts apart: bring JSON records with a text and a label.',
    );
  return found;
}

/** What is estimated: the run as it would be made of them. */
function estimated(): RunSettings {
  const { settings, found } = wanted();
  const { records } = data;
  if (found) return found.settings;
  const { trainOn = 'answers', pack = 'yes' } = records ?? {};
  return { ...settings, ...(records && { records: { trainOn, pack } }) };
}

/** The model of the person's own is there for the run. Errors: an Error where another was chosen meanwhile. */
async function keptModel(): Promise<{ from: string | undefined; name: string } | undefined> {
  if (!model.isOwn) return undefined;
  if (own.info?.from === undefined) notes.say('Preparing: the model is kept in this browser …');
  const { way } = own;
  const kept = await own.keep();
  await runs.refresh();
  const { name, from } = kept;
  if (!model.isOwn || own.info !== kept)
    throw new Error(`“${name}” is kept here, and another model was chosen meanwhile: press Train to train that`);
  return { from, name: `${name}, ${way === 'lora' ? 'LoRA' : 'tuned'}` };
}

async function goOn(run: RunInfo): Promise<void> {
  const isHere = await (await trainer()).hasData(run.id);
  memory.clear();
  memory.show(run.memory);
  await training?.resume(run, isHere ? {} : data.own);
}

/** One run is begun at a time. Errors: an Error where another is about to. */
async function begins(work: () => Promise<void>): Promise<void> {
  if (!training || training.open) return;
  if (beginning) throw new Error('A run is about to begin: wait for it, and stop it before another');
  beginning = true;
  buttons.canTrain = false;
  try {
    await work();
  } finally {
    beginning = false;
    buttons.canTrain = true;
  }
}

async function look(run: RunInfo): Promise<void> {
  if (training?.open)
    throw new Error('A run is training: stop it before you look at another. Compare shows its curve.');
  memory.clear();
  await training?.show(run);
}

/** Before a run, it is noted for it; a run that is open takes it at once. */
async function changeMemory(asked: MemorySettings): Promise<void> {
  if (training?.open) {
    try {
      await training.setMemory(asked);
      notes.add(`GPU memory: ${sayBudget(asked.gpu)}`);
    } catch (error) {
      // One that has ended meanwhile, or was stopped, leaves what was asked for to the next.
      if (training.open || !['finished', 'stopped'].includes(training.run?.status ?? '')) {
        notes.problem(error);
        throw error;
      }
    }
    if (training.open) notes.say(training.phase === 'paused' ? 'Paused' : 'Training');
  }
  void attempt(() => estimate.now());
}

/** Begins when the worker is there. What goes wrong is said. */
async function attempt(work: () => Promise<unknown>): Promise<void> {
  try {
    await opening;
    await work();
  } catch (error) {
    notes.problem(error);
  }
}

// ---- What happens ----------------------------------------------------------------------------------------------

const ENDS: readonly RunEvent['type'][] = ['ended', 'failed', 'stopped'];

function hear(events: readonly RunEvent[]): void {
  if (!training) return;
  for (const event of events) {
    training.take(event);
    if (event.type === 'memory') memory.live(event);
    if (event.type === 'ready') void attempt(begun);
    if (event.type === 'saved' || ENDS.includes(event.type)) void attempt(() => runs.refresh());
    // What may be measured now, or is known by this run.
    if (ENDS.includes(event.type)) estimate.changed();
    sayEvent(notes, event, training.phase);
  }
  live.show(training);
  curves.changed();
  writing.show(training.run, training.curves);
}

/** A run is on its way, or on its way again. */
async function begun(): Promise<void> {
  void memory.watch();
  await training?.refresh();
  if (training?.run) memory.show(training.run.memory);
  await runs.refresh();
  await estimate.now();
}

const STATUS: Partial<Record<TrainingPhase, string>> = {
  pausing: 'Pausing: saving …',
  moving: 'Changing the memory …',
  stopping: 'Stopping: saving …',
};

function phaseChanged(): void {
  if (!training) return;
  const { phase, open, run } = training;
  buttons.show(training);
  byId('next-run', HTMLElement).hidden = !open;
  const status = STATUS[phase];
  if (status) notes.say(status);
  curves.show(training.curves, compared);
  panels.show(run, open);
  live.show(training);
  runs.show(run?.id, open);
  writing.show(run, training.curves);
}

// ---- The beginning ---------------------------------------------------------------------------------------------

/** Errors: HoldfastError where this page cannot train. */
async function open(): Promise<Holdfast> {
  // What waits for it is loaded anew.
  if (await isolate()) return new Promise(() => {});
  return openHoldfast({ onEvents: hear });
}

/** When it is there. Errors: as of `open`. */
async function trainer(): Promise<Holdfast['trainer']> {
  return (await opening).trainer;
}

async function begin(): Promise<void> {
  try {
    holdfast = await opening;
  } catch (error) {
    setText(byId('status', HTMLElement), 'Training is not possible here; see above');
    showObstacle(messageOf(error));
    return;
  }
  const { environment } = holdfast;
  training = new Training(holdfast.trainer, phaseChanged);
  buttons.canTrain = true;
  notes.say('Ready');
  for (const note of environment.notes) notes.add(note);
  setText(byId('place', HTMLElement), [environment.adapter.name, ...environment.notes].join(' · '));
  await attempt(() => runs.refresh());
  const waits = isElsewhere(runs.runs);
  if (!waits) await attempt(takeUp);
  await attempt(() => estimate.now());
  if (waits)
    await attempt(async () => {
      await untilLeft(runs, isBusy);
      await takeUp();
    });
}

/** The person has begun something. */
const isBusy = (): boolean => Boolean(beginning || training?.open || training?.run);

/** A run that a reload, a crash or a closed tab cut off goes on, unless the person was faster; without a checkpoint, once. */
async function takeUp(): Promise<void> {
  if (isBusy()) return;
  const sound = runs.runs.filter(({ status }) => status !== 'damaged');
  const allCutOff = sound.filter(({ status, open, settings }) => status === 'running' && open === 'no' && settings);
  const cutOff = allCutOff.find(mayTakeUp);
  const [last] = sound;
  if (cutOff) {
    notes.say(`“${cutOff.name}” was cut off: it goes on`);
    noteTakenUp(cutOff, runs.runs);
    await begins(() => goOn(cutOff));
  } else if (last?.open === 'in another tab')
    notes.say(`“${last.name}” is training in another tab; go on there, or close it`);
  else if (last) {
    await look(last);
    const [left] = allCutOff;
    if (left)
      notes.say(`“${left.name}” was cut off again before its first checkpoint: it is in the list, to be started`);
    else if (isHalted(last)) {
      const { name, status, savedStep, settings } = last;
      notes.say(
        `“${name}” was ${status} after ${whole(savedStep)} of ${whole(settings.steps)} steps; press its Go on to go on`,
      );
    }
  }
}

/** What other tabs did meanwhile is shown when this one has the focus again; a run that they left goes on here. */
addEventListener('focus', () => {
  if (!training) return;
  void attempt(async () => {
    const before = isElsewhere(runs.runs);
    await runs.refresh();
    if (before && !isElsewhere(runs.runs)) await takeUp();
  });
});

void begin();
