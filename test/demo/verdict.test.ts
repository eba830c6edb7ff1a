// What the page says of a model before anything of it is read: that it fits, or why not and what would, in one sentence.

import { expect, test } from 'vitest';
import { verdictOn } from '../../demo/verdict.ts';
import { estimateRun } from '../../src/browser/estimate.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { fineTuningSettings } from '../../src/train/run/fine-tuning.ts';

const config = configOfShape({ family: 'llama', vocabulary: 64, context: 32, layers: 1, width: 16, heads: 2 });
const lora = { rank: 2, alpha: 4, targets: ['all-linear'], dropout: 0, rslora: false };
const ROOM = { quota: 1e9, used: 1e6, persisted: true };
const MODEL = 20_000;

function judged(
  change: Partial<Parameters<typeof fineTuningSettings>[0]>,
  { gpu, disk, free }: { gpu?: number; disk?: number; free?: number } = {},
) {
  const settings = fineTuningSettings({ config, batch: 2, seq: 16, steps: 200, saveEvery: 50, ...change });
  const memory = { ...(gpu !== undefined && { gpu }), ...(disk !== undefined && { disk }) };
  const room = free === undefined ? ROOM : { ...ROOM, quota: ROOM.used + free };
  const estimate = { ...estimateRun(settings, memory), room };
  return { estimate, ...verdictOn(estimate, memory, { ...settings, toKeep: MODEL, reads: true }) };
}

test('what fits: within no budget, within one of just the smallest, and into just the room that is free', () => {
  const { estimate, ...open } = judged({ lora });
  expect(open).toMatchObject({
    fits: true,
    text: expect.stringMatching(/^It fits: it takes [\d.]+ [KM]B of GPU memory/),
  });
  expect(estimate.checkpoints).toBe(3 * estimate.trained * 12);
  expect(judged({ lora, saveEvery: 0 }).estimate.checkpoints).toBe(estimate.trained * 12);
  const least = judged({ lora }, { gpu: estimate.smallest, free: MODEL + estimate.checkpoints });
  expect(least.fits).toBe(true);
  expect(least.estimate.problem).toBeUndefined();
  expect(least.text).toMatch(
    /^It fits: the GPU budget is ([\d.]+ [KM]B), and \1 are enough; on disk it takes ([\d.]+ [KM]B) at most of \2 that are free\.$/,
  );
});

test('a byte of budget too little: a larger one, LoRA where all of it trains, a smaller batch or context', () => {
  for (const way of [{}, { lora }, { batch: 1 }]) {
    const { smallest } = judged(way).estimate;
    const { fits, text, estimate } = judged(way, { gpu: smallest - 1 });
    expect(fits).toBe(false);
    expect(estimate.problem).toContain('too little');
    expect(text).toMatch(
      /^It does not fit: the GPU budget is [\d.]+ [KM]B, and [\d.]+ [KM]B is the least that works: /,
    );
    expect(text.includes('LoRA')).toBe(!('lora' in way));
    expect(text.includes('a smaller batch')).toBe(!('batch' in way));
    expect(text).toMatch(/raise the budget.* or use a shorter context\.$/);
    expect(text).not.toContain('disk');
  }
});

test('a byte of room too little: the model, its checkpoints and the disk tier count', () => {
  const needs = MODEL + judged({}).estimate.checkpoints;
  const full = judged({}, { free: needs - 1 });
  expect(full.fits).toBe(false);
  expect(full.text).toMatch(
    /^It does not fit: on disk it takes up to [\d.]+ [KM]B, and this site may keep [\d.]+ [KM]B more: train by LoRA, remove runs or make room on the disk\.$/,
  );
  const { smallest, modelData } = full.estimate;
  const tier = { gpu: smallest, disk: 5e9 };
  expect(judged({}, { ...tier, free: needs + modelData }).fits).toBe(true);
  expect(judged({}, { ...tier, free: needs + modelData - 1 }).text).toMatch(
    /give the disk tier less, remove runs or make room/,
  );
  const both = judged({}, { gpu: smallest - 1, free: 0 });
  expect(both.text).toMatch(
    /is the least that works; on disk it takes up to [\d.]+ [KM]B, and this site may keep 0 B more: train by LoRA, raise the budget, use a smaller batch/,
  );
});

test('one of the sizes of the page is told from a model that could be trained by LoRA', () => {
  const settings = fineTuningSettings({ config, batch: 2, seq: 16, steps: 200, saveEvery: 50 });
  const estimate = { ...estimateRun(settings, {}), room: { ...ROOM, quota: ROOM.used } };
  const { text } = verdictOn(estimate, {}, { ...settings, toKeep: 0, reads: true, isPreset: true });
  expect(text).toMatch(/0 B more: choose a smaller model, remove runs or make room on the disk\.$/);
});
