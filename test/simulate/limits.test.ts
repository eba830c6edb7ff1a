// Limits on paper: models many times larger than the machine that trains them, and four times the batch in the memory of one.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import type { Machine } from '../../src/engine/simulate/machine.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';

interface Shape {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
}

const SMALL: Shape = { layers: 12, width: 768, heads: 12 };
const XL: Shape = { layers: 48, width: 1600, heads: 25 };
const OF_13B: Shape = { layers: 40, width: 5120, heads: 40 };

function scenarioOf(shape: Shape, batch: number, context: number): Scenario {
  const config = (layers: number) =>
    configFromFlags({ model: 'gpt2', ...shape, layers, context, vocabSize: 50_257, tied: true });
  return {
    ...{ layers: shape.layers, batch, context, accumulate: 1, activations: 'auto', recovery: 'checkpoint' },
    parameters: sizeOf(config(shape.layers)).parameters,
    modelOf: (layers) => makeModel(config(layers)),
  };
}

function machineNamed(name: string): Machine {
  const machine = knownMachine(name);
  if (!machine) throw new Error(`there is no ${name}`);
  return machine;
}

/** Blocks that stand for all of a deep model. */
const FEW_BLOCKS = 4;

describe('models larger than a machine', () => {
  it('GPT-2 XL trains on a laptop’s GPU of 4 GB', () => {
    const laptop = machineNamed('rtx-3050-laptop');
    expect(laptop.gpuBytes).toBeLessThanOrEqual(4.3e9);
    const predictor = new Predictor(scenarioOf(XL, 1, 1024), laptop, FEW_BLOCKS);
    expect(predictor.resident.bytes).toBeGreaterThan(6 * laptop.gpuBytes);
    expect(predictor.smallest).toBeLessThan(laptop.gpuBytes / 10);
    const { seconds, bytes, below, onDisk } = predictor.at(4e9, laptop.hostBytes);
    expect(below).toBeGreaterThan(laptop.hostBytes);
    expect(onDisk).toBeGreaterThanOrEqual(below - laptop.hostBytes);
    expect(seconds).toBeGreaterThan(bytes.up / laptop.link.upBytesPerSecond);
    expect(seconds).toBeGreaterThan(predictor.fastest);
  });

  it('13 thousand million parameters train on a GPU of 24 GB, 128 GB of host memory and 1 TB of disk', () => {
    const machine = { ...machineNamed('rtx-4090'), hostBytes: 128e9 };
    const { disk } = machine;
    if (!disk) throw new Error('it has a disk');
    const wide = { ...machine, disk: { ...disk, bytes: 1e12 } };
    const predictor = new Predictor(scenarioOf(OF_13B, 1, 2048), wide, FEW_BLOCKS);
    expect(predictor.resident.bytes).toBeGreaterThan(200e9);
    const { below, onDisk, seconds } = predictor.at(24e9, 120e9);
    expect(below).toBeGreaterThan(128e9);
    expect(onDisk).toBeGreaterThan(0);
    expect(seconds).toBeGreaterThan(predictor.fastest);
  });
});

it.each(['rtx-4090', 'rtx-3050-laptop'])(
  'four times the batch in the memory of one takes at most 1.10 times the time a token on %s',
  (name) => {
    const machine = { ...machineNamed(name), hostBytes: 64e9 };
    const one = new Predictor(scenarioOf(SMALL, 1, 1024), machine);
    const four = new Predictor(scenarioOf(SMALL, 4, 1024), machine);
    expect(four.resident.bytes).toBeGreaterThan(1.5 * one.resident.bytes);
    const { seconds } = four.at(one.resident.bytes, machine.hostBytes);
    expect(seconds / 4 / one.resident.seconds).toBeLessThanOrEqual(1.1);
  },
);
