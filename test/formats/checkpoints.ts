// A very small model's checkpoints, for tests: the values of each kind and step are unlike all others.

import { expect } from 'vitest';
import { type Checkpoint, type CheckpointToSave, loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Files } from '../../src/runtime/host.ts';
import { assert } from '../../src/util/errors.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';

export const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 13, n_positions: 7, n_embd: 6, n_layer: 1, n_head: 3 },
  'test',
);
export const { parameters } = makeModel(config);
export const shapes = new Map(parameters.map(({ name, shape }) => [name, shape]));

/** Values of every parameter, unlike those of any other kind or step. */
export const valuesOf = (kind: number, step: number) =>
  new Map(
    parameters.map(({ name, shape }, i) => [
      name,
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => kind + 10 * step + i / 64 + j / 4096),
    ]),
  );

/** What a step leaves besides weights and moments. */
const statesOf = (step: number) => ({
  state: { format: 'holdfast 1', step },
  trainerState: { global_step: step, log_history: [] },
});

/** The checkpoint of a step, in pieces of up to `pieceElements`. */
export const checkpoint = (step: number, pieceElements?: number): CheckpointToSave => ({
  config,
  weights: sourceOf(valuesOf(0, step), pieceElements),
  shapes,
  moment1: sourceOf(valuesOf(1, step), pieceElements),
  moment2: sourceOf(valuesOf(2, step), pieceElements),
  ...statesOf(step),
});

/** One of a single tensor, with files of a few hundred bytes. */
export function tinyCheckpoint(step: number): CheckpointToSave {
  const one = (kind: number) => sourceOf(new Map([['ln_f.bias', new Float32Array(6).fill(10 * step + kind)]]));
  const tiny = { weights: one(0), moment1: one(1), moment2: one(2), shapes: new Map([['ln_f.bias', [6]]]) };
  return { config, ...tiny, ...statesOf(step) };
}

const vit = parseConfig(
  {
    ...{ model_type: 'vit', image_size: 4, patch_size: 2, num_channels: 1, hidden_size: 2, intermediate_size: 2 },
    ...{ num_hidden_layers: 1, num_attention_heads: 1, id2label: { 0: 'a', 1: 'b' } },
  },
  'test',
);

/** One of a vision model, with a mean of each step for its images. */
export function vitCheckpoint(step: number): CheckpointToSave {
  const { parameters } = makeModel(vit);
  const source = sourceOf(
    new Map(parameters.map(({ name, shape }) => [name, new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(step)])),
  );
  return {
    ...{ config: vit, weights: source, moment1: source, moment2: source, ...statesOf(step) },
    shapes: new Map(parameters.map(({ name, shape }) => [name, shape])),
    images: { resize: { height: 4, width: 4, filter: 'bicubic' }, pixels: { factor: 1, mean: [step], std: [2] } },
  };
}

const low = withLora(makeModel(vit), { rank: 1, targets: ['query'], modulesToSave: ['classifier'] });

/** One of a run that trains an adapter, and with it the head that tells the classes apart. */
export function adapterCheckpoint(step: number): CheckpointToSave {
  const [info] = low.adapters ?? [];
  assert(info, 'it has one');
  const names = [...info.linears.flatMap(({ a, b }) => [a, b]), ...info.saved.map(({ name }) => name)];
  const shapes = new Map(low.parameters.map(({ name, shape }) => [name, shape]));
  const own = names.map((name) => {
    const size = entry(shapes, name).reduce((a, b) => a * b, 1);
    return [name, new Float32Array(size).fill(step)] as const;
  });
  const source = sourceOf(new Map(own));
  return {
    ...{ config: vit, weights: source, moment1: source, moment2: source, shapes, adapter: { info, base: 'base' } },
    ...statesOf(step),
  };
}

/** That a folder is the tiny checkpoint of a step, whole. */
export async function expectTiny(files: Files, step: number, folder: string): Promise<void> {
  const loaded = await loadCheckpoint(files, folder);
  const kinds = [loaded.weights, loaded.moment1, loaded.moment2];
  const first = await Promise.all(kinds.map(async (source) => (await collect(source)).get('ln_f.bias')?.join()));
  const wanted = [0, 1, 2].map((kind) => new Float32Array(6).fill(10 * step + kind).join());
  if (stepOf(loaded) !== step || first.join() !== wanted.join())
    expect.fail(`${folder} is not of step ${step}: ${first}`);
}

export const stepOf = ({ state }: Pick<Checkpoint, 'state'>): number => (state as { step: number }).step;

/** That what a run resumes from, or that a folder, is this step's checkpoint, whole. */
export async function expectWhole(files: Files, step: number, folder = 'run'): Promise<void> {
  const loaded = await loadCheckpoint(files, folder);
  expect(stepOf(loaded)).toBe(step);
  expect(loaded.config).toEqual(config);
  expect(loaded.shapes).toEqual(shapes);
  expect(await collect(loaded.weights)).toEqual(valuesOf(0, step));
  expect(await collect(loaded.moment1)).toEqual(valuesOf(1, step));
  expect(await collect(loaded.moment2)).toEqual(valuesOf(2, step));
}
