// The lines that end a run: what it took, in the words of `plan`.

import { expect, test } from 'vitest';
import type { TrainFlags } from '../../src/cli/train/flags.ts';
import { goOnCommand } from '../../src/cli/train/go-on.ts';
import { describeRun } from '../../src/cli/train/summary.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';

const summary = {
  ...{ steps: 3, finalLoss: 1.25, validationLoss: Number.NaN, tokensPerSecond: 4321, parameters: 1234 },
  ...{ peakGpuBytes: 8_230_000, activations: { arenas: 5_200_000, alive: 5_100_000 }, skippedSteps: 0 },
  ...{ adapter: 'an adapter', checkpoint: 'run/step-3', interrupted: false },
};

test('the memory of activations stands beside its liveness bound', () => {
  expect(describeRun(summary, 'run', defaultSettings(), 'holdfast')).toContain(
    '4,321 tokens/s, 1,234 parameters, 8.23 MB of GPU memory, 5.20 MB of it for activations (liveness bound 5.10 MB)',
  );
});

test('what goes on with a run has the flags that no checkpoint keeps, as they are typed', () => {
  const flags = { adapter: 'llvm pipe', gpuMemory: 300_000, policy: 'OPT', prefetch: false, steps: 20 } as TrainFlags;
  const command = (...given: string[]) => goOnCommand('my run', flags, (name) => given.includes(name));
  expect(command('steps')).toBe("holdfast train --resume --out 'my run'");
  expect(command('adapter', 'gpuMemory', 'policy', 'prefetch', 'steps')).toBe(
    "holdfast train --resume --out 'my run' --adapter 'llvm pipe' --gpu-memory 300000 --policy opt --no-prefetch",
  );
});

test('a prompt of the default corpus is for what learned from it', () => {
  const lineOf = (data: string[]) =>
    describeRun({ ...summary, validationLoss: 1 }, 'run', { ...defaultSettings(), data, steps: 3 }, 'holdfast').at(-1);
  expect(lineOf([])).toBe('write:   holdfast generate run --prompt "interface "');
  expect(lineOf(['notes.txt'])).toBe('write:   holdfast generate run');
});

test('a run that was at its end has no speed', () => {
  const lines = describeRun({ ...summary, tokensPerSecond: 0 }, 'run', defaultSettings(), 'holdfast');
  expect(lines.find((line) => line.includes('parameters'))).toMatch(/^1,234 parameters, 8.23 MB/);
});

test('a run that was ended before its last step says how to go on, also one of epochs', () => {
  const lines = (settings: { steps: number; epochs?: number }) =>
    describeRun({ ...summary, validationLoss: 1 }, 'run', { ...defaultSettings(), ...settings }, 'holdfast train');
  for (const epochs of [{}, { epochs: 2 }]) {
    expect(lines({ ...epochs, steps: 27 })).toContain('go on:   holdfast train');
    expect(lines({ ...epochs, steps: 3 })).not.toContain('go on:   holdfast train');
  }
});

test('a validation of before the end says behind which step it was, and so does its accuracy', () => {
  const lines = (validationStep: number) =>
    describeRun({ ...summary, validationLoss: 1, validationStep, accuracy: 0.5 }, 'run', defaultSettings(), 'holdfast');
  expect(lines(2)).toEqual(
    expect.arrayContaining([
      'loss 1.2500, validation 1.0000 (after step 2) nats per token',
      'accuracy 50.0 % (after step 2)',
    ]),
  );
  expect(lines(3)).toEqual(
    expect.arrayContaining(['loss 1.2500, validation 1.0000 nats per token', 'accuracy 50.0 %']),
  );
});

test('one step is a step', () => {
  expect(describeRun({ ...summary, validationLoss: 1, steps: 1 }, 'run', defaultSettings(), 'holdfast')[0]).toBe(
    'done after 1 step on an adapter',
  );
});
