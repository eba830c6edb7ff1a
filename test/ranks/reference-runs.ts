// A reference case trained on several ranks of one process, over one device, and what all of them must agree on: losses, norms,
// weights, the memory that was predicted and the bytes that the plan says. For tests of ranks.

import { expect } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { EXCHANGE_AXES } from '../../src/engine/ranks/grid.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import type { OptimizerDevice } from '../../src/graph/operators/optimizer.ts';
import { splitModel, wholeOf } from '../../src/nn/tensor-parallel.ts';
import { loadCase, type ReferenceCase } from '../../src/parity/reference-case.ts';
import { joinedMicroBatches } from '../../src/parity/replay-case.ts';
import { compareWithReference } from '../../src/parity/verdict.ts';
import { type StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../../src/values/tensor-source.ts';
import { testHost } from '../host.ts';
import { ranksInProcess } from './in-process.ts';

export interface Outcome {
  readonly metrics: readonly StepMetrics[];
  readonly gradients: ReadonlyMap<number, Values>;
  readonly finalLoss: number;
  readonly parameter: Values;
  readonly moment1: Values;
  readonly moment2: Values;
}

export interface Options {
  readonly choices?: ChoiceRecord;
  /** By rank. */
  readonly memory?: (rank: number) => MemoryOptions;
  readonly steps?: number;
  /** Ranks that share each layer. @default 1 */
  readonly tensor?: number;
  /** Stages that have its blocks. @default 1 */
  readonly pipeline?: number;
  /** @default false */
  readonly sequenceParallel?: boolean;
  /** @default 'f32' */
  readonly activationDtype?: ActivationDtype;
  /** @default 'gpu' */
  readonly optimizerDevice?: OptimizerDevice;
}

/** Whether a rank has all weights, and none of them only in part: in sixteen bits it is their upper halves. */
const hasWeights = ({ session, ranks }: Trainer): boolean =>
  ranks === undefined || ranks.sharding.stage < (session.map.dtype === 'f32' ? 3 : 1);

/** A case on several ranks, and what rank 0 has of it; all of them have the same. */
export async function trainOnRanks(
  device: Device,
  reference: ReferenceCase,
  size: number,
  stage: ZeroStage,
  options: Options = {},
): Promise<Outcome & { readonly choices: ChoiceRecord }> {
  const { choices = {}, memory = () => ({}), steps = reference.batches.length, tensor = 1, pipeline = 1 } = options;
  const { activationDtype = 'f32', optimizerDevice = 'gpu', sequenceParallel = false } = options;
  const { model, batch, seq, accumulate, schedule, optimizer } = reference;
  const packed = reference.batches[0]?.[0]?.['documents'] !== undefined;
  const own = { batch, seq, packed, accumulate: (accumulate * tensor * pipeline) / size, schedule, optimizer };
  const trainers: Trainer[] = [];
  for (const ranks of ranksInProcess(size, stage, { tensor, pipeline, sequenceParallel })) {
    const before = device.allocator.bytes;
    const [first] = trainers;
    const shared = { ...ranks, chunkBytes: first?.session.map.chunkBytes };
    // Of all before: parts may be of several sizes.
    const known = trainers.at(-1)?.choices.record() ?? choices;
    const trainer = await Trainer.create(device, model, {
      ...{ ...own, activationDtype, optimizerDevice },
      choices: known,
      memory: memory(ranks.rank),
      ranks: shared,
    });
    expect(device.allocator.bytes - before, 'counted memory').toBe(trainer.session.fit.peak);
    trainers.push(trainer);
  }
  try {
    await Promise.all(trainers.map((trainer) => trainer.setWeights(sourceOf(reference.weights))));
    const outcomes = await Promise.all(
      trainers.map(async (trainer): Promise<Outcome> => {
        const metrics: StepMetrics[] = [];
        const begun = await trainer.collect(() => collect(trainer.values('parameter')));
        if (begun) expect(begun, 'what it begins with').toEqual(new Map(reference.weights));
        const gradients = new Map<number, Values>();
        for (const [step, micros] of reference.batches.slice(0, steps).entries()) {
          const inspect = async (found: TensorSource) => void gradients.set(step, await collect(found));
          const looks = stage === 0 && reference.gradients.has(step);
          metrics.push(await trainer.start(micros, looks ? { inspect } : {}));
        }
        const finalLoss = await trainer.evaluate(joinedMicroBatches(at(reference.batches, 0)));
        // Rank 0 has all of it.
        const isWhole = hasWeights(trainer) && tensor * pipeline === 1;
        const own: Values = isWhole ? await collect(trainer.values('parameter')) : new Map();
        const [parameter, moment1, moment2] = (await trainer.collect(async () => [
          await collect(trainer.values('parameter')),
          await collect(trainer.values('moment1')),
          await collect(trainer.values('moment2')),
        ])) ?? [own, new Map(), new Map()];
        if (isWhole) expect(own).toEqual(parameter);
        return { metrics, gradients, finalLoss, parameter, moment1, moment2 };
      }),
    );
    for (const { ranks, session } of trainers) {
      if (!ranks) continue;
      for (const axis of EXCHANGE_AXES) {
        const bytesOf = (name: 'step' | 'evaluate' | 'evaluated') =>
          networkBytes(session.fit.passes[name]?.operations ?? [], ranks.grid[axis], axis);
        const { sent, received } = bytesOf('step');
        const [each, once] = [bytesOf('evaluate'), bytesOf('evaluated')];
        const passes = Math.ceil(joinedMicroBatches(at(reference.batches, 0)).batch / reference.batch);
        expect(ranks.step[axis].ledger, axis).toEqual({
          sentBytes: steps * sent + passes * each.sent + once.sent,
          receivedBytes: steps * received + passes * each.received + once.received,
        });
      }
    }
    const first = at(outcomes, 0);
    for (const { metrics, finalLoss, parameter } of outcomes) {
      expect({ metrics, finalLoss }).toEqual({ metrics: first.metrics, finalLoss: first.finalLoss });
      if (hasWeights(at(trainers, 0)) && tensor * pipeline === 1) expect(parameter).toEqual(first.parameter);
    }
    const gradients = new Map<number, Values>();
    const part = tensor > 1 ? splitModel(model, { rank: 0, size: tensor }) : model;
    for (const [step, own] of first.gradients) {
      const parts = outcomes.map((outcome) => outcome.gradients.get(step) ?? new Map());
      for (const { name, split } of part.parameters) {
        if (split) continue;
        for (const other of parts) {
          if (own.has(name) && other.has(name))
            expect(other.get(name), `${name}, which all have`).toEqual(own.get(name));
        }
      }
      if (pipeline > 1) {
        gradients.set(step, new Map(parts.flatMap((values) => [...values])));
        continue;
      }
      gradients.set(
        step,
        await collect(
          wholeOf(
            part,
            parts.slice(0, tensor).map((values) => sourceOf(values)),
          ),
        ),
      );
    }
    return { ...first, gradients, choices: at(trainers, trainers.length - 1).choices.record() };
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
}

export const caseOf = (name: string) => loadCase(testHost, `test/fixtures/reference/${name}`);

/** As the reference judges it; activations are those of one batch, on one rank. */
export const verdictOf = (reference: ReferenceCase, outcome: Outcome) => {
  const { metrics, gradients, finalLoss, parameter } = outcome;
  return compareWithReference(
    { ...reference, activations: new Map() },
    {
      lr: metrics.map(({ lr }) => lr),
      loss: metrics.map(({ loss }) => loss),
      gradNorm: metrics.map(({ gradNorm }) => gradNorm),
      gradients,
      finalLoss,
      final: parameter,
      activations: new Map(),
    },
  );
};
