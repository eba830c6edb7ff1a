// AdamW on parameters that lie as halves of their floats: every bit of AdamW on the floats, and an upper half that is the
// nearest bfloat16. The split on the host, of any float.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { adamw, adamwOnHalves } from '../../src/kernels/adamw.ts';
import { STATE } from '../../src/kernels/step-control.ts';
import { widen } from '../../src/values/floats.ts';
import { joinHalves, lowerHalves, upperHalves } from '../../src/values/split-floats.ts';
import { field, leading, only } from '../entry.ts';
import { runKernel } from '../harness.ts';
import { cases } from './cases.ts';
import { inputsOf } from './inputs.ts';

const bitsOf = (floats: Float32Array) => new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
const floatsOf = (bits: readonly number[]) => new Float32Array(Uint32Array.from(bits).buffer);

function split(floats: Float32Array<ArrayBuffer>): {
  upper: Uint16Array<ArrayBuffer>;
  lower: Uint16Array<ArrayBuffer>;
} {
  const [upper, lower] = [new Uint16Array(floats.length), new Uint16Array(floats.length)];
  upperHalves(floats, upper);
  lowerHalves(floats, lower);
  return { upper, lower };
}

function joined(upper: Uint16Array<ArrayBuffer>, lower: Uint16Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const floats = new Float32Array(upper.length);
  joinHalves(upper, lower, floats);
  return floats;
}

/** Both sides of zero, subnormals, ties, carries into the next exponent, infinities, NaNs of every kind. */
const SPECIAL = [
  ...[0, 0x80000000, 1, 0x80000001, 0x7fff, 0x8000, 0x8001, 0x18000, 0x3f808000, 0x3f818000, 0x3f817fff],
  ...[0x3fffffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0xffffffff],
];

describe('the halves of a float', () => {
  it('are the float, bit for bit', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 2 ** 32 - 1 }), { minLength: 1, maxLength: 9 }), (bits) => {
        const floats = floatsOf([...bits, ...SPECIAL]);
        const { upper, lower } = split(floats);
        expect(bitsOf(joined(upper, lower))).toEqual(bitsOf(floats));
      }),
      { seed: 1, numRuns: 300 },
    );
  });

  it('are the nearest bfloat16 and the rest: half a step from it at most', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0x00800000, max: 0x7f7f0000 }), (bits) => {
        const value = at(floatsOf([bits]));
        const { upper } = split(floatsOf([bits]));
        const near = new Float32Array(1);
        widen('BF16', upper, near);
        // Of 8 bits, a step is 2^-7 of the power of two below.
        const step = 2 ** (Math.floor(Math.log2(value)) - 7);
        expect(Math.abs(at(near) - value)).toBeLessThanOrEqual(step / 2);
      }),
      { seed: 2, numRuns: 300 },
    );
  });
});

const at = (floats: Float32Array) => floats[0] ?? Number.NaN;

describe('adamw on halves', () => {
  const adamCase = only(cases.filter(({ kernel }) => kernel === (adamw as unknown)));

  it.each([
    [{ size: 4 }, 0],
    [{ size: 36, maskOffset: 33 }, 0],
    [{ size: 33 * 256 + 4, maskOffset: 30 }, 0],
    [{ size: 128 }, 1],
  ])('%j has every bit of adamw on floats (skip %d)', async (problem, skip) => {
    const data = inputsOf(adamCase, problem);
    data.state = field(data, 'state').slice();
    data.state[STATE.skip] = skip;
    const parameter = Float32Array.from(field(data, 'parameter'));
    // What arithmetic leaves as it is where no gradient ever came, subnormals and all.
    const still = [0x3f808000, 0x3f817fff, 0x7f7fffff];
    still.forEach((bits, i) => {
      parameter[i] = at(floatsOf([bits]));
    });
    const { upper, lower } = split(parameter);
    const words = (halves: Uint16Array) => new Uint32Array(halves.buffer, halves.byteOffset, halves.length / 2);
    const [floats] = leading(1, adamw.variants);
    const [halves] = leading(1, adamwOnHalves.variants);
    const wanted = await runKernel(adamw, floats, problem, { ...data, parameter });
    const given = { ...data, high: words(upper), low: words(lower) };
    const found = await runKernel(adamwOnHalves, halves, problem, given);
    const wantedFloats = Float32Array.from(field(wanted, 'parameter'));
    const after = split(wantedFloats);
    expect(field(found, 'high')).toEqual(words(after.upper));
    expect(field(found, 'low')).toEqual(words(after.lower));
    for (const name of ['m', 'v']) expect(field(found, name)).toEqual(field(wanted, name));
    expect(wantedFloats.some((value, i) => value !== parameter[i])).toBe(skip === 0);
  });

  it('has a reference that is that of adamw', () => {
    const data = inputsOf(adamCase, { size: 36 });
    const parameter = Float32Array.from(field(data, 'parameter'));
    const { upper, lower } = split(parameter);
    const arrays = Object.fromEntries(Object.entries(data).map(([name, list]) => [name, Float64Array.from(list)]));
    const wide = { ...arrays, parameter: Float64Array.from(parameter) };
    const words = (halves: Uint16Array) => Float64Array.from(new Uint32Array(halves.buffer, 0, halves.length / 2));
    const narrow = { ...structuredClone(arrays), high: words(upper), low: words(lower) };
    adamw.reference({ size: 36 }, wide);
    adamwOnHalves.reference({ size: 36 }, narrow);
    const back = (list: Float64Array) => new Uint16Array(Uint32Array.from(list).buffer);
    expect(joined(back(narrow.high), back(narrow.low))).toEqual(Float32Array.from(wide.parameter));
  });
});
