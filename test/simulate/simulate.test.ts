// The executor on a simulated clock: that it moves what the executor moves, that time is accounted for to the last of
// it, and that it agrees with the formulas of ZeRO-Infinity where they apply.

import { describe, expect, it } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { type FitOptions, smallestBudget } from '../../src/engine/compile/least.ts';
import type { HostOperation } from '../../src/engine/compile/operations.ts';
import type { Pass } from '../../src/engine/compile/pass.ts';
import { flopsOf, offloadedBytes } from '../../src/engine/compile/pass-figures.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { computeSeconds, hostSecondsOn, type Machine, machineLimits } from '../../src/engine/simulate/machine.ts';
import { STEPS, simulate } from '../../src/engine/simulate/simulate.ts';
import { type SimulatedPart, Simulation } from '../../src/engine/simulate/simulation.ts';
import type { SimulatedStep } from '../../src/engine/simulate/step.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationMode } from '../../src/graph/activations.ts';
import { bytesBelow, sharesOf, stashHomes } from '../../src/memory/tiers/shares.ts';
import { makeModel } from '../../src/nn/index.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { MACHINE } from './a-machine.ts';

const gpt2 = (fields: Record<string, number>) => makeModel(parseConfig({ model_type: 'gpt2', ...fields }, 'gpt2'));
const MODEL = gpt2({ n_layer: 3, n_embd: 60, n_head: 3, n_positions: 24, vocab_size: 301 });

interface Case {
  readonly model?: ReturnType<typeof gpt2>;
  readonly activations?: ActivationMode | 'auto';
  readonly recovery?: 'step' | 'checkpoint';
  readonly accumulate?: number;
  readonly batch?: number;
  readonly seq?: number;
  readonly optimizerDevice?: 'gpu' | 'cpu';
}

/** The fit of a case into a budget: a share of the way from the smallest to all. */
function fitOf(share: number, machine: Machine, of: Case = {}) {
  const {
    model: plain = MODEL,
    activations = 'auto',
    recovery = 'checkpoint',
    accumulate = 1,
    batch = 2,
    seq = 24,
    optimizerDevice = 'gpu',
  } = of;
  const model = optimizedOn(plain, optimizerDevice);
  const workload = trainingWorkload(model, traceStep(model, batch, seq), accumulate, undefined, { activations });
  const limits = machineLimits(machine);
  const options: FitOptions = { recovery };
  const least = smallestBudget(workload, limits, options);
  const all = fitMemory(workload, limits, undefined);
  const fit = fitMemory(workload, limits, Math.floor(least + share * (all.peak - least)), options);
  return { fit, all, pass: fit.passes.step, plan: schedule(fit.passes.step.trace, fit.slots, 'planned') };
}

function stepOf(share: number, machine: Machine, of: Case = {}, hostShare?: number): SimulatedStep {
  const { fit, pass, plan } = fitOf(share, machine, of);
  const values = bytesBelow(needBelow(fit));
  return simulate(fit, pass, plan, machine, hostShare === undefined ? {} : { hostBytes: hostShare * values });
}

function followed(part: SimulatedPart, machine: Machine): SimulatedStep {
  const { steps } = part.schedule.plan;
  const { value } = new Simulation(part, machine).follow(STEPS * steps).next();
  return value ?? expect.fail('one rank waits for no other stage');
}

const secondsAt = (machine: Machine, { operations }: Pass, moment: number): number =>
  hostSecondsOn(machine, at(operations, moment) as HostOperation);

const withLink = (factor: number): Machine => {
  const { upBytesPerSecond: up, downBytesPerSecond: down, copies } = MACHINE.link;
  return { ...MACHINE, link: { upBytesPerSecond: factor * up, downBytesPerSecond: factor * down, copies } };
};
const serial = (machine: Machine): Machine => ({ ...machine, link: { ...machine.link, copies: 'serial' } });

describe('bytes', () => {
  it.each([
    [0, 'auto', 1],
    [0.1, 'spill', 2],
    [0.3, 'offload', 3],
    [0.5, 'keep', 1],
    [0.95, 'light', 2],
  ] as const)(
    'are the plan’s and the activations’, at %d with %s and %d micro-batches',
    (share, activations, accumulate) => {
      for (const machine of [MACHINE, serial(MACHINE)]) {
        const { fit, pass, plan } = fitOf(share, machine, { activations, accumulate });
        const { bytes } = simulate(fit, pass, plan, machine);
        expect(bytes.up).toBe(plan.moved.h2d + offloadedBytes(pass));
        expect(bytes.down).toBe(plan.moved.d2h + offloadedBytes(pass));
        expect(bytes).toMatchObject({ recovery: 0, diskRead: 0, diskWrite: 0 });
      }
    },
  );

  it('go to disk and back where host memory is short, and more the shorter it is', () => {
    const disk = [1, 0.6, 0.3].map((share) => stepOf(0.2, MACHINE, {}, share).bytes);
    const read = disk.map(({ diskRead }) => diskRead);
    expect(read[0]).toBe(0);
    expect(read[1]).toBeGreaterThan(0);
    expect(read[2]).toBeGreaterThan(read[1] ?? 0);
    // In a step that repeats itself, what is read was written, by this step or, where it never changes, before.
    for (const { diskWrite, diskRead } of disk) expect(diskWrite).toBeLessThanOrEqual(diskRead);
  });

  it('of activations on disk are their own, there and back once a micro-batch', () => {
    const { fit, pass, plan } = fitOf(1, MACHINE, { activations: 'offload', accumulate: 2 });
    // Room for all chunks but one, whatever the activations have.
    const host = (fit.map.count - 1) * fit.map.chunkBytes;
    const need = needBelow(fit);
    const shares = sharesOf(need, { host, disk: MACHINE.disk?.bytes ?? 0 });
    const onDisk = (shares && stashHomes(fit.stashes, shares.stashes)?.onDisk) ?? 0;
    const { bytes } = simulate(fit, pass, plan, MACHINE, { hostBytes: host });
    expect(onDisk).toBeGreaterThan(0);
    // Between steps all chunks are on the GPU: none of them moves.
    expect([bytes.diskWrite, bytes.diskRead]).toEqual([2 * onDisk, 2 * onDisk]);
  });

  it('of each step’s state go down where recovery is by step: gradients, parameters and both moments', () => {
    const { fit, pass, plan } = fitOf(0.4, MACHINE, { recovery: 'step' });
    const { bytes } = simulate(fit, pass, plan, MACHINE);
    expect(bytes.recovery).toBe(4 * fit.map.trainable.chunks * fit.map.chunkBytes);
    expect(bytes.down).toBeGreaterThanOrEqual(bytes.recovery + offloadedBytes(pass));
  });
});

describe('with AdamW on the host', () => {
  const ON_HOST = { optimizerDevice: 'cpu', recovery: 'step', activations: 'keep' } as const;
  const withMemory = (factor: number): Machine => ({
    ...MACHINE,
    hostMemory: { bytesPerSecond: factor * (MACHINE.hostMemory?.bytesPerSecond ?? 0), reached: 1 },
  });

  it('gradients go down and parameters come up, and what the optimizer alone uses stays below', () => {
    const { fit, pass, plan } = fitOf(1, MACHINE, ON_HOST);
    const { bytes } = simulate(fit, pass, plan, MACHINE);
    const all = fit.map.trainable.chunks * fit.map.chunkBytes;
    expect(bytes).toMatchObject({ up: all, down: all, recovery: all, diskRead: 0, diskWrite: 0 });
  });

  it('the GPU goes on meanwhile, and waits for what it needs, at its memory’s speed: 28 bytes a parameter', () => {
    for (const share of [0.2, 1]) {
      const { fit, pass, plan } = fitOf(share, MACHINE, ON_HOST);
      const padded = fit.map.trainable.used.reduce((sum, size) => sum + size, 0);
      const held = [...fit.map.trainable.pieces.values()].flat().reduce((sum, { size }) => sum + size, 0);
      for (const factor of [1, 0.25, 0.01]) {
        const { waits, seconds, computeSeconds } = simulate(fit, pass, plan, withMemory(factor));
        const secondsEach = 28 / (factor * (MACHINE.hostMemory?.bytesPerSecond ?? 0));
        expect(waits.host).toBeLessThanOrEqual(secondsEach * padded);
        // Nothing of a step is updated before all of its gradients are there, nor its backward pass run on what is not updated.
        expect(waits.host).toBeGreaterThanOrEqual(secondsEach * held - computeSeconds);
        expect(seconds).toBeGreaterThanOrEqual(secondsEach * held);
        expect(waits.host).toBeLessThan(secondsEach * held);
        const waited = Object.values(waits).reduce((a, b) => a + b, 0);
        expect(computeSeconds + waited).toBeCloseTo(seconds, 12);
      }
    }
  });

  it('within host memory that is left, updates begin behind their own gradients, in as many as it holds', () => {
    const { fit, pass, plan } = fitOf(0.3, MACHINE, ON_HOST);
    const machine = withMemory(0.3);
    const stepIn = (chunks: number, beginsAhead: boolean) =>
      followed({ fit, pass, schedule: plan, hostBytes: chunks * fit.map.chunkBytes, beginsAhead }, machine);
    const { held, largestPut, beside = 0 } = needBelow(fit);
    const onHost = pass.operations.flatMap((operation, m) =>
      operation.op === 'host' ? [secondsAt(machine, pass, m)] : [],
    );
    const all = onHost.reduce((a, b) => a + b, 0);
    const waiting = stepIn(held + largestPut, true);
    const some = stepIn(held + largestPut + beside, true);
    const most = stepIn(held + largestPut + 2 * beside, true);
    expect(stepIn(held + largestPut + 2 * beside, false)).toEqual(waiting);
    expect(some.seconds).toBeLessThan(waiting.seconds);
    expect(most.seconds).toBeLessThan(some.seconds);
    // One processor does all of them in any order.
    expect(most.seconds).toBeGreaterThanOrEqual(all);
    for (const { bytes } of [some, most]) expect(bytes).toEqual(waiting.bytes);
  });

  it('moments that come from disk do so behind their own gradients, where disk is left beside them, and no more is read', () => {
    const { fit, pass, plan } = fitOf(0.1, MACHINE, ON_HOST);
    const { held, chunkBytes, largestPut, updates, beside = 0 } = needBelow(fit);
    const stepIn = (slots: number, blocks: number, bytesPerSecond: number) => {
      const rates = { readBytesPerSecond: bytesPerSecond, writeBytesPerSecond: bytesPerSecond };
      const part = { fit, pass, schedule: plan, hostBytes: slots * chunkBytes, beginsAhead: true };
      return followed(part, { ...withMemory(0.3), disk: { ...rates, bytes: blocks * chunkBytes } });
    };
    // From disks that a step waits for to those that it hides.
    for (const speed of [2e7, 1e9, 3e10]) {
      for (const slots of [4 * updates, held >> 1]) {
        const waiting = stepIn(slots, held + largestPut - slots, speed);
        const ahead = stepIn(slots, held + largestPut + beside, speed);
        expect(ahead.seconds, `${slots} chunks, ${speed}`).toBeLessThan(0.95 * waiting.seconds);
        expect(ahead.bytes.diskRead).toBeLessThanOrEqual(waiting.bytes.diskRead);
      }
    }
  });

  it('moments that host memory has no room for come from disk and go back there', () => {
    const { fit, pass, plan } = fitOf(1, MACHINE, ON_HOST);
    const { map } = fit;
    const [all, most, least] = [map.count, map.count - 2, 6].map(
      (chunks) => simulate(fit, pass, plan, MACHINE, { hostBytes: chunks * map.chunkBytes }).bytes,
    );
    expect(all).toMatchObject({ diskRead: 0, diskWrite: 0 });
    expect(most?.diskRead).toBeGreaterThan(0);
    expect(least?.diskRead).toBeGreaterThan(most?.diskRead ?? 0);
    // Of six chunks an update holds four: next to nothing stays.
    const moments = 2 * map.trainable.chunks * map.chunkBytes;
    expect(least?.diskRead).toBeGreaterThanOrEqual(moments - 2 * map.chunkBytes);
    expect(least?.diskWrite).toBeGreaterThanOrEqual(moments - 2 * map.chunkBytes);
    expect(() => simulate(fit, pass, plan, MACHINE, { hostBytes: 5 * map.chunkBytes })).toThrow('host memory');
  });

  it('no time is made up where nothing is known of the host’s memory', () => {
    const { fit, pass, plan } = fitOf(1, MACHINE, ON_HOST);
    const { hostMemory: _, ...machine } = MACHINE;
    expect(() => simulate(fit, pass, plan, machine)).toThrow('add host.bytesPerSecond to its file');
  });
});

describe('seconds', () => {
  it('are those of the operations and of what was waited for', () => {
    for (const share of [0.2, 0.7]) {
      for (const machine of [MACHINE, serial(MACHINE)]) {
        for (const recovery of ['step', 'checkpoint'] as const) {
          const step = stepOf(share, machine, { recovery }, 0.4);
          const { up, down, diskRead, diskWrite } = step.waits;
          expect(step.computeSeconds + up + down + diskRead + diskWrite).toBeCloseTo(step.seconds, 12);
        }
      }
    }
  });

  it('are the resident step’s where everything is on the GPU, and where the link is infinite', () => {
    const { all, fit, pass, plan } = fitOf(0.2, MACHINE, { activations: 'keep' });
    const resident = computeSeconds(MACHINE, all.passes.step.operations);
    const whole = simulate(all, all.passes.step, schedule(all.passes.step.trace, all.slots, 'planned'), MACHINE);
    expect(whole.seconds).toBeCloseTo(resident, 12);
    expect(whole.waits).toEqual({ up: 0, down: 0, host: 0, network: 0, bubble: 0, diskRead: 0, diskWrite: 0 });
    const infinite = simulate(fit, pass, plan, withLink(Number.POSITIVE_INFINITY));
    expect(infinite.seconds).toBeCloseTo(infinite.computeSeconds, 12);
    // Slots that are cleared, and operators that run tile by tile: nothing else may make it longer.
    const own = computeSeconds(MACHINE, pass.operations);
    expect(infinite.seconds).toBeGreaterThanOrEqual(own * (1 - 1e-9));
    expect(infinite.seconds).toBeLessThan(own * 1.05);
  });

  it('are no fewer than the link or the disk is busy, however activations and chunks share it', () => {
    for (const activations of ['offload', 'spill', 'keep'] as const) {
      for (const share of [0.2, 1]) {
        const machine = withLink(0.01);
        const { fit, pass, plan } = fitOf(share, machine, { activations });
        const host = 0.5 * bytesBelow(needBelow(fit));
        const { seconds, bytes } = simulate(fit, pass, plan, machine, { hostBytes: host });
        const { link, disk } = machine;
        const least = [
          bytes.up / link.upBytesPerSecond,
          bytes.down / link.downBytesPerSecond,
          bytes.diskRead / (disk?.readBytesPerSecond ?? 0),
          bytes.diskWrite / (disk?.writeBytesPerSecond ?? 0),
        ];
        for (const busy of least) expect(seconds).toBeGreaterThanOrEqual(busy * (1 - 1e-9));
      }
    }
  });

  it('never grow with bandwidth, of the link, the disk or the memory', () => {
    // Where arithmetic is done earlier, the disk is written earlier, too, and what is read for it then may wait: another order may take
    // longer (Graham 1969, "Bounds on Multiprocessing Timing Anomalies"). Of these plans, each the fastest of many on this machine, 3.1 % in
    // the fewest slots, and 13.2 % at 0.3.
    const anomaly = { link: 1e-9, serial: 1e-9, memory: 0.14, disk: 1e-9 };
    for (const share of [0, 0.3, 0.7]) {
      // The same plan: another machine might be given another.
      const { fit, pass, plan } = fitOf(share, MACHINE);
      const host = 0.4 * fit.map.count * fit.map.chunkBytes;
      const seconds = (machine: Machine) => simulate(fit, pass, plan, machine, { hostBytes: host }).seconds;
      const { disk } = MACHINE;
      const faster = (factor: number): Record<keyof typeof anomaly, Machine> => ({
        link: withLink(factor),
        serial: serial(withLink(factor)),
        memory: { ...MACHINE, memoryBytesPerSecond: factor * MACHINE.memoryBytesPerSecond },
        disk: {
          ...MACHINE,
          ...(disk && {
            disk: {
              ...disk,
              readBytesPerSecond: factor * disk.readBytesPerSecond,
              writeBytesPerSecond: factor * disk.writeBytesPerSecond,
            },
          }),
        },
      });
      for (const [what, most] of Object.entries(anomaly)) {
        const times = [0.25, 1, 4, 16].map((factor) => seconds(faster(factor)[what as keyof typeof anomaly]));
        times.slice(1).forEach((value, i) => {
          expect(value, `${what} at ${share}`).toBeLessThanOrEqual((times[i] ?? 0) * (1 + most));
        });
      }
    }
  });

  it('are no fewer where copies take turns with arithmetic, whose sum they then are', () => {
    const { fit, pass, plan } = fitOf(0.2, MACHINE);
    const duplex = simulate(fit, pass, plan, MACHINE);
    const turns = simulate(fit, pass, plan, serial(MACHINE));
    const { upBytesPerSecond, downBytesPerSecond } = MACHINE.link;
    const sum = turns.computeSeconds + turns.bytes.up / upBytesPerSecond + turns.bytes.down / downBytesPerSecond;
    expect(turns.seconds).toBeGreaterThanOrEqual(duplex.seconds * (1 - 1e-9));
    expect(turns.seconds / sum).toBeCloseTo(1, 6);
  });
});

describe('the formulas of ZeRO-Infinity', () => {
  // Efficiency = ait bw / (ait bw + peak), ait in operations a byte. With 2 bytes an element, each parameter is loaded three
  // times and its gradient stored, 8 bytes: ait = 8 seq batch / 8 = seq batch; the optimizer moves 32: seq batch / 4.
  // Here an element has 4 bytes, nothing is made again, and a parameter is loaded twice: the same formulas with 12 and 28.
  const aitOf = (bytesPerParameter: number, flopsPerToken: number, tokens: number, parameters: number) =>
    (flopsPerToken * tokens) / (bytesPerParameter * parameters);
  const model = gpt2({ n_layer: 8, n_embd: 128, n_head: 2, n_positions: 16, vocab_size: 128 });
  const parameters = model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const tokens = 4 * 16;
  const streaming: Machine = {
    ...serial(MACHINE),
    reached: 1,
    launchSeconds: 0,
    memoryBytesPerSecond: Number.POSITIVE_INFINITY,
    link: { upBytesPerSecond: 20e9, downBytesPerSecond: 20e9, copies: 'serial' },
  };
  const efficiency = (...ait: number[]) =>
    1 / ait.reduce((sum, each) => sum + streaming.peakFlops / (each * streaming.link.upBytesPerSecond), 1);

  it('give the efficiency of a step whose parameters, gradients and optimizer states are all streamed', () => {
    const { fit, pass, plan } = fitOf(0, streaming, { model, activations: 'keep', batch: 4, seq: 16 });
    const step = simulate(fit, pass, plan, streaming);
    // 6 operations a parameter and token, where nothing is made again; attention beside them.
    const perToken = flopsOf(pass) / tokens;
    expect(perToken / (6 * parameters)).toBeGreaterThan(0.95);
    // Two loads of a parameter and a store of its gradient; then four loads and three stores. What pads chunks moves with them.
    const { count, chunkBytes } = fit.map;
    const padded = (count * chunkBytes) / 16 / parameters;
    expect(padded).toBeLessThan(1.1);
    const gradients = aitOf(3 * 4 * padded, perToken, tokens, parameters);
    const states = aitOf(7 * 4 * padded, perToken, tokens, parameters);
    const measured = step.computeSeconds / step.seconds;
    expect(Math.abs(measured / efficiency(gradients, states) - 1)).toBeLessThan(0.05);
  });

  it('give that of activations that are moved: 24 h ci, of 2 bytes and one a block', () => {
    // All chunks stay: only activations move, two a block of 4 bytes, which is a quarter of the formula's.
    const { fit, pass, plan } = fitOf(1, streaming, { model, activations: 'spill', batch: 4, seq: 16 });
    expect(fit.slots).toBe(fit.map.count);
    const step = simulate(fit, pass, plan, streaming);
    const ait = (24 * 128) / 4;
    const measured = step.computeSeconds / step.seconds;
    expect(Math.abs(measured / efficiency(ait) - 1)).toBeLessThan(0.05);
  });
});

describe('what fits into no memory', () => {
  it('is refused with the host memory that would do', () => {
    const { disk: _, ...without } = MACHINE;
    expect(() => stepOf(0.2, without, {}, 0.5)).toThrow(/--host-memory [\d.]+[KMG]B would do/);
    expect(() =>
      stepOf(0.2, { ...MACHINE, disk: { ...(MACHINE.disk as never as object), bytes: 1e4 } as never }, {}, 0.5),
    ).toThrow(/of disk; --host-memory/);
  });
});
