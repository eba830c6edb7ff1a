// `holdfast plan --compare --activations`: the policies of the literature for activations beside this project's own, on one
// machine; what holds of them whatever the machine is.

import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { planCommand } from '../../src/cli/plan.ts';
import { ACTIVATION_POLICIES } from '../../src/graph/policies/index.ts';
import type { Host } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';

async function plan(...args: string[]): Promise<string> {
  let text = '';
  const terminal = { interactive: false, columns: 120, write: (part: string) => (text += part), warn: () => {} };
  const files = { stat: async () => undefined };
  const program = new Command().exitOverride().addCommand(planCommand({ terminal, files } as unknown as Host));
  await program.parseAsync(['plan', ...args], { from: 'user' });
  return text;
}

const SMALL = [
  '--layers',
  '3',
  '--width',
  '128',
  '--heads',
  '4',
  '--context',
  '64',
  '--batch',
  '8',
  '--vocab-size',
  '500',
];

interface Line {
  name: string;
  smallest: number;
  resident: { bytes: number; seconds: number };
  steps: { budget: number; seconds: number | null; moved: number; activationsMoved: number; recomputed: number }[];
}

const MACHINES = ['apple-m1', 'rtx-4090'];

describe.each(EVERY_CASE ? MACHINES : MACHINES.slice(0, 1))(
  'holdfast plan --compare --activations on %s',
  async (machine) => {
    const text = await plan('--compare', '--activations', ...SMALL, '--hardware', machine, '--json');
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line): Line => JSON.parse(line));
    const own = at(lines, 0);
    const of = (name: string) => lines.find((line) => line.name === name) as Line;

    it('has every policy, and its own first', () => {
      expect(lines.map(({ name }) => name)).toEqual(['Holdfast', ...ACTIVATION_POLICIES.map(({ name }) => name)]);
    });

    it('fits where its smallest budget says, and takes no less than the resident step', () => {
      for (const { name, smallest, steps, resident } of lines) {
        for (const { budget, seconds } of steps) {
          expect(seconds !== null, `${name} in ${budget}`).toBe(smallest <= budget);
          if (seconds !== null) expect(seconds).toBeGreaterThan(0.999 * resident.seconds);
        }
      }
    });

    it('no policy trains in less memory than its own does', () => {
      for (const { name, smallest } of lines) expect(smallest, name).toBeGreaterThanOrEqual(own.smallest);
    });

    it('does what the policies are known for', () => {
      const [kept, sqrt, each, moved] = ['keep all', '√N checkpoints', 'recompute all', 'offload all (vDNN)'].map(
        of,
      ) as [Line, Line, Line, Line];
      expect(each.smallest).toBeLessThan(sqrt.smallest);
      expect(sqrt.smallest).toBeLessThan(kept.smallest);
      const steps = (line: Line) => line.steps.filter(({ seconds }) => seconds !== null);
      for (const { recomputed, activationsMoved } of steps(kept))
        expect([recomputed, activationsMoved]).toEqual([0, 0]);
      for (const line of [sqrt, each]) {
        for (const { recomputed, activationsMoved } of steps(line)) {
          expect(recomputed).toBeGreaterThan(0);
          expect(activationsMoved).toBe(0);
        }
      }
      for (const { recomputed, activationsMoved, moved: all } of steps(moved)) {
        expect(recomputed).toBe(0);
        expect(activationsMoved).toBeGreaterThan(0);
        expect(all).toBeGreaterThanOrEqual(activationsMoved);
      }
    });
  },
);

it('prints a table, with the papers and what is approximated', async () => {
  const text = await plan('--compare', '--activations', ...SMALL, '--gpu-memory', '8MB');
  expect(text).toMatch(/on RTX 3050 Laptop/);
  expect(text).toMatch(/^policy +smallest +within 8.00 MB$/m);
  expect(text).toMatch(/^Holdfast +[\d.]+ [KM]B +[\d.]+ x +[\d.]+ [KM]B +[\d.]+ %$/m);
  expect(text).toMatch(/^keep all +[\d.]+ [KM]B +–$/m);
  expect(text).toMatch(/^least \(bound\) +[\d.]+ x *$/m);
  for (const { paper, approximated } of ACTIVATION_POLICIES) {
    expect(text).toContain(paper);
    expect(text).toContain(approximated);
  }
});

it('--activations without a mode is for comparing, and on one machine', async () => {
  await expect(plan('--activations')).rejects.toThrow(
    '--activations: say what becomes of them, or give --compare, too',
  );
  await expect(plan('--compare', '--activations', '--hardware', 'apple-m1,rtx-4090')).rejects.toThrow('one machine');
});
