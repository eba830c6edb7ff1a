// The replay of a run, from its seed to its latest checkpoint, compared with it: what another runtime, another adapter or
// another machine made of the same settings and the same text. With the run's own kernels on the same adapter, the bits
// are the same; elsewhere rounding differs, and a run from perturbed weights says by how much it may (verdict.ts).
//
// Not for models that fill the host's memory: weights are held there up to four times.

import type { MemoryOptions } from '../engine/run/arrangement.ts';
import { holdCheckpoint, type LoadedCheckpoint } from '../formats/checkpoint.ts';
import type { Device } from '../gpu/device.ts';
import type { Model } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import { checkBase } from '../train/run/base-identity.ts';
import { settingsOn } from '../train/run/ranks.ts';
import { modelOf, type RunSettings, trainerOptions } from '../train/run/run-settings.ts';
import { checkText, datasetOf, type RunText, readText, tokenizerFor } from '../train/run/run-text.ts';
import { ratesIn, type SavedState, stateOf } from '../train/run/saved-state.ts';
import { checkTrained, isTrainedIn, startWeights } from '../train/run/start-weights.ts';
import { STEPS_AHEAD } from '../train/step/stepper.ts';
import { type StepMetrics, Trainer } from '../train/step/trainer.ts';
import { at } from '../util/at.ts';
import { assert, finishing, HoldfastError, shortened } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { collect, joined, restricted, sourceOf, type TensorSource, type Values } from '../values/tensor-source.ts';
import { compareRuns, type RunTrace, sameTrace, type Verdict } from './verdict.ts';

export interface RecordedRun {
  readonly name: string;
  readonly model: Model;
  readonly state: SavedState;
  readonly text: RunText;
  /** Before the first step, and in the checkpoint. */
  readonly start: TensorSource;
  readonly final: TensorSource;
  /** Closes the files of both, which are kept open: neither can be read after. */
  release(): Promise<void>;
}

/** Where the run's text and start weights lie here, if not where they lay there. */
export interface RunSources {
  readonly data?: readonly string[] | undefined;
  readonly from?: string | undefined;
}

/**
 * The run in a folder, a checkpoint, or a zip of one, as it is now, also where it goes on. Errors: HoldfastError for what has
 * no record of its first steps, and where the text or the weights that it began with are not there.
 */
export async function loadRun(host: Host, path: string, sources: RunSources = {}): Promise<RecordedRun> {
  const checkpoint = await holdCheckpoint(host.files, path);
  try {
    const { release, ...run } = await runIn(host, path, checkpoint, sources);
    return { ...run, release: () => finishing(release, () => checkpoint.release()) };
  } catch (error) {
    return finishing(
      () => Promise.reject(error),
      () => checkpoint.release(),
    );
  }
}

/** With the files of the weights that it began from. */
async function runIn(
  host: Host,
  path: string,
  checkpoint: LoadedCheckpoint,
  { data, from }: RunSources,
): Promise<RecordedRun> {
  const { weights: final } = checkpoint;
  const state = stateOf(checkpoint);
  const { history, trainer } = state;
  const { settings } = at(partsOf(state), 0);
  if (history.steps.length !== trainer.step || history.steps.some(({ step }, i) => step !== i)) {
    throw new HoldfastError(
      `${path}: its record has ${history.steps.length} of ${trainer.step} steps; only a run that is recorded from its first step can be replayed`,
    );
  }
  const tokenizer = await tokenizerFor(host.files, settings, path, checkpoint.tokenizer);
  if (data && settings.task) {
    throw new HoldfastError(`--data: ${path} was trained with --task ${settings.task}; leave the flag out`);
  }
  for (const source of data ? [] : settings.data) {
    if (source !== '-' && (await host.files.stat(source))) continue;
    throw new HoldfastError(
      `${path}: was trained on ${shortened(source)}, which is not here; give its text with --data`,
    );
  }
  if (settings.from !== undefined && from === undefined && !(await host.files.stat(settings.from))) {
    throw new HoldfastError(
      `${path}: began from the weights in ${shortened(settings.from)}, which are not here; name them with --model`,
    );
  }
  const { validationFile } = settings;
  if (validationFile !== undefined && !(await host.files.stat(validationFile))) {
    throw new HoldfastError(
      `${path}: was validated on ${shortened(validationFile)}, which is not here; put it there again`,
    );
  }
  const sources = {
    ...settings,
    ...(data && { data: [...data] }),
    ...(settings.from && { from: from ?? settings.from }),
  };
  const text = await readText(host, sources, tokenizer);
  await checkText(text, state.corpus, path);
  const model = modelOf(settings);
  checkTrained(checkpoint, model);
  const name = path.replace(/\/+$/, '').split('/').at(-1) ?? path;
  const start = await startWeights(host, sources, model);
  const { weights, release } = start;
  try {
    const base = await start.base();
    if (base !== undefined) checkBase(base, state.base, sources.from ?? '', path);
  } catch (error) {
    return finishing(() => Promise.reject(error), release);
  }
  return { name, model, state, text, start: weights, final, release };
}

/** Settings of a run, and the step up to which they held. */
interface Part {
  readonly settings: RunSettings;
  readonly until: number;
}

/** As one rank trains them, whatever trained the run. */
const partsOf = ({ earlier = [], settings, trainer }: SavedState): Part[] =>
  [...earlier, { settings, until: trainer.step }].map((part) => ({
    ...part,
    settings: settingsOn(part.settings, undefined),
  }));

export interface RunReplayOptions {
  /** Budgets and tiers. @default all model data stays on the GPU */
  memory?: MemoryOptions;
  /** Only so many, and then no weights are compared. @default all that were recorded */
  steps?: number | undefined;
  /** Called after each step of either replay, out of `total`. */
  onStep?(done: number, total: number): void;
}

export interface RunVerdict extends Verdict {
  /** Every loss, norm and weight is the same to the last bit. */
  readonly sameBits: boolean;
  readonly steps: number;
}

/** Trains the run again and compares. Errors: HoldfastError where the model does not fit into the budget. */
export async function replayRun(device: Device, run: RecordedRun, options: RunReplayOptions = {}): Promise<RunVerdict> {
  const { history, trainer } = run.state;
  const steps = Math.min(options.steps ?? trainer.step, trainer.step);
  const whole = steps === trainer.step;
  const figure = (which: 'lr' | 'loss' | 'gradNorm') => history.steps.slice(0, steps).map((step) => step[which]);
  const recorded: RunTrace = {
    lr: figure('lr'),
    loss: figure('loss'),
    gradNorm: figure('gradNorm'),
    weights: whole ? await collect(run.final) : undefined,
  };
  let done = 0;
  const train = (start: TensorSource, replays: number) =>
    trainAgain(device, run, start, steps, options.memory ?? {}, () => options.onStep?.(++done, replays * steps));
  const found = await train(run.start, 1);
  const sameBits = sameTrace(recorded, found);
  const perturbed = sameBits ? found : await train(inTheLastBit(run.start, run.state.settings.seed), 2);
  return {
    ...compareRuns(run.name, await collect(restricted(run.start, isTrainedIn(run.model))), recorded, found, perturbed),
    sameBits,
    steps,
  };
}

async function trainAgain(
  device: Device,
  { model, state, text }: RecordedRun,
  start: TensorSource,
  steps: number,
  memory: MemoryOptions,
  onStep: () => void,
): Promise<RunTrace> {
  const parts = partsOf(state);
  const dataset = await datasetOf(at(parts, 0).settings, text);
  const rates = ratesIn(state, device);
  const found: StepMetrics[] = [];
  let weights: Values | undefined;
  let moments: { moment1: Values; moment2: Values; state: SavedState['trainer'] } | undefined;
  for (const { settings, until } of parts) {
    const end = Math.min(steps, until);
    const trainer = await Trainer.create(device, model, {
      ...trainerOptions(settings),
      choices: state.choices,
      memory: { ...(rates && { rates }), ...memory },
    });
    try {
      // What is frozen is what it was.
      await trainer.setWeights(weights ? joined(sourceOf(weights), start) : start);
      if (moments) {
        await trainer.setValues('moment1', sourceOf(moments.moment1));
        await trainer.setValues('moment2', sourceOf(moments.moment2));
        trainer.restore(moments.state);
      }
      const underWay: Promise<StepMetrics>[] = [];
      const finish = async () => {
        const metrics = await underWay.shift();
        assert(metrics, 'a step is under way');
        found.push(metrics);
        onStep();
      };
      try {
        while (trainer.step < end) {
          const micro = await Promise.all(Array.from({ length: settings.accumulate }, () => dataset.next()));
          underWay.push(trainer.start(micro));
          // Its rejection is thrown where it is awaited; until then it is no unhandled one.
          underWay.at(-1)?.catch(() => {});
          if (underWay.length > STEPS_AHEAD) await finish();
        }
        while (underWay.length > 0) await finish();
      } finally {
        await Promise.allSettled(underWay);
      }
      weights = await collect(restricted(trainer.values('parameter'), isTrainedIn(model)));
      if (end < until) break;
      moments = {
        moment1: await collect(trainer.values('moment1')),
        moment2: await collect(trainer.values('moment2')),
        state: await trainer.state(),
      };
    } finally {
      await trainer.destroy();
    }
  }
  return {
    lr: found.map(({ lr }) => lr),
    loss: found.map(({ loss }) => loss),
    gradNorm: found.map(({ gradNorm }) => gradNorm),
    weights,
  };
}

/** The values of `source`, each moved at random by one unit in its last place, or not. Zeros stay: they are exact. */
function inTheLastBit(source: TensorSource, seed: number): TensorSource {
  return {
    names: source.names,
    async *read(name) {
      const random = new Random(seed, `rounding ${name}`);
      for await (const piece of source.read(name)) {
        const moved = piece.slice();
        const bits = new Int32Array(moved.buffer);
        for (let i = 0; i < bits.length; i++) {
          const step = random.below(3) - 1;
          if (moved[i] !== 0) bits[i] = at(bits, i) + step;
        }
        yield moved;
      }
    },
  };
}
