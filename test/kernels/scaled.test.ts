// Gradients in binary16: rounded as the host rounds, to the bit, times a scale that takes itself back; AdamW beside a copy in
// binary16; and the scale from step to step, by what overflows.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { adamw, adamwWithCopy } from '../../src/kernels/adamw.ts';
import { NARROW } from '../../src/kernels/narrow.ts';
import {
  DECIDED,
  FIRST_SCALE,
  GROWTH_STEPS,
  initialState,
  LARGEST_SCALE,
  LEAST_SCALE,
  SCALER,
  STATE,
  scaledStepControl,
  stepControl,
} from '../../src/kernels/step-control.ts';
import { scaleAndSumSquares } from '../../src/kernels/sum-squares.ts';
import { narrowFloats } from '../../src/values/floats.ts';
import { field, leading, only } from '../entry.ts';
import { runKernel } from '../harness.ts';
import { cases } from './cases.ts';
import { inputsOf } from './inputs.ts';

const floatsOf = (bits: readonly number[]) => new Float32Array(Uint32Array.from(bits).buffer);

function halvesOf(floats: Float32Array<ArrayBuffer>): Uint32Array {
  const words = new Uint32Array(floats.length / 2);
  narrowFloats('F16', floats, new Uint16Array(words.buffer));
  return words;
}

/** Halves, the larger neighbour's middle, and a float around each: ties, subnormals, what underflows and what overflows. */
const edges = (half: number): number[] => {
  const value = (h: number) => {
    const exponent = (h >> 10) & 31;
    return exponent === 0 ? (h & 1023) * 2 ** -24 : (1 + (h & 1023) / 1024) * 2 ** (exponent - 15);
  };
  const middle = (value(half) + value(half + 1)) / 2;
  const [bits = 0] = new Uint32Array(Float32Array.of(middle).buffer);
  return [bits - 1, bits, bits + 1];
};

describe('gradients in binary16', () => {
  const stateOf = (scale: number) => initialState(SCALER.size, scale);

  it('have the bits of the host’s rounding, whatever float they are of', async () => {
    const [variant] = leading(1, scaleAndSumSquares.variants);
    const halves = Array.from({ length: 0x7bff }, (_, half) => half).filter((half) => half < 64 || half % 37 === 0);
    const special = [0, 1, 0x7fffff, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7fffff, 0x7f800000];
    const drawn = fc.sample(fc.integer({ min: 0, max: 0x7f800000 }), { seed: 5, numRuns: 999 });
    const sizes = [...[...halves, 0x3ff, 0x400, 0x7bfe, 0x7bff].flatMap(edges), ...special, ...drawn];
    const signed = sizes.flatMap((bits) => [bits, (bits | 0x80000000) >>> 0]);
    const x = floatsOf([...signed, ...Array.from({ length: (4 - (signed.length % 4)) % 4 }, () => 0)]);
    const found = await runKernel(scaleAndSumSquares, variant, { size: x.length, first: 0 }, { x, state: stateOf(1) });
    expect(field(found, 'y')).toEqual(halvesOf(x));
  });

  it('stay NaN, which shows in their squares, as an overflow does', async () => {
    const [variant] = leading(1, scaleAndSumSquares.variants);
    for (const [wrong, scale] of [
      [Number.NaN, 1],
      [Number.POSITIVE_INFINITY, 1],
      [1, 2 ** 16],
      [-65520, 1],
    ] as const) {
      const x = Float32Array.of(0.5 / scale, wrong, 0, 0);
      const found = await runKernel(scaleAndSumSquares, variant, { size: 4, first: 0 }, { x, state: stateOf(scale) });
      expect(Number.isFinite(field(found, 'partials')[0]), `${wrong} times ${scale}`).toBe(false);
    }
    const x = Float32Array.of(65519, 0, 0, 0);
    const found = await runKernel(scaleAndSumSquares, variant, { size: 4, first: 0 }, { x, state: stateOf(1) });
    expect(field(found, 'partials')[0]).toBe(65504 ** 2);
  });

  it('are rounded by the scale of their step behind its decision, too', async () => {
    const x = Float32Array.from({ length: 600 }, (_, i) => Math.fround(Math.sin(i) * 2 ** -20));
    const problem = { size: 600, first: 2 };
    const data = () => ({ x, partials: new Float32Array(5) });
    for (const variant of scaleAndSumSquares.variants) {
      const before = await runKernel(scaleAndSumSquares, variant, problem, { ...data(), state: stateOf(2 ** 9) });
      const state = initialState(DECIDED.size, 2 ** 10);
      state[DECIDED.stepScale] = 2 ** 9;
      const decided = { ...problem, isDecided: true };
      const behind = await runKernel(scaleAndSumSquares, variant, decided, { ...data(), state });
      for (const name of ['y', 'partials']) expect(field(behind, name)).toEqual(field(before, name));
      const wanted = { partials: new Float64Array(5), y: new Float64Array(300) };
      scaleAndSumSquares.reference(decided, { x: Float64Array.from(x), state: Float64Array.from(state), ...wanted });
      expect(Uint32Array.from(wanted.y)).toEqual(field(behind, 'y'));
    }
  });

  it('have squares that know nothing of the scale', async () => {
    const [variant] = leading(1, scaleAndSumSquares.variants);
    const x = Float32Array.from({ length: 600 }, (_, i) => Math.fround(Math.sin(i) * 2 ** -9));
    const problem = { size: 600, first: 2 };
    const sums = async (scale: number) => {
      const data = { x, state: stateOf(scale), partials: new Float32Array(5) };
      return field(await runKernel(scaleAndSumSquares, variant, problem, data), 'partials');
    };
    const wanted = { partials: new Float64Array(5), y: new Float64Array(300) };
    const state = Float64Array.from(stateOf(2 ** 16));
    scaleAndSumSquares.reference(problem, { x: Float64Array.from(x), state, ...wanted });
    const found = await sums(2 ** 16);
    // No half of these is subnormal at either scale.
    expect(await sums(2 ** 10)).toEqual(found);
    for (const [i, value] of found.entries()) expect(value).toBeCloseTo(wanted.partials[i] ?? Number.NaN, 9);
  });
});

describe.each([
  ['bf16', 'BF16', [0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000, 0x80000001, 0x7fff, 0x8000]],
  // Halfway to the next, past it, the largest and what rounds past that; halves of the smallest.
  [
    'f16',
    'F16',
    [0x3f801000, 0x3f803000, 0x3f801001, 0x477fe000, 0x477fefff, 0x477ff000, 0xff800000, 0x33000000, 0x33000001],
  ],
] as const)('activations in %s', (dtype, type, special) => {
  const narrowed = NARROW[dtype];

  it.each([1, 2, 3, 4, 7, 301])('have the bits of the host’s rounding: %d of them', async (size) => {
    const [variant] = leading(1, narrowed.variants);
    // Of halves, mostly numbers that have one.
    const range = dtype === 'bf16' ? { min: 0, max: 0xff800000 } : { min: 0x32000000, max: 0x48000000 };
    const drawn = fc.sample(fc.integer(range), { seed: size, numRuns: 301 });
    const x = floatsOf([...special, ...drawn].slice(-size).map((bits, i) => special[i] ?? bits));
    const words = new Uint32Array(Math.ceil(size / 2));
    narrowFloats(type, x, new Uint16Array(words.buffer));
    const found = await runKernel(narrowed, variant, { size }, { x });
    // Of NaN the fraction is any.
    expect(field(found, 'y')).toEqual(words);
    const y = new Float64Array(words.length);
    narrowed.reference({ size }, { x: Float64Array.from(x), y });
    expect(Uint32Array.from(y)).toEqual(words);
  });
});

describe('adamw with a copy', () => {
  const adamCase = only(cases.filter(({ kernel }) => kernel === (adamw as unknown)));

  it.each([
    [{ size: 36, maskOffset: 33 }, 0],
    [{ size: 33 * 256 + 4, maskOffset: 30 }, 0],
    [{ size: 128 }, 1],
  ])('%j has every bit of adamw, and of its halves (skip %d)', async (problem, skip) => {
    const data = inputsOf(adamCase, problem);
    data.state = field(data, 'state').slice();
    data.state[STATE.skip] = skip;
    const copy = new Uint32Array(problem.size / 2).fill(0x12345678);
    const [floats] = leading(1, adamw.variants);
    const [variant] = leading(1, adamwWithCopy.variants);
    const wanted = await runKernel(adamw, floats, problem, data);
    const found = await runKernel(adamwWithCopy, variant, problem, { ...data, copy });
    for (const name of ['parameter', 'm', 'v']) expect(field(found, name)).toEqual(field(wanted, name));
    const halves = halvesOf(Float32Array.from(field(wanted, 'parameter')));
    // There may be none before a step that is skipped.
    expect(field(found, 'copy')).toEqual(halves);
    const arrays = Object.fromEntries(
      Object.entries({ ...data, copy }).map(([name, list]) => [name, Float64Array.from(list)]),
    );
    adamwWithCopy.reference(problem, arrays);
    expect(Uint32Array.from(arrays['copy'] ?? [])).not.toEqual(copy);
    if (skip === 1) expect(Uint32Array.from(arrays['copy'] ?? [])).toEqual(halves);
  });
});

describe('the scale of gradients', () => {
  const stepCase = only(cases.filter(({ kernel }) => kernel === (stepControl as unknown)));
  const [variant] = leading(1, scaledStepControl.variants);
  const stateWith = (scale: number, goodSteps: number) => {
    const state = initialState(DECIDED.size, scale);
    state.set(field(inputsOf(stepCase, {}), 'state'));
    state[SCALER.goodSteps] = goodSteps;
    return state;
  };

  it.each([
    ['stays', 1, FIRST_SCALE, 7, FIRST_SCALE, 8],
    ['halves with an overflow', Number.POSITIVE_INFINITY, FIRST_SCALE, 7, FIRST_SCALE / 2, 0],
    ['halves with a NaN', Number.NaN, 2, 0, 1, 0],
    ['has a least', Number.NaN, LEAST_SCALE, 0, LEAST_SCALE, 0],
    ['doubles after enough steps', 1, FIRST_SCALE, GROWTH_STEPS - 1, 2 * FIRST_SCALE, 0],
    ['has a largest', 1, LARGEST_SCALE, GROWTH_STEPS - 1, LARGEST_SCALE, 0],
  ])('%s', async (_, squared, scale, good, nextScale, nextGood) => {
    const plain = { ...inputsOf(stepCase, {}), normSquared: Float32Array.of(squared) };
    const state = stateWith(scale, good);
    const after = field(await runKernel(scaledStepControl, variant, {}, { ...plain, state }), 'state');
    const [own] = leading(1, stepControl.variants);
    const before = field(await runKernel(stepControl, own, {}, plain), 'state');
    // All else is as without a scale, but for what it is taken back by.
    const wanted = Float32Array.from([...before, nextScale, nextGood, scale]);
    if (Number.isFinite(squared)) wanted[STATE.coefficient] = (before[STATE.coefficient] ?? 0) / scale;
    expect(after).toEqual(wanted);
    const data = Object.fromEntries(
      Object.entries({ ...plain, state }).map(([name, list]) => [name, Float64Array.from(list)]),
    );
    scaledStepControl.reference({}, data);
    expect(data['state']?.slice(STATE.size)).toEqual(Float64Array.of(nextScale, nextGood, scale));
  });
});
