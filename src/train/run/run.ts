// A run: a corpus, a model, a trainer, validation, samples and checkpoints, from the first step or from where
// a checkpoint left off. It shows nothing; it tells what happens through events. Invariant: a run that was
// stopped and resumed yields the losses and weights of one that was not, bit for bit.

import { checkMemory } from '../../engine/run/arrangement.ts';
import { LostForGood } from '../../engine/run/device-mutex.ts';
import { checkpointsOf, loadTokenizer } from '../../formats/checkpoint.ts';
import type { Device } from '../../gpu/device.ts';
import { checkHost } from '../../runtime/check-host.ts';
import type { Host } from '../../runtime/host.ts';
import { abortSignal, having } from '../../util/arguments.ts';
import { finishing, HoldfastError, messageOf } from '../../util/errors.ts';
import {
  anything,
  check,
  closed,
  handlers,
  list,
  number,
  object,
  optional,
  text as textSchema,
  truth,
} from '../../util/json.ts';
import { wholeNumber } from '../../util/range.ts';
import type { Trainer } from '../step/trainer.ts';
import { trainerCallback } from './callbacks.ts';
import { checkSettings, checkStepsDone } from './check-settings.ts';
import { checkAlike, runFacts, settingsOn, together } from './ranks.ts';
import { type RunSetting, settled } from './run-beginning.ts';
import type { Intermission, Observer, RunEvents, RunOptions, RunSummary } from './run-events.ts';
import { trainPart } from './run-part.ts';
import { type RunSettings, readSettings } from './run-settings.ts';
import { type RunText, readText, tokenizerFor } from './run-text.ts';

const runEvents = handlers<RunEvents>({
  ...{ tokenizing: true, ready: true, step: true, validation: true, sample: true, saved: true, lost: true },
  ...{ lastStep: true, over: true },
});

const runOptions = closed<RunOptions>({
  resume: optional(truth),
  until: optional(number(wholeNumber(1))),
  signal: optional(abortSignal),
  events: optional(runEvents),
  callbacks: optional(list(trainerCallback)),
  memory: anything,
  intermission: optional(having<Intermission>('an Intermission, with wanted and run', 'wanted', 'run')),
  observer: optional(having<Observer>('an Observer, with wanted and recorded', 'wanted', 'recorded')),
  tokenizer: optional(object({})),
  claim: optional(object({})),
  text: optional(object({})),
  ranks: optional(object({})),
});

/** Devices that a run may lose, when it has to go back, before it has saved one step more than it had. */
const MOST_LOSSES = 3;

/**
 * Trains into `folder`, as that is named when the run begins, which no other process may write to meanwhile. With `resume`,
 * goes on from its latest checkpoint. Stopped by `until` or `signal`, or by an error of the program's own handlers, it is saved, to be resumed. Errors:
 * HoldfastError naming a setting that is none, and without `resume` for a folder that holds a run, before anything is made; that of a
 * handler; whatever was saved stays whole.
 */
export async function trainRun(
  host: Host,
  device: Device,
  given: RunSettings,
  folder: string,
  options: RunOptions = {},
): Promise<RunSummary> {
  checkHost(host);
  check(object({}), device, 'device');
  check(runOptions, options, 'the options of a run');
  const { ranks, memory } = options;
  if (memory) checkMemory(memory);
  check(textSchema, folder, 'the folder of the run');
  // A program may go to another folder meanwhile; a path that was claimed before stays as it was claimed.
  const out = options.claim ? folder : (host.files.absolute?.(folder) ?? folder);
  // What is saved beside the weights is read back by the same schema: what that refuses could never be resumed.
  const settings = settingsOn(readSettings(given), ranks?.grid);
  checkSettings(settings);
  const isFirst = ranks === undefined || ranks.rank === 0;
  const claim = options.claim ?? (isFirst ? await host.claimFolder?.(out) : undefined);
  let current = device;
  let resume = options.resume ?? false;
  let saved: number | undefined;
  let losses = 0;
  try {
    // Steps may have been counted by what they learn from: other data is told as that, not as another number of steps.
    const known = options.text && dataFact(options.text);
    if (ranks) await checkAlike(ranks, { ...known, ...(await runFacts(host, ranks, settings, device.adapter.name)) });
    if (resume) saved = await lastSaved(host, out);
    else if (isFirst) await checkNew(host, out);
    checkStepsDone(settings, saved ?? 0, out);
    const carried = resume ? await loadTokenizer(host.files, out) : undefined;
    const tokenizer = options.tokenizer ?? (await tokenizerFor(host.files, settings, out, carried));
    const { signal, events } = options;
    const reading = { signal, onProgress: events?.tokenizing };
    const text = await together(ranks, async () => options.text ?? readText(host, settings, tokenizer, reading));
    if (ranks) await checkAlike(ranks, dataFact(text));
    let setting: RunSetting = { host, settings, out, text, tokenizer, claim };
    for (;;) {
      let trainer: Trainer | undefined;
      const made = (found: Trainer) => {
        trainer = found;
        setting = settled(setting, found);
      };
      const inUse = () => trainer?.device ?? current;
      try {
        return await finishing(
          () => trainPart(setting, current, { ...options, resume }, made),
          () => trainer?.destroy(),
          () => inUse() !== current && inUse().close(),
        );
      } catch (error) {
        // The others cannot go back: the job ends, and is resumed as a whole.
        if (inUse().status !== 'lost' || error instanceof LostForGood || ranks) throw error;
        const before = saved;
        saved = await lastSaved(host, out);
        losses = saved === before ? losses + 1 : 1;
        if (losses > MOST_LOSSES) {
          const where = trainer ? '' : ', while the run was made ready';
          const since = saved === undefined ? 'the start' : `the checkpoint of step ${saved}`;
          throw new LostForGood(`${messageOf(error)}${where} (${losses} times in a row since ${since})`);
        }
        // Nothing but the last checkpoint is left of the run.
        options.events?.lost?.(messageOf(error));
        current = await current.reopen();
        resume = saved !== undefined;
      }
    }
  } finally {
    if (current !== device) current.close();
    if (!options.claim) await claim?.release();
  }
}

/** The step of the latest checkpoint. */
export const lastSaved = async ({ files }: Host, out: string): Promise<number | undefined> =>
  (await checkpointsOf(files, out)).at(-1)?.step;

/** Errors: HoldfastError for a folder with a checkpoint: those of another run would go as new ones are saved. */
async function checkNew(host: Host, out: string): Promise<void> {
  if ((await lastSaved(host, out)) === undefined) return;
  throw new HoldfastError(`${out}: holds a checkpoint already; go on with resume, or choose another folder`);
}

/** What must be the same on all ranks of what is learned. */
const dataFact = ({ identity: { bytes, sha256 } }: RunText) => ({ data: `${bytes} bytes (${sha256})` });
