// Training on several ranks of one process, over one device: the reference cases pass as on one rank, with the same bits
// under every stage of ZeRO and every budget, the memory that was predicted, and the bytes that the plan says.

import { beforeAll, describe, expect, it } from 'vitest';
import type { Batch, BatchArray } from '../../src/data/batches.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { smallestBudget } from '../../src/engine/compile/fit.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { loadCase, type ReferenceCase } from '../../src/parity/reference-case.ts';
import { joined } from '../../src/parity/replay-case.ts';
import { compareWithReference } from '../../src/parity/verdict.ts';
import { traceStep } from '../../src/train/step-programs.ts';
import { type StepMetrics, Trainer } from '../../src/train/trainer.ts';
import { trainingWorkload } from '../../src/train/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../../src/util/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
import { ranksInProcess } from './in-process.ts';

interface Outcome {
  readonly metrics: readonly StepMetrics[];
  readonly gradients: ReadonlyMap<number, Values>;
  readonly finalLoss: number;
  readonly parameter: Values;
  readonly moment1: Values;
  readonly moment2: Values;
}

interface Options {
  readonly choices?: ChoiceRecord;
  /** By rank. */
  readonly memory?: (rank: number) => MemoryOptions;
  readonly steps?: number;
}

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

/** A case on several ranks, and what rank 0 has of it; all of them have the same. */
async function trainOnRanks(
  reference: ReferenceCase,
  size: number,
  stage: ZeroStage,
  { choices = {}, memory = () => ({}), steps = reference.batches.length }: Options = {},
): Promise<Outcome & { readonly choices: ChoiceRecord }> {
  const { model, batch, seq, accumulate, schedule, optimizer } = reference;
  const packed = reference.batches[0]?.[0]?.['documents'] !== undefined;
  const options = { batch, seq, packed, accumulate: accumulate / size, schedule, optimizer };
  const trainers: Trainer[] = [];
  for (const ranks of ranksInProcess(size, stage)) {
    const before = device.allocator.bytes;
    const [first] = trainers;
    const shared = { ...ranks, chunkBytes: first?.session.map.chunkBytes };
    const known = first?.choices.record() ?? choices;
    const trainer = await Trainer.create(device, model, {
      ...options,
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
        const gradients = new Map<number, Values>();
        for (const [step, micros] of reference.batches.slice(0, steps).entries()) {
          const inspect = async (found: TensorSource) => void gradients.set(step, await collect(found));
          const looks = stage === 0 && reference.gradients.has(step);
          metrics.push(await trainer.start(micros, looks ? { inspect } : {}));
        }
        const finalLoss = await trainer.evaluate(joined(at(reference.batches, 0)));
        // Rank 0 has all of it.
        const own: Values = stage < 3 ? await collect(trainer.values('parameter')) : new Map();
        const [parameter, moment1, moment2] = (await trainer.collect(async () => [
          await collect(trainer.values('parameter')),
          await collect(trainer.values('moment1')),
          await collect(trainer.values('moment2')),
        ])) ?? [own, new Map(), new Map()];
        if (stage < 3) expect(own).toEqual(parameter);
        return { metrics, gradients, finalLoss, parameter, moment1, moment2 };
      }),
    );
    for (const { ranks, session } of trainers) {
      const place = { rank: ranks?.rank ?? 0, size, stage };
      const { sent, received } = networkBytes(session.fit.passes.step.operations, place);
      const evaluated = networkBytes(session.fit.passes.evaluate.operations, place);
      const passes = Math.ceil(joined(at(reference.batches, 0)).batch / reference.batch);
      expect(ranks?.step.ledger).toEqual({
        sentBytes: steps * sent + passes * evaluated.sent,
        receivedBytes: steps * received + passes * evaluated.received,
      });
    }
    const first = at(outcomes, 0);
    for (const { metrics, finalLoss, parameter } of outcomes) {
      expect({ metrics, finalLoss }).toEqual({ metrics: first.metrics, finalLoss: first.finalLoss });
      if (stage < 3) expect(parameter).toEqual(first.parameter);
    }
    return { ...first, choices: at(trainers, 0).choices.record() };
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
}

const caseOf = (name: string) => loadCase(testHost, `test/fixtures/reference/${name}`);

/** As the reference judges it; activations are those of one batch, on one rank. */
const verdictOf = (reference: ReferenceCase, outcome: Outcome) => {
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

// The second has micro-batches of very different numbers of valid targets.
describe.each(EVERY_CASE ? ['gpt2-accum4', 'gpt2-accum4-ignore'] : ['gpt2-accum4-ignore'])('%s', (name) => {
  it.each(EVERY_CASE ? [2, 4] : [2])('passes on %i ranks, whatever is sharded, within any budget', async (size) => {
    const reference = await caseOf(name);
    const { choices, ...whole } = await trainOnRanks(reference, size, 0);
    const { metrics, worst } = verdictOf(reference, whole);
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );

    const { model, batch, seq, accumulate } = reference;
    const least = (stage: ZeroStage) => {
      const sharding = { rank: 0, size, stage };
      const workload = trainingWorkload(model, traceStep(model, batch, seq), accumulate / size, undefined, {
        accumulateOrder: 'batch',
        sharding,
      });
      return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
    };
    const steps = EVERY_CASE ? reference.batches.length : 2;
    const { choices: _, ...short } = await trainOnRanks(reference, size, 0, { choices, steps });
    for (const stage of ZERO_STAGES) {
      const tight = (rank: number): MemoryOptions =>
        rank === 0 ? { gpu: least(stage) + 65_536 } : { gpu: 2 * least(stage), host: 400_000, disk: memoryDisk() };
      for (const memory of [() => ({}), tight]) {
        const { choices: _, ...found } = await trainOnRanks(reference, size, stage, { choices, steps, memory });
        expect({ ...found, gradients: undefined }, `ZeRO ${stage}`).toEqual({ ...short, gradients: undefined });
      }
    }
  });
});

/** Micro-batches as so many of fewer rows. */
function split(reference: ReferenceCase, parts: number): ReferenceCase {
  const { batch, accumulate, batches } = reference;
  const rows = batch / parts;
  const partOf = (whole: Batch, part: number): Batch => {
    const arrays = Object.entries(whole).map(([name, values]): [string, BatchArray | number] => {
      if (typeof values === 'number') return [name, values];
      const size = values.length / parts;
      return [name, values.slice(part * size, (part + 1) * size)];
    });
    return { ...Object.fromEntries(arrays), batch: rows, seq: whole.seq };
  };
  const micros = batches.map((step) =>
    step.flatMap((whole) => Array.from({ length: parts }, (_, part) => partOf(whole, part))),
  );
  return { ...reference, batch: rows, accumulate: parts * accumulate, batches: micros };
}

describe.runIf(EVERY_CASE)('cases whose rows several ranks share', () => {
  it.each([
    ['gpt2-tiny', 3],
    ['gpt2-small-odd', 2],
    ['llama-tiny', 2],
    ['llama-tied-mqa', 2],
    ['qwen3', 2],
    ['gemma3-text', 2],
    ['bert-mlm', 4],
    ['chat-mask', 2],
    ['llama-lora-all', 2],
  ] as const)('%s on %i', async (name, size) => {
    const whole = await caseOf(name);
    const reference = { ...split(whole, size), gradients: new Map() };
    const outcomes: Outcome[] = [];
    let choices: ChoiceRecord = {};
    for (const stage of [2, 3] as const) {
      const { choices: made, ...outcome } = await trainOnRanks(reference, size, stage, { choices });
      choices = made;
      outcomes.push(outcome);
    }
    const { metrics, worst } = verdictOf(reference, at(outcomes, 0));
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );
    expect(outcomes[1]).toEqual(outcomes[0]);
  });
});
