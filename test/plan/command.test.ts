// `holdfast plan` from its flags to its text, with no GPU and no process of its own.

import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { estimateRun, planHere } from '../../src/browser/estimate.ts';
import { planCommand } from '../../src/cli/plan.ts';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

async function plan(...args: string[]): Promise<string> {
  let text = '';
  const terminal = { interactive: false, columns: 120, write: (part: string) => (text += part), warn: () => {} };
  const program = new Command().addCommand(planCommand(memoryHost(new MemoryFiles(), { terminal })));
  await program.parseAsync(['plan', ...args], { from: 'user' });
  return text;
}

const SMALL = ['--layers', '2', '--width', '64', '--heads', '4', '--context', '32', '--vocab-size', '1000'];

describe('holdfast plan', () => {
  it('gives the budget, what must move and the bound as JSON', async () => {
    const report = JSON.parse(await plan(...SMALL, '--accumulate', '2', '--json'));
    expect(report.modelDataBytes).toBeGreaterThanOrEqual(16 * report.parameters);
    // Padding in place of tiles, whose dispatches take longer than what they compute.
    expect(report.chunks.waste).toBeLessThan(0.25);
    expect(report.smallestBudget).toBeLessThan(report.budget);
    const { slots, staging, chunks, nonModelBytes } = report;
    const counted = (slots + staging.down + staging.up) * chunks.bytes + nonModelBytes.total;
    expect(report.predictedPeak).toBe(counted);
    expect(counted).toBeLessThanOrEqual(report.budget);
    const { h2d, d2h } = report.bytesPerStep;
    expect((h2d + d2h) / report.bound.lp).toBeCloseTo(report.bound.ratio);
    expect(report.bound.ratio).toBeLessThanOrEqual(1.05);
  });

  it('counts the dispatches of a step: GPT-2 124M at 8 x 256 takes 295', async () => {
    const args = ['--batch', '8', '--context', '256'];
    const { dispatches, moments } = JSON.parse(await plan(...args, '--json'));
    expect(dispatches.unlimited).toBe(295);
    // Within a budget chunks are smaller, and cut more.
    expect(dispatches.step).toBeGreaterThan(295);
    expect(dispatches.step).toBeLessThanOrEqual(moments);
    expect(await plan(...args)).toContain(`${dispatches.step}  dispatches, 295 without a budget\n`);
  });

  it('says where no step is kept against the loss of a device, by rates typical of a GPU', async () => {
    const within = (...flags: string[]) => plan(...SMALL, '--batch', '1', '--gpu-memory', '100MB', ...flags);
    const lost = 'a lost GPU goes back to the last checkpoint';
    expect(await within()).toContain(
      `${lost}: no plan was found that keeps each step below (--recovery step) in at most 5 % more time`,
    );
    const kept = await within('--recovery', 'step');
    expect(kept).toMatch(/down against the loss of a device\n/);
    for (const text of [kept, await within('--recovery', 'checkpoint')]) expect(text).not.toContain(lost);
  });

  it('counts what a run holds for its samples', async () => {
    const config = configOfShape({
      ...{ family: 'gpt2', layers: 2, width: 64, heads: 4, context: 32, vocabulary: 1000, tied: false },
    });
    const budgets: number[] = [];
    for (const sampleTokens of [defaultSettings().sampleTokens, 0]) {
      const run = defaultSettings({ config, data: [], batch: 1, seq: 32, sampleTokens });
      const { smallest } = estimateRun(run, {});
      const flags = sampleTokens === 0 ? ['--sample-tokens', '0'] : [];
      expect(JSON.parse(await plan(...SMALL, '--json', ...flags)).smallestBudget).toBe(smallest);
      budgets.push(smallest);
    }
    // Keys and values of 32 positions in 2 layers, at least.
    expect((budgets[0] ?? 0) - (budgets[1] ?? 0)).toBeGreaterThanOrEqual(2 * 2 * 32 * 64 * 4);
  });

  it.each(FAMILY_NAMES)('plans %s', async (family) => {
    const blocks = ['--layers', '1', '--width', '64', '--heads', '4'];
    const text = ['--context', '32', '--vocab-size', '500'];
    const report = JSON.parse(await plan(...blocks, ...(family === 'vit' ? [] : text), '--model', family, '--json'));
    // As train makes it of these flags.
    const config = configOfShape({ family, layers: 1, width: 64, heads: 4, context: 32, vocabulary: 500 });
    expect(report.parameters).toBe(sizeOf(config).parameters);
    expect(report.smallestBudget).toBeLessThan(report.budget);
  });

  it('counts an image as the rows that it is, and takes no length of text for it', async () => {
    const vit = (...args: string[]) => plan('--model', 'vit', '--layers', '1', '--width', '8', '--heads', '2', ...args);
    expect(await vit()).toMatch(
      /^vit, 1 layer of width 8, images of 32 x 32 in patches of 4 x 4: .* batch 1 x 65 \(/ms,
    );
    expect(await vit('--patch', '16')).toMatch(/in patches of 16 x 16: .* batch 1 x 5 \(/ms);
    await expect(vit('--patch', '5')).rejects.toThrow('--patch 5: the images are of 32 x 32; it must divide both');
    await expect(vit('--context', '65')).rejects.toThrow('--context: an image is as long as its patches say');
    await expect(vit('--vocab-size', '256')).rejects.toThrow('--vocab-size: images have no tokens');
    await expect(plan(...SMALL, '--patch', '4')).rejects.toThrow('--patch: is of images, and the model reads text');
  });

  it('moves nothing when all fits, and more the less fits', async () => {
    const moved = async (budget: string) => {
      const { bytesPerStep } = JSON.parse(await plan(...SMALL, '--json', '--gpu-memory', budget));
      return bytesPerStep.h2d + bytesPerStep.d2h;
    };
    expect(await moved('100MB')).toBe(0);
    const [half, tenth] = [await moved('1.7MB'), await moved('700KB')];
    expect(half).toBeGreaterThan(0);
    expect(tenth).toBeGreaterThan(half);
  });

  it('with the optimizer on the host moves gradients down and parameters up, once, and keeps no moments on the GPU', async () => {
    const report = JSON.parse(await plan(...SMALL, '--json', '--gpu-memory', '100MB', '--optimizer-device', 'cpu'));
    const { bytes, perKind } = report.chunks;
    expect(report.modelDataBytes).toBe(2 * perKind * bytes);
    expect(report.bytesPerStep).toMatchObject({ h2d: perKind * bytes, d2h: perKind * bytes });
    expect(report.bound.ratio).toBeCloseTo(1);
    const budget = (...args: string[]) => plan(...SMALL, '--optimizer-device', 'cpu', ...args);
    // In sixteen bits two bytes a parameter each way: chunks hold two of what f32 has one.
    for (const dtype of ['bf16', 'f16']) {
      const narrow = JSON.parse(await budget('--json', '--gpu-memory', '100MB', '--dtype', dtype));
      const half = Math.ceil(narrow.chunks.perKind / 2) * narrow.chunks.bytes;
      expect(narrow.bytesPerStep, dtype).toMatchObject({ h2d: half, d2h: half });
      expect(narrow.bound.ratio).toBeCloseTo(1);
    }
    await expect(budget('--recovery', 'checkpoint')).rejects.toThrow('leave out --recovery');
    await expect(budget('--compare')).rejects.toThrow('policies are compared with the optimizer on the GPU');
  });

  it('with an optimizer on either device says where the split is, and refuses it where nothing is chosen', async () => {
    const auto = (...args: string[]) => plan(...SMALL, '--optimizer-device', 'auto', ...args);
    const all = JSON.parse(await plan(...SMALL, '--json', '--gpu-memory', '100MB', '--recovery', 'checkpoint'));
    const roomy = JSON.parse(await auto('--json', '--gpu-memory', '100MB', '--recovery', 'checkpoint'));
    expect(roomy.optimizerSplit).toBeGreaterThan(0);
    expect(roomy).toMatchObject({ modelDataBytes: all.modelDataBytes, bytesPerStep: { h2d: 0, d2h: 0 } });
    expect(await auto('--gpu-memory', '100MB', '--recovery', 'checkpoint')).toContain(
      'AdamW on the GPU for all that trains',
    );
    const { smallestBudget } = JSON.parse(await plan(...SMALL, '--json', '--optimizer-device', 'cpu'));
    const { optimizerSplit } = JSON.parse(await auto('--json', '--gpu-memory', String(smallestBudget)));
    expect(optimizerSplit).toBe(0);
    expect(await auto('--gpu-memory', String(smallestBudget))).toContain('AdamW on the host for all that trains');
    for (const args of [
      ['--hardware', 'rtx-3060'],
      ['--ranks', '2'],
    ])
      await expect(auto(...args)).rejects.toThrow('--optimizer-device auto: is chosen within the budget of one rank');
    await expect(auto('--compare')).rejects.toThrow('policies are compared with the optimizer on the GPU');
  });

  it('a page says the same figures of the same run, within any memory', async () => {
    const config = configOfShape({
      ...{ family: 'gpt2', layers: 1, width: 64, heads: 4, context: 32, vocabulary: 500 },
    });
    const settings = defaultSettings({ config, batch: 1 });
    const tiny = ['--layers', '1', '--width', '64', '--heads', '4', '--context', '32', '--vocab-size', '500'];
    const flags = {
      gpu: '--gpu-memory',
      host: '--host-memory',
      disk: '--disk-limit',
      policy: '--policy',
    } as const;
    for (const [memory, changes, ...args] of [
      [{ gpu: 9e5 }, {}],
      [{ gpu: 6e5, host: 4e5, disk: 5e6 }, {}, '--disk', 'tiers'],
      [{ gpu: 9e5, policy: 'LRU' }, { dtype: 'bf16' }, '--dtype', 'bf16'],
      [{ gpu: 9e5 }, { update: 'in-backward', clip: 0 }, '--update', 'in-backward', '--clip', '0'],
    ] as const) {
      const given = Object.entries(memory).flatMap(([name, value]) => [
        flags[name as keyof typeof flags],
        String(value).toLowerCase(),
      ]);
      const said = JSON.parse(await plan(...tiny, ...given, ...args, '--json'));
      const {
        comfortable = null,
        smallest,
        unlimited,
        tiers,
        links,
        flops,
      } = (await planHere({ ...settings, ...changes }, memory)).plan;
      const of = `${given} ${args}`;
      expect(said, of).toMatchObject({
        comfortableBudget: comfortable,
        smallestBudget: smallest,
        unlimited,
        tiers,
        links,
        flops,
      });
      const { fit, ...estimate } = estimateRun({ ...settings, ...changes }, memory);
      expect(estimate, of).toMatchObject({ smallest, unlimited, parameters: said.parameters, trained: said.trained });
      const { predictedPeak: peak, slots, nonModelBytes, chunks } = said;
      expect(fit, of).toMatchObject({ peak, slots, activations: nonModelBytes.arenas, chunkBytes: chunks.bytes });
    }
    const host = { gpu: 6e5, host: 1e5 };
    const tooLittle = 'lie below the GPU, and there are 100 KB of host memory';
    await expect(planHere(settings, host)).rejects.toThrow(tooLittle);
    expect(estimateRun(settings, host).problem).toContain(tooLittle);
  });

  it('an estimate is of the width and of the device that are asked for, one after the other', async () => {
    const config = configOfShape({
      ...{ family: 'gpt2', layers: 2, width: 64, heads: 4, context: 32, vocabulary: 1000, tied: false },
    });
    const settings = defaultSettings({ config, data: [], batch: 1, seq: 32, sampleTokens: 0 });
    const flags = [[], ['--dtype', 'bf16'], ['--optimizer-device', 'cpu'], ['--activation-dtype', 'bf16']] as const;
    const changes = [{}, { dtype: 'bf16' }, { optimizerDevice: 'cpu' }, { activationDtype: 'bf16' }] as const;
    const found: number[] = [];
    for (const [i, change] of changes.entries()) {
      const { smallest, unlimited } = estimateRun({ ...settings, ...change }, {});
      const asked = [...SMALL, '--sample-tokens', '0', ...(flags[i] ?? []), '--json'];
      expect(JSON.parse(await plan(...asked)).smallestBudget, `${asked}`).toBe(smallest);
      found.push(unlimited);
    }
    expect(new Set(found).size).toBe(found.length);
    // A split is chosen within the budget.
    const auto = { ...settings, optimizerDevice: 'auto' } as const;
    expect(estimateRun(auto, {}).unlimited).toBe(found[0]);
    expect(estimateRun(auto, { gpu: 1 }).smallest).toBe(
      estimateRun({ ...settings, optimizerDevice: 'cpu' }, {}).smallest,
    );
  });

  it('refuses too small a budget with the one that would do, which does', async () => {
    const error = await plan(...SMALL, '--gpu-memory', '1KB').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HoldfastError);
    const { message } = error as HoldfastError;
    expect(message).toMatch(/--context 16 needs/);
    const [, smallest = ''] = /(\d+) bytes \(/.exec(message) ?? [];
    const report = JSON.parse(await plan(...SMALL, '--json', '--gpu-memory', smallest));
    expect(report.budget).toBe(Number(smallest));
    await expect(plan(...SMALL, '--gpu-memory', String(Number(smallest) - 1))).rejects.toThrow(smallest);
  });

  it('does with activations what it is told to, and by itself what the budget has room for', async () => {
    const planned = async (...args: string[]) => JSON.parse(await plan(...SMALL, '--json', ...args));
    const only = (modes: string[]) => expect(new Set(modes).size).toBe(1);
    const all = await planned('--activations', 'keep');
    expect(all.activations).toMatchObject({ recomputedFlops: 0, share: 0, offloadedBytes: 0 });
    const again = await planned('--activations', 'recompute');
    only(again.activations.modes);
    expect(again.activations.share).toBeGreaterThan(0.01);
    const moved = await planned('--activations', 'offload');
    only(moved.activations.modes);
    expect(moved.activations.offloadedBytes).toBeGreaterThan(0);
    for (const { smallestBudget } of [again, moved]) expect(smallestBudget).toBeLessThan(all.smallestBudget);
    const within = (bytes: number) => planned('--gpu-memory', String(bytes));
    const { modes, share, offloadedBytes } = (await within(all.smallestBudget - 1)).activations;
    expect(modes).not.toEqual(all.activations.modes);
    expect(share + offloadedBytes).toBeGreaterThan(0);
    const least = Math.min(moved.smallestBudget, (await planned('--activations', 'offload-all')).smallestBudget);
    expect((await within(all.smallestBudget)).smallestBudget).toBe(least);
  });

  it('prints for people too, down to each moment', async () => {
    const text = await plan(...SMALL, '--gpu-memory', '1.7MB', '--print', 'program,layout,trace,plan');
    expect(text).toMatch(/model data: parameters, gradients and two moments in f32/);
    expect(text).toMatch(/x the least of any schedule/);
    expect(text).toMatch(/^ +\d+ matmul h\.0\.attn\.c_attn.*: a=/m);
    expect(text).toMatch(/^ +\d+ {2}.*h\.0\.attn\.c_attn\.weight/m);
    expect(text).toMatch(/^ +\d+ .*: parameter \d+.*\(non-model \d+ B\)$/m);
    expect(text).toMatch(/^ +\d+ (store|drop|load|claim) (parameter|gradient|moment1|moment2) \d+/m);
  });
});
