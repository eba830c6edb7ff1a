// Every case of the reference, replayed on the adapter under test: within the tolerances themselves, without
// the allowance for what WGSL would permit. And the replay notices: a wrong optimizer, a wrong gradient, NaN.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { parityCommand } from '../../src/cli/parity.ts';
import type { Device } from '../../src/gpu/device.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { ALLOWED_MULTIPLE, judge, replay, replayCase } from '../../src/train/parity.ts';
import { loadCase, type ReferenceCase } from '../../src/train/reference-case.ts';
import { entry } from '../entry.ts';
import { ADAPTER, testDevice } from '../harness.ts';

const FOLDER = 'test/fixtures/reference';
const cases = readdirSync(FOLDER, { withFileTypes: true }).filter(
  (entry) => entry.isDirectory() && entry.name !== 'ops',
);
const host = headlessHost();
let device: Device;

beforeAll(async () => {
  device = await testDevice();
});

describe('replayed cases', () => {
  it.each(cases.map(({ name }) => name))('%s', async (name) => {
    const before = device.allocator.bytes;
    const { metrics, worst, pass, unchecked } = await replayCase(host, device, join(FOLDER, name));
    const table = [...metrics].map(([metric, { multiple, where }]) => `${metric} ${multiple.toFixed(3)} ${where}`);
    if (process.env['HOLDFAST_VERBOSE']) console.log(`${name}\n  ${table.join('\n  ')}`);
    expect(worst, table.join('\n')).toBeLessThanOrEqual(1);
    expect(pass).toBe(true);
    expect(unchecked).toEqual([]);
    expect(device.allocator.bytes, 'buffers left behind').toBe(before);
  });
});

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
    const reference = await loadCase(host, join(FOLDER, 'gpt2-tiny'));
    expect(judge(reference, perfect(reference))).toMatchObject({ worst: 0, pass: true, unchecked: [] });
  });

  it('lets the key third of c_attn.bias drift within its own limits only', async () => {
    const reference = await loadCase(host, join(FOLDER, 'gpt2-tiny'));
    const { width } = reference.model.shape;
    const moved = (name: string, i: number, by: number) => {
      const outcome = perfect(reference);
      entry(outcome.final, name)[i] += by;
      return judge(reference, outcome);
    };
    const bias = 'h.0.attn.c_attn.bias';
    const drift = entry(reference.tolerance, 'kbias_final_drift');
    expect(moved(bias, width, drift / 2).worst).toBeCloseTo(0.5, 2);
    expect(moved(bias, 2 * width - 1, 2 * drift * ALLOWED_MULTIPLE).pass).toBe(false);
    expect(moved(bias, width - 1, drift / 2).pass).toBe(false);
    expect(moved(bias, 2 * width, drift / 2).pass).toBe(false);
  });

  it('wants exact zeros where the reference gradient is zero', async () => {
    const reference = await loadCase(host, join(FOLDER, 'gpt2-tiny'));
    const outcome = perfect(reference);
    const name = 'h.0.ln_1.weight';
    entry(entry(reference.gradients, 0), name).fill(0);
    entry(entry(outcome.gradients, 0), name).fill(0);
    expect(judge(reference, outcome).pass).toBe(true);
    entry(entry(outcome.gradients, 0), name)[3] = 1e-30;
    expect(judge(reference, outcome).metrics.get('grads_rel_fro')).toMatchObject({ multiple: Infinity, where: name });
  });

  it('fails NaN wherever it is', async () => {
    const reference = await loadCase(host, join(FOLDER, 'gpt2-accum4'));
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
      expect(judge(reference, outcome), String(change)).toMatchObject({ worst: Infinity, pass: false });
    }
  });

  it('takes the larger tolerance for logits after training', async () => {
    const reference = await loadCase(host, join(FOLDER, 'gpt2-tiny'));
    const tolerance = new Map([...reference.tolerance, ['final_logits_max_abs', 1]]);
    const activations = new Map(reference.activations).set('final_logits', new Float32Array([1, 2]));
    const changed = { ...reference, tolerance, activations };
    const outcome = perfect(changed);
    entry(outcome.activations, 'final_logits')[1] = 2.5;
    expect(judge(changed, outcome)).toMatchObject({ worst: 0.5, unchecked: [] });
  });
});

describe('the replay notices', () => {
  const wrong: Record<string, (reference: ReferenceCase) => Partial<ReferenceCase>> = {
    'another beta2': ({ optimizer }) => ({ optimizer: { ...optimizer, beta2: 0.999 } }),
    'no weight decay': ({ optimizer }) => ({ optimizer: { ...optimizer, weightDecay: 0 } }),
    'no clipping': ({ optimizer }) => ({ optimizer: { ...optimizer, clip: 0 } }),
    'another warm-up': ({ schedule }) => ({ schedule: { ...schedule, warmup: 4 } }),
    'micro-batches in another step': ({ batches }) => ({ batches: batches.toReversed() }),
  };
  it.each(Object.keys(wrong))('%s', async (name) => {
    const reference = await loadCase(host, join(FOLDER, 'gpt2-stdinit'));
    const { worst, pass } = await replay(device, { ...reference, ...wrong[name](reference) });
    expect(pass).toBe(false);
    expect(worst).toBeGreaterThan(ALLOWED_MULTIPLE);
  });
});

describe('holdfast parity', () => {
  async function run(...args: string[]) {
    const out: string[] = [];
    const statuses: number[] = [];
    const terminal = { ...host.terminal, write: (text: string) => void out.push(text) };
    // A cache that cannot be written, so that the choices of this run meet no other.
    const quiet = { ...host, terminal, cacheFolder: '/dev/null/none' };
    const command = parityCommand(quiet, (status) => void statuses.push(status));
    await command.parseAsync([...args, '--adapter', ADAPTER], { from: 'user' });
    expect(statuses).toHaveLength(1);
    return { out: out.join(''), status: statuses[0] };
  }

  it('prints one JSON object a line', async () => {
    const { out, status } = await run(join(FOLDER, 'gpt2-accum4-ignore'), '--json');
    expect(status).toBe(0);
    expect(out.endsWith('}\n')).toBe(true);
    const result = JSON.parse(out);
    expect(Object.keys(result)).toEqual(['case', 'metrics', 'worst', 'pass']);
    expect(result).toMatchObject({ case: 'gpt2-accum4-ignore', pass: true });
    expect(result.worst).toBe(
      Math.max(...Object.values<{ multiple: number }>(result.metrics).map(({ multiple }) => multiple)),
    );
    expect(result.metrics.loss).toMatchObject({ tolerance: 2e-6, multiple: result.metrics.loss.value / 2e-6 });
  });

  it('prints tables, and refuses what is no case', async () => {
    const { out, status } = await run(join(FOLDER, 'gpt2-stdinit'));
    expect(status).toBe(0);
    expect(out).toMatch(/gpt2-stdinit: pass, worst 0\.\d{3} tolerances/);
    expect(out).toMatch(/^> \w+ .* 0\.\d+/m);
    await expect(run('test/kernels')).rejects.toThrow(/test\/kernels has no ref\.json/);
    await expect(run('nowhere')).rejects.toThrow(/nowhere is not there/);
  });
});
