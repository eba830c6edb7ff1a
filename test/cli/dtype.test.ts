// --dtype on the command line: runs in bf16 and f16, stopped and resumed, in one width and in the other, with a low-rank update; what
// plan says of it, and what is refused in one line. In process, on the adapter under test.

import { beforeAll, expect, test } from 'vitest';
import { loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { parse } from '../../src/formats/safetensors.ts';
import { collect, type Values } from '../../src/values/tensor-source.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(100) });

const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12', '--batch', '2'];
const RUN = ['--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--steps', '6'];
const train = (...args: string[]) => done(files, ['train', ...RUN, ...args]);

async function stateOf(run: string): Promise<Values[]> {
  const { weights, moment1, moment2 } = await loadCheckpoint(files, run);
  return [await collect(weights), await collect(moment1), await collect(moment2)];
}

beforeAll(async () => {
  await train(...SHAPE, '--out', 'wide');
  expect(await train(...SHAPE, '--dtype', 'bf16', '--out', 'narrow')).toContain('computed with in bf16');
});

test('a run in bf16 is near that in f32, and its checkpoint has f32', async () => {
  const [wide, narrow] = [await stateOf('wide'), await stateOf('narrow')];
  expect(narrow[0]).not.toEqual(wide[0]);
  const all = [...(narrow[0] ?? new Map()).values()].flatMap((values) => [...new Uint32Array(values.buffer.slice(0))]);
  expect(all.some((bits) => (bits & 0xffff) !== 0)).toBe(true);
  const text = new TextDecoder().decode(await files.read('narrow/checkpoint-6/holdfast_state.json'));
  const { settings, history } = JSON.parse(text);
  expect(settings.dtype).toBe('bf16');
  const before = new TextDecoder().decode(await files.read('wide/checkpoint-6/holdfast_state.json'));
  const losses = (steps: { loss: number }[]) => steps.map(({ loss }) => loss);
  const wanted = losses(JSON.parse(before).history.steps);
  expect(losses(history.steps)).not.toEqual(wanted);
  for (const [i, loss] of losses(history.steps).entries()) {
    expect(Math.abs(loss / (wanted[i] ?? 0) - 1), `step ${i}`).toBeLessThan(0.01);
  }
});

test('stopped and resumed it has the bits of the run that was not, within a budget as well', async () => {
  const budget = ['--gpu-memory', '260KB'];
  await train(...SHAPE, '--dtype', 'bf16', '--out', 'parts', '--until', '2', ...budget);
  const out = await train('--resume', '--out', 'parts');
  expect(out).toContain('computed with in bf16');
  expect(out).not.toContain('from here on');
  expect(await stateOf('parts')).toEqual(await stateOf('narrow'));
  expect(await train('--resume', '--out', 'parts')).toContain('\nall 6 steps are done; to go on give more, ');
});

test('of a run that was on another adapter, that is said', async () => {
  await train(...SHAPE, '--out', 'moved', '--until', '2');
  const path = 'moved/checkpoint-2/holdfast_state.json';
  const state = JSON.parse(new TextDecoder().decode(await files.read(path)));
  await files.writeAtomic(path, JSON.stringify({ ...state, adapter: 'another' }));
  await files.remove('moved/checkpoint-2/SHA256SUMS');
  const out = await train('--resume', '--out', 'moved', '--until', '3');
  expect(out).toMatch(
    /(^|\n)adapter: the steps so far ran on another, from here on it is [^\n]+, with other last bits\n/,
  );
});

test('of a run whose latest checkpoint is not whole, it is said that another goes on, and it stays', async () => {
  await train(...SHAPE, '--out', 'lacking', '--until', '2', '--save-every', '1');
  await files.remove('lacking/checkpoint-2/optimizer.safetensors');
  const out = await train('--resume', '--out', 'lacking', '--until', '3');
  expect(out).toContain(
    'lacking/checkpoint-2 is incomplete: it has no optimizer.safetensors; the run goes on from the one before\n',
  );
  expect(out).toContain('\ntraining from step 1 to step 6, ');
  expect(await files.list('lacking')).toContain('checkpoint-2');
});

test('f16 as well: its scale of gradients is in the checkpoint', async () => {
  const controlOf = async (run: string) => {
    const text = new TextDecoder().decode(await files.read(`${run}/checkpoint-6/holdfast_state.json`));
    return JSON.parse(text).trainer.control;
  };
  expect(await train(...SHAPE, '--dtype', 'f16', '--out', 'half')).toContain('computed with in f16');
  await train(...SHAPE, '--dtype', 'f16', '--out', 'half-parts', '--until', '2', '--gpu-memory', '260KB');
  await train('--resume', '--out', 'half-parts');
  expect(await stateOf('half-parts')).toEqual(await stateOf('half'));
  expect((await controlOf('half')).slice(8)).toEqual([65536, 6]);
  expect(await controlOf('half-parts')).toEqual(await controlOf('half'));
  expect(await controlOf('wide')).toHaveLength(8);
  expect(await stateOf('half')).not.toEqual(await stateOf('narrow'));
});

test('a checkpoint goes on in the other width, which is said and kept', async () => {
  await train(...SHAPE, '--dtype', 'bf16', '--out', 'changed', '--until', '1');
  await train('--resume', '--out', 'changed', '--dtype', 'f16', '--until', '3');
  const out = await train('--resume', '--out', 'changed', '--dtype', 'f32');
  expect(out).toContain('--dtype f32: the steps so far were computed in f16, from here on it is f32');
  const text = new TextDecoder().decode(await files.read('changed/checkpoint-6/holdfast_state.json'));
  expect(JSON.parse(text)).toMatchObject({ settings: { dtype: 'f32' }, earlier: [{ until: 1 }, { until: 3 }] });
  expect(await stateOf('changed')).not.toEqual(await stateOf('narrow'));
});

test('activations in f16: stopped and resumed within a budget the same bits', async () => {
  const args = [...SHAPE, '--activation-dtype', 'f16', '--dtype', 'f16'];
  expect(await train(...args, '--out', 'halves')).toContain(', activations in f16');
  await train(...args, '--out', 'halves-parts', '--until', '2', '--gpu-memory', '260KB', '--activations', 'recompute');
  expect(await train('--resume', '--out', 'halves-parts')).not.toContain('from here on');
  expect(await stateOf('halves-parts')).toEqual(await stateOf('halves'));
});

test('activations in bf16: stopped and resumed within a budget the same bits, and said where they change', async () => {
  const args = [...SHAPE, '--activation-dtype', 'bf16'];
  expect(await train(...args, '--out', 'kept')).toContain(', activations in bf16');
  await train(...args, '--out', 'kept-parts', '--until', '2', '--gpu-memory', '200KB', '--activations', 'recompute');
  expect(await train('--resume', '--out', 'kept-parts')).not.toContain('from here on');
  expect(await stateOf('kept-parts')).toEqual(await stateOf('kept'));
  expect(await stateOf('kept')).not.toEqual(await stateOf('wide'));
  if (!EVERY_CASE) return;
  await train(...args, '--out', 'kept-changed', '--until', '3');
  const out = await train('--resume', '--out', 'kept-changed', '--activation-dtype', 'f32');
  expect(out).toContain('--activation-dtype f32: the steps so far kept activations in bf16, from here on it is f32');
});

test('moments in bf16: saved so, stopped and resumed the same bits, and said where they change', async () => {
  const args = [...SHAPE, '--optimizer-state', 'bf16'];
  expect(await train(...args, '--out', 'moments')).toContain(', moments in bf16');
  const dtypes = async (run: string) => {
    const file = await files.read(`${run}/checkpoint-6/optimizer.safetensors`);
    return new Set([...parse(file, run).values()].map(({ dtype }) => dtype));
  };
  expect([await dtypes('moments'), await dtypes('wide')]).toEqual([new Set(['BF16']), new Set(['F32'])]);
  await train(...args, '--out', 'moments-parts', '--until', '2', '--gpu-memory', '200KB');
  expect(await train('--resume', '--out', 'moments-parts')).not.toContain('from here on');
  expect(await stateOf('moments-parts')).toEqual(await stateOf('moments'));
  expect(await stateOf('moments')).not.toEqual(await stateOf('wide'));
  await train(...SHAPE, '--out', 'moments-changed', '--until', '5');
  const out = await train('--resume', '--out', 'moments-changed', '--optimizer-state', 'bf16');
  expect(out).toContain('--optimizer-state bf16: the moments so far were kept in f32, from here on it is bf16');
  expect(await dtypes('moments-changed')).toEqual(new Set(['BF16']));
});

test('low-rank updates train in it', async () => {
  const lora = ['--model', 'wide', '--lora-rank', '2', '--batch', '2'];
  await train(...lora, '--dtype', 'bf16', '--out', 'tuned');
  await train(...lora, '--out', 'tuned-wide');
  const [narrow, wide] = [await stateOf('tuned'), await stateOf('tuned-wide')];
  expect([...(narrow[0] ?? new Map()).keys()]).toEqual([...(wide[0] ?? new Map()).keys()]);
  expect(narrow).not.toEqual(wide);
});

test('plan states the bytes of a parameter', async () => {
  const shape = ['--layers', '2', '--width', '64', '--heads', '2', '--vocab-size', '256'];
  const plan = async (dtype: string, ...more: string[]) =>
    JSON.parse(await done(files, ['plan', '--json', ...shape, '--dtype', dtype, ...more]));
  expect((await plan('f32')).bytesPerParameter).toEqual({ all: 16, kept: 12 });
  expect((await plan('bf16')).bytesPerParameter).toEqual({ all: 14, kept: 12 });
  expect((await plan('f16')).bytesPerParameter).toEqual({ all: 14, kept: 14 });
  // Of gradients there is no list; copies are there until their chunk's update.
  expect((await plan('f16', '--update', 'in-backward')).bytesPerParameter).toEqual({ all: 14, kept: 14 });
  const moments = ['--optimizer-state', 'bf16'];
  expect((await plan('f32', ...moments)).bytesPerParameter).toEqual({ all: 12, kept: 8 });
  expect((await plan('bf16', ...moments)).bytesPerParameter).toEqual({ all: 10, kept: 8 });
  expect((await plan('bf16', ...moments, '--update', 'in-backward')).bytesPerParameter).toEqual({ all: 8, kept: 8 });
});

test('plan states what activations in bf16 leave out', async () => {
  const shape = ['--layers', '8', '--width', '64', '--heads', '2', '--vocab-size', '256', '--gpu-memory', '1GB'];
  const arenas = async (type: string) =>
    JSON.parse(await done(files, ['plan', '--json', ...shape, '--activation-dtype', type])).nonModelBytes.arenas;
  expect((await arenas('bf16')) / (await arenas('f32'))).toBeLessThan(0.65);
});

test('on a machine of a file the bytes of a run are planned, in any width', async () => {
  const shape = ['--layers', '2', '--width', '64', '--heads', '2', '--vocab-size', '256', '--batch', '4'];
  const widths = ['--dtype', 'bf16', '--activation-dtype', 'bf16', '--optimizer-state', 'bf16'];
  const plan = async (...args: string[]) => JSON.parse(await done(files, ['plan', '--json', ...shape, ...args]));
  for (const narrow of [[], widths]) {
    const run = await plan('--sample-tokens', '0', ...narrow);
    const { smallestBudget, resident } = await plan('--hardware', 'rtx-3060', ...narrow);
    expect([smallestBudget, resident.bytes]).toEqual([run.smallestBudget, run.unlimited]);
  }
});

test.each([
  [['train', '--dtype', 'f8'], 'f32, bf16, f16'],
  [['plan', '--activation-dtype', 'bf16', '--compare'], '--activation-dtype bf16: policies are compared'],
  [['plan', '--compare', '--dtype', 'bf16'], '--dtype: policies are compared'],
  [['parity', 'wide', '--dtype', 'bf16'], '--dtype: a run is replayed in the width that it ran in'],
  [['parity', 'wide', '--activation-dtype', 'f16'], '--activation-dtype: a run is replayed with the activations'],
  [['parity', 'wide', '--optimizer-state', 'bf16'], '--optimizer-state: a run is replayed with the moments'],
])('%j is refused', async (args, words) => {
  const { status, said } = await inProcess(files, args);
  expect([status, said.trim().split('\n')]).toEqual([2, [expect.stringContaining(words)]]);
});
