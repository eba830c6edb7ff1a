// Encoders, end to end: BERT learns what is hidden in text, ViT classes of images; both are stopped and gone on with, and
// write no text.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { here } from './here.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-encoders-'));
const at = (...names: string[]) => path.join(folder, ...names);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const SHAPE = [
  '--layers',
  '1',
  '--width',
  '16',
  '--heads',
  '2',
  '--batch',
  '4',
  '--eval-windows',
  '32',
  '--lr',
  '3e-3',
];
const SHORT = ['--warmup', '2', '--steps', '6', '--save-every', '2'];
const KINDS: [string, string[]][] = [
  ['bert', ['--context', '24']],
  ['vit', ['--data', 'synthetic', '--patch', '8']],
];

test.each(KINDS)(
  '%s: a run that was stopped and gone on with ends in the same bits, and writes no text',
  async (model, own) => {
    const train = (out: string, ...more: string[]) =>
      here(['train', '--model', model, ...own, ...SHAPE, ...SHORT, '--out', at(out), ...more], { cwd: folder });
    const whole = await train(`${model}-whole`);
    expect(whole.status, whole.stderr).toBe(0);
    expect(whole.stdout).not.toContain('holdfast generate');
    expect(whole.stdout.includes('accuracy')).toBe(model === 'vit');
    const first = await train(`${model}-parts`, '--until', '3');
    expect(first.status, first.stderr).toBe(0);
    const rest = await here(['train', '--resume', '--out', at(`${model}-parts`)], { cwd: folder });
    expect(rest.status, rest.stderr).toBe(0);
    const weights = (run: string) => readFileSync(at(run, 'checkpoint-6', 'model.safetensors'));
    expect(weights(`${model}-parts`).equals(weights(`${model}-whole`))).toBe(true);
    // A classifier is measured by what it tells right.
    for (const command of model === 'vit' ? ['generate'] : ['generate', 'eval']) {
      const data = command === 'eval' ? ['--data', at(`${model}-whole`, 'report.html')] : [];
      const { status, stderr } = await here([command, at(`${model}-whole`), ...data], { cwd: folder });
      expect([status, stderr.split('\n').length], stderr).toEqual([2, 1]);
      expect(stderr).toContain(
        model === 'vit' ? 'tells images apart, and reads no text' : 'a bert model writes no text',
      );
    }
  },
);

test('flags that are of something else are refused in one line', async () => {
  const refused: [string[], string][] = [
    [['--model', 'vit'], 'no images are named; name the folder of MNIST'],
    [
      ['--model', 'vit', '--data', 'synthetic', '--patch', '5'],
      '--patch 5: the images are of 32 x 32; it must divide both',
    ],
    [['--model', 'vit', '--data', 'synthetic', '--context', '9'], '--context: an image is as long as its patches say'],
    [['--model', 'bert', '--patch', '4'], '--patch: is of images, and the model reads text'],
    [['--model', 'bert', '--task', 'addition'], 'BERT writes no text: a task cannot be learned by it'],
  ];
  for (const [flags, message] of refused) {
    const { status, stderr } = await here(['train', ...flags, '--out', at('none')], { cwd: folder });
    expect([status, stderr.split('\n').length], stderr).toEqual([2, 1]);
    expect(stderr).toContain(message);
  }
});

test('ViT tells classes of images that it has not seen', async () => {
  const flags = ['--steps', '120', '--batch', '16', '--width', '32', '--patch', '8', '--layers', '1', '--warmup', '10'];
  const out = ['--out', at('learned'), '--lr', '2e-3', '--json'];
  const run = await here(['train', '--model', 'vit', '--data', 'synthetic', ...flags, ...out], { cwd: folder });
  expect(run.status, run.stderr).toBe(0);
  const { summary } = JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '') as { summary: { accuracy: number } };
  expect(summary.accuracy).toBeGreaterThan(0.5);
});
