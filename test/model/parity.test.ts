// Every case of the reference, replayed on the adapter under test: within the tolerances themselves, without
// the allowance for what WGSL would permit. And the replay notices: a wrong optimizer, a wrong gradient, NaN.

import { beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../src/graph/activations.ts';
import type { OptimizerDevice, Update } from '../../src/graph/operators/optimizer.ts';
import { loadCase, type ReferenceCase } from '../../src/parity/reference-case.ts';
import { type ReplayResult, replay } from '../../src/parity/replay-case.ts';
import { ALLOWED_MULTIPLE, compareWithReference } from '../../src/parity/verdict.ts';
import { join } from '../../src/runtime/host.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost, VERBOSE } from '../host.ts';
import { replayCase } from '../replay-case.ts';
import { CASES, expectSameInLeastBudget, IN_LEAST_BUDGET, REFERENCE } from './least-budget.ts';

chooseVariants(11);

let device: Device;

beforeAll(async () => {
  device = await testDevice();
});

const replays = new Map<string, Promise<ReplayResult>>();

/** With all model data on the GPU. */
function resident(name: string): Promise<ReplayResult> {
  const known = replays.get(name);
  if (known) return known;
  chooseVariants(CASES.indexOf(name), name === 'gpt2-tiny');
  const made = replayCase(device, join(REFERENCE, name));
  replays.set(name, made);
  return made;
}

/** Of other steps, weights or targets than another case of the family has. */
const ALIKE = ['gpt2-accum4', 'gpt2-ignore', 'gpt2-stdinit', 'llama-tiny'];

/** In Deno each step waits longer for what it reads. */
const SAMPLED_CASES = EVERY_CASE ? CASES : CASES.filter((name, i) => (THOROUGH ? !ALIKE.includes(name) : i % 6 === 0));

describe('replayed cases', () => {
  it.each(SAMPLED_CASES)('%s', async (name) => {
    const before = device.allocator.bytes;
    const { metrics, worst, pass, unchecked } = await resident(name);
    const table = [...metrics].map(([metric, { multiple, where }]) => `${metric} ${multiple.toFixed(3)} ${where}`);
    if (VERBOSE) console.log(`${name}\n  ${table.join('\n  ')}`);
    expect(worst, table.join('\n')).toBeLessThanOrEqual(1);
    expect(pass).toBe(true);
    expect(unchecked).toEqual([]);
    expect(device.allocator.bytes, 'buffers left behind').toBe(before);
  });
});

describe('replayed in its smallest budget, with the same figures', () => {
  it.each(IN_LEAST_BUDGET)('%s', async (name) => {
    await expectSameInLeastBudget(device, name, await resident(name));
  });
});

// Which of them a budget takes block by block (`auto`), the smallest budgets show.
describe('replayed whatever becomes of activations, with the same figures', () => {
  // Three blocks: with sqrt a segment has two. Of 74 rows: slices of 64 and 10.
  const sample = ['sqrt', 'slice'].map((mode) => [mode as ActivationMode, 'gpt2-small-odd'] as const);
  const all = ACTIVATION_MODES.flatMap((mode) => CASES.map((name) => [mode, name] as const));
  it.each(EVERY_CASE ? all : sample)('--activations %s: %s', async (activations, name) => {
    const { choices, ...figures } = await resident(name);
    const reference = await loadCase(testHost, join(REFERENCE, name));
    const { choices: _, ...found } = await replay(device, reference, { choices, memory: { activations } });
    expect(found).toEqual(figures);
    expect(found.worst).toBeLessThanOrEqual(1);
  });
});

const FEW = ['gpt2-accum4-ignore'];

describe.runIf(THOROUGH)(
  'replayed with AdamW on the host, and either with chunks updated inside the backward pass',
  () => {
    it.each(EVERY_CASE ? CASES : FEW)('%s', async (name) => {
      const { choices, ...onGPU } = await resident(name);
      const reference = await loadCase(testHost, join(REFERENCE, name));
      const replayed = async (optimizerDevice: OptimizerDevice, update: Update) => {
        const how = { choices, optimizerDevice, update, threads: testHost.threads };
        const { choices: _, ...found } = await replay(device, reference, how);
        return found;
      };
      const onHost = await replayed('cpu', 'at-end');
      expect(onHost.worst).toBeLessThanOrEqual(1);
      expect([onHost.pass, onHost.unchecked]).toEqual([true, []]);
      expect(await replayed('gpu', 'in-backward')).toEqual(onGPU);
      expect(await replayed('cpu', 'in-backward')).toEqual(onHost);
    });
  },
);

/** The reference as an outcome of its own: all errors are 0. */
const perfect = (reference: ReferenceCase) =>
  structuredClone({
    lr: reference.lr,
    loss: reference.loss,
    gradNorm: reference.gradNorm,
    finalLoss: reference.finalLoss,
    gradients: reference.gradients,
    final: reference.final,
    activations: reference.activations,
  });

describe('judging', () => {
  it('finds no error in the reference itself', async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-tiny'));
    expect(compareWithReference(reference, perfect(reference))).toMatchObject({ worst: 0, pass: true, unchecked: [] });
  });

  it('lets the key third of c_attn.bias drift within its own limits only', async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-tiny'));
    const { width } = reference.model.shape;
    const moved = (name: string, i: number, by: number) => {
      const outcome = perfect(reference);
      const values = entry(outcome.final, name);
      values[i]! += by;
      return compareWithReference(reference, outcome);
    };
    const bias = 'h.0.attn.c_attn.bias';
    const drift = entry(reference.tolerance, 'kbias_final_drift');
    expect(moved(bias, width, drift / 2).worst).toBeCloseTo(0.5, 2);
    expect(moved(bias, 2 * width - 1, 2 * drift * ALLOWED_MULTIPLE).pass).toBe(false);
    expect(moved(bias, width - 1, drift / 2).pass).toBe(false);
    expect(moved(bias, 2 * width, drift / 2).pass).toBe(false);
  });

  it("lets the final biases of Qwen's keys drift within a limit of their own, and their gradients as any other", async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'qwen2'));
    const name = 'model.layers.1.self_attn.k_proj.bias';
    const drift = entry(reference.tolerance, 'kbias_final_drift');
    const drifted = perfect(reference);
    entry(drifted.final, name)[3]! += drift / 2;
    const { metrics, worst } = compareWithReference(reference, drifted);
    expect(worst).toBeCloseTo(0.5, 2);
    expect(metrics.get('kbias_final_drift')?.where).toBe(name);
    expect(metrics.get('final_max_abs')?.multiple).toBe(0);
    const wrong = perfect(reference);
    const gradient = entry(entry(wrong.gradients, 0), name);
    gradient.set(gradient.map((value) => 1.001 * value));
    expect(compareWithReference(reference, wrong).metrics.get('grads_rel_fro')).toMatchObject({ where: name });
    expect(compareWithReference(reference, wrong).pass).toBe(false);
  });

  it('wants exact zeros where the reference gradient is zero', async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-tiny'));
    const outcome = perfect(reference);
    const name = 'h.0.ln_1.weight';
    entry(entry(reference.gradients, 0), name).fill(0);
    entry(entry(outcome.gradients, 0), name).fill(0);
    expect(compareWithReference(reference, outcome).pass).toBe(true);
    entry(entry(outcome.gradients, 0), name)[3] = 1e-30;
    expect(compareWithReference(reference, outcome).metrics.get('grads_rel_fro')).toMatchObject({
      multiple: Infinity,
      where: name,
    });
  });

  it('fails NaN wherever it is', async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-accum4'));
    const spoil: ((outcome: ReturnType<typeof perfect>) => void)[] = [
      (o) => ((o.loss as number[])[7] = NaN),
      (o) => ((o.gradNorm as number[])[19] = NaN),
      (o) => ((o.lr as number[])[1] = NaN),
      (o) => ((o as { finalLoss: number }).finalLoss = NaN),
      (o) => (entry(entry(o.gradients, 0), 'wte.weight')[5] = NaN),
      (o) => (entry(o.final, 'h.1.attn.c_attn.bias')[reference.model.shape.width] = NaN),
      (o) => (entry(o.final, 'wpe.weight')[0] = NaN),
      (o) => (entry(o.activations, 'logits')[0] = NaN),
    ];
    for (const change of spoil) {
      const outcome = perfect(reference);
      change(outcome);
      expect(compareWithReference(reference, outcome), String(change)).toMatchObject({ worst: Infinity, pass: false });
    }
  });

  it('takes the larger tolerance for logits after training', async () => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-tiny'));
    const tolerance = new Map([...reference.tolerance, ['final_logits_max_abs', 1]]);
    const activations = new Map(reference.activations).set('final_logits', new Float32Array([1, 2]));
    const changed = { ...reference, tolerance, activations };
    const outcome = perfect(changed);
    entry(outcome.activations, 'final_logits')[1] = 2.5;
    expect(compareWithReference(changed, outcome)).toMatchObject({ worst: 0.5, unchecked: [] });
  });
});

describe.runIf(THOROUGH)('the replay notices', () => {
  const wrong: [string, (reference: ReferenceCase) => Partial<ReferenceCase>][] = Object.entries({
    'another beta2': ({ optimizer }) => ({ optimizer: { ...optimizer, beta2: 0.999 } }),
    'no weight decay': ({ optimizer }) => ({ optimizer: { ...optimizer, weightDecay: 0 } }),
    'no clipping': ({ optimizer }) => ({ optimizer: { ...optimizer, clip: 0 } }),
    'another warm-up': ({ schedule }) => ({ schedule: { ...schedule, warmup: 4 } }),
    'micro-batches in another step': ({ batches }) => ({ batches: batches.toReversed() }),
  });
  it.each(wrong.filter((_, i) => EVERY_CASE || i % 2 === 0))('%s', async (_, change) => {
    const reference = await loadCase(testHost, join(REFERENCE, 'gpt2-stdinit'));
    const { worst, pass } = await replay(device, { ...reference, ...change(reference) });
    expect(pass).toBe(false);
    expect(worst).toBeGreaterThan(ALLOWED_MULTIPLE);
  });
});
