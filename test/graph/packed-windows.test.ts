// Rows of several documents in models whose layers have windows: the loss and every gradient are those of the same documents
// in rows of their own, where windows and documents are known to be right by themselves. Interpreted in float64, with what may
// become of activations; no device.

import { expect, test } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { ACTIVATION_MODES, type ActivationMode, withActivations, withSlices } from '../../src/graph/activations.ts';
import type { Tensor } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Random } from '../../src/util/random.ts';
import { documentRows } from '../document-rows.ts';
import { entry } from '../entry.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { MISTRAL } from '../families/mistral.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { Memory } from '../interpret.ts';

/** Of cosines and sines. */
const ROTATED = 2 ** -20;
const SEQ = 24;
/** Tokens of each document, of one row; behind them there is room, and one more of it without targets. */
const LENGTHS = [5, 1, 9, 2, 4];

const modelOf = (config: object) => makeModel(parseConfig({ ...config, max_position_embeddings: 2 * SEQ }, 'test'));

/** Layers with windows of three or four tokens alone, and beside layers that see all: by a pattern, and by a list. */
const MODELS: Readonly<Record<string, object>> = {
  mistral: MISTRAL,
  gemma3: GEMMA3,
  qwen3: {
    ...{ ...QWEN3, use_sliding_window: true, sliding_window: 4, num_hidden_layers: 2 },
    layer_types: ['sliding_attention', 'full_attention'],
  },
};

const random = new Random(7, 'documents');
const DOCUMENTS = LENGTHS.map((length) => Array.from({ length }, () => random.below(11)));

const rows = (packed: boolean): Batch => documentRows(DOCUMENTS, SEQ, packed);

interface Computed {
  readonly loss: number;
  readonly gradients: ReadonlyMap<string, Float64Array>;
}

function computed(model: Model, given: Batch, mode: ActivationMode = 'keep'): Computed {
  const programs = traceStep(model, given.batch, SEQ, { packed: given['documents'] !== undefined });
  const draws = new Random(5, 'weights');
  const memory = new Memory();
  for (const tensor of programs.parameters.values())
    memory.set(
      tensor,
      Float64Array.from({ length: tensor.size }, () => 0.5 * draws.normal()),
    );
  programs.inputs.check(given);
  memory.setInputs(model, programs, given, 1 / model.objective.count(given));
  memory.run(withActivations(programs.first, () => mode));
  const valuesOf = (tensor: Tensor) => memory.of(tensor).slice();
  const [trained = NaN] = memory.of(programs.scalars.lossSum);
  memory.set(programs.scalars.lossSum, [0]);
  memory.run(withSlices(programs.evaluate, () => mode));
  const [evaluated = NaN] = memory.of(programs.scalars.lossSum);
  expect(evaluated).toBeCloseTo(trained, 12);
  return {
    loss: trained,
    gradients: new Map([...programs.gradients].map(([name, tensor]) => [name, valuesOf(tensor)])),
  };
}

/** The largest difference of a gradient's elements, as a part of its largest element. */
function worst(found: Computed, wanted: Computed): number {
  const differences = [...wanted.gradients].map(([name, values]) => {
    const others = entry(found.gradients, name);
    const most = (list: Float64Array) => list.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return most(values.map((value, i) => value - (others[i] ?? NaN))) / most(values);
  });
  return Math.max(...differences);
}

test.each(Object.entries(MODELS))('%s: documents in one row are those in rows of their own', (_, config) => {
  const model = modelOf(config);
  const alone = computed(model, rows(false));
  const packed = computed(model, rows(true));
  // Rotations are tabulated in float32: of tokens at other places, their differences are rounded otherwise.
  expect(Math.abs(packed.loss - alone.loss)).toBeLessThan(ROTATED);
  expect(worst(packed, alone)).toBeLessThan(10 * ROTATED);
  // Where the windows are longer than any document, they hide nothing: here they do.
  const wide = computed(modelOf({ ...config, sliding_window: 9 }), rows(true));
  expect(Math.abs(wide.loss - alone.loss)).toBeGreaterThan(1e-3);
  expect(worst(wide, alone)).toBeGreaterThan(1e-3);
  // Without documents, a window reaches into the one before.
  const { documents: _documents, ...mixed } = rows(true);
  expect(Math.abs(computed(model, mixed).loss - alone.loss)).toBeGreaterThan(1e-3);
});

test.each(Object.entries(MODELS))('%s: whatever becomes of activations, to the bit', (_, config) => {
  const model = modelOf(config);
  const kept = computed(model, rows(true));
  for (const mode of ACTIVATION_MODES) expect(computed(model, rows(true), mode), mode).toEqual(kept);
});
