// Moments in bf16: AdamW of the kernel on floats, to the bit, with what is kept rounded by chance; and the chance: that the mean
// of what is kept is the float, that both moments, elements and steps have chances of their own, and what no chance changes.

import { describe, expect, it } from 'vitest';
import {
  adamw,
  adamwNarrowMoments,
  adamwOnHalves,
  adamwOnHalvesNarrowMoments,
  adamwWithCopy,
  adamwWithCopyNarrowMoments,
  type NarrowMomentsProblem,
  numberedBlock,
} from '../../src/kernels/adamw.ts';
import { chanceOf, keyNumbers, type RoundingKey, roundedByChance, roundMoments } from '../../src/kernels/moments.ts';
import { ROUNDING, STATE } from '../../src/kernels/step-control.ts';
import { BLOCK } from '../../src/kernels/sum-squares.ts';
import { Random } from '../../src/util/random.ts';
import { narrowFloats, widen } from '../../src/values/floats.ts';
import { field, leading, only } from '../entry.ts';
import { runKernel } from '../harness.ts';
import { cases } from './cases.ts';
import { inputsOf } from './inputs.ts';

const KEY: RoundingKey = [0x89abcdef, 0xfedcba98];

const wordsOf = ({ buffer, byteOffset, length }: Uint16Array) => new Uint32Array(buffer, byteOffset, length / 2);

/** As bf16 holds them, and as words of such. */
function kept(floats: Float32Array<ArrayBuffer>): { floats: Float32Array<ArrayBuffer>; words: Uint32Array } {
  const halves = new Uint16Array(floats.length);
  narrowFloats('BF16', floats, halves);
  const wide = new Float32Array(floats.length);
  widen('BF16', halves, wide);
  return { floats: wide, words: wordsOf(halves) };
}

function roundedWords(key: RoundingKey, first: number, m: Float32Array<ArrayBuffer>, v: Float32Array<ArrayBuffer>) {
  const into = [new Uint16Array(m.length), new Uint16Array(m.length)] as const;
  roundMoments(key, first, [m, v], into);
  return { m: wordsOf(into[0]), v: wordsOf(into[1]) };
}

describe.each([
  ['adamw', adamw, adamwNarrowMoments],
  ['adamw on halves', adamwOnHalves, adamwOnHalvesNarrowMoments],
  ['adamw with a copy', adamwWithCopy, adamwWithCopyNarrowMoments],
] as const)('%s', (_, wide, narrowed) => {
  const adamCase = only(cases.filter(({ kernel }) => kernel === (adamw as unknown)));
  const [variant] = leading(1, narrowed.variants);
  const [onFloats] = leading(1, wide.variants);

  it.each([
    [{ size: 4, maskOffset: 0 }, 0],
    [{ size: 5 * BLOCK + 4, maskOffset: 30 }, 0],
    [{ size: 128, maskOffset: 7 }, 1],
    [{ size: 2 * BLOCK + 4, maskOffset: 1, numbered: true }, 0],
  ] as [NarrowMomentsProblem & { maskOffset: number }, number][])(
    '%j: every bit but of the moments, and those rounded by chance (skip %d)',
    async (problem, skip) => {
      const { numbered, ...plain } = problem;
      const data: Record<string, Float32Array | Int32Array | Uint32Array> = { ...inputsOf(adamCase, plain) };
      data['state'] = field(data, 'state').slice();
      data['state'][STATE.skip] = skip;
      const hyper = new Float32Array(ROUNDING.size);
      hyper.set(field(data, 'hyper'));
      hyper.set(keyNumbers(KEY), ROUNDING.roundingKey);
      for (const name of ['high', 'low', 'copy'])
        data[name] = new Uint32Array(problem.size / 2).map((_, i) => 0x3f803e80 + 977 * i);
      const [m, v] = [kept(Float32Array.from(field(data, 'm'))), kept(Float32Array.from(field(data, 'v')))];
      const wanted = await runKernel(wide, onFloats, plain, { ...data, m: m.floats, v: v.floats });
      const { size, maskOffset } = problem;
      // Some blocks of all, in another order.
      const numberOf = (block: number) => (numbered ? 70_000 - 3 * block : block);
      const decays = (block: number) => ((field(data, 'decayMask')[block >> 5] ?? 0) >>> (block & 31)) % 2 === 1;
      const decayMask = numbered
        ? Uint32Array.from({ length: maskOffset + Math.ceil(size / BLOCK) }, (_, i) =>
            numberedBlock(numberOf(i), decays(i)),
          )
        : field(data, 'decayMask');
      const given = { ...data, hyper, decayMask, m: m.words, v: v.words };
      const found = await runKernel(narrowed, variant, problem, given);
      for (const name of Object.keys(wanted).filter((name) => name !== 'm' && name !== 'v'))
        expect(field(found, name), name).toEqual(field(wanted, name));
      const [wideM, wideV] = [Float32Array.from(field(wanted, 'm')), Float32Array.from(field(wanted, 'v'))];
      const rounded = { m: new Uint32Array(size / 2), v: new Uint32Array(size / 2) };
      for (let at = 0; at < size; at += BLOCK) {
        const first = BLOCK * numberOf(maskOffset + at / BLOCK);
        const inBlock = roundedWords(KEY, first, wideM.slice(at, at + BLOCK), wideV.slice(at, at + BLOCK));
        for (const name of ['m', 'v'] as const) rounded[name].set(inBlock[name], at / 2);
      }
      const [keptM, keptV] = skip === 1 ? [m.words, v.words] : [rounded.m, rounded.v];
      expect(field(found, 'm')).toEqual(keptM);
      expect(field(found, 'v')).toEqual(keptV);
      // In float64 as well: never further off than a step of bf16, of a value that float32 has to 2^-22.
      const arrays = Object.fromEntries(Object.entries(given).map(([name, list]) => [name, Float64Array.from(list)]));
      narrowed.reference(problem, arrays);
      for (const name of ['m', 'v']) {
        const floatsOf = (words: ArrayLike<number>) => {
          const floats = new Float32Array(problem.size);
          widen('BF16', new Uint16Array(Uint32Array.from(words).buffer), floats);
          return floats;
        };
        const [here, there] = [floatsOf(field(found, name)), floatsOf(field(arrays, name))];
        for (const [i, value] of here.entries()) {
          const step = Math.max(2 ** -133, 2 ** -7 * Math.max(Math.abs(value), Math.abs(there[i] ?? 0)));
          expect(Math.abs(value - (there[i] ?? 0)), `${name} ${i}`).toBeLessThanOrEqual(step);
        }
      }
    },
  );
});

/**
 * n independent variables of mean 0, each within an interval of length 1: their sum is past this with a probability of 1e-9
 * (Hoeffding 1963, theorem 2, both sides).
 */
const likely = (n: number) => Math.sqrt((n / 2) * Math.log(2 / 1e-9));

const N = 2 ** 16;

describe('rounding by chance', () => {
  it.each([0x3f800000, 0xbf800000, 0x00000000])('goes up as often as the bits that go say, from %i on', (upper) => {
    const random = new Random(1, 'fractions');
    const off = [0, 0] as [number, number];
    const steps = new Set<number>();
    let together = 0;
    for (let i = 0; i < N; i++) {
      const chance = chanceOf(KEY, i);
      const upOf = (each: number) => {
        const low = random.below(2 ** 16);
        const up = roundedByChance((upper | low) >>> 0, each) - (upper >>> 16);
        steps.add(up);
        return up - low / 2 ** 16;
      };
      const [m, v] = [upOf(chance & 0xffff), upOf(chance >>> 16)];
      off[0] += m;
      off[1] += v;
      together += m * v;
    }
    expect([...steps].sort()).toEqual([0, 1]);
    for (const sum of off) expect(Math.abs(sum)).toBeLessThan(likely(N));
    // Both moments of an element go their own ways: products of two such lie within an interval of length 1, too.
    expect(Math.abs(together)).toBeLessThan(likely(N));
  });

  it.each([1 / 4, 1 / 2, 1 - 2 ** -7])(
    'goes up in a share of %d over elements, and of one element over steps',
    (share) => {
      const bits = 0x40490000 + share * 2 ** 16;
      const keys = new Random(5, 'moments 17');
      let [elements, steps, alike] = [0, 0, 0];
      for (let i = 0; i < N; i++) {
        const key: RoundingKey = [keys.uint32(), keys.uint32()];
        const up = (chance: number) => roundedByChance(bits, chance & 0xffff) - 0x4049;
        const [here, next, later] = [up(chanceOf(KEY, i)), up(chanceOf(KEY, i + 1)), up(chanceOf(key, 12345))];
        elements += here - share;
        steps += later - share;
        alike += (here - share) * (next - share);
      }
      for (const sum of [elements, steps]) expect(Math.abs(sum)).toBeLessThan(likely(N));
      // Of neighbours: every second product is independent of the others, so that both halves of the sum are bounded.
      expect(Math.abs(alike)).toBeLessThan(2 * likely(N / 2));
    },
  );

  it('leaves what bf16 has, infinities and NaN', () => {
    for (const chance of [0, 1, 0x8000, 0xffff]) {
      for (const bits of [0, 0x80000000, 0x3f800000, 0x7f7f0000, 0x7f800000, 0xff800000])
        expect(roundedByChance(bits, chance)).toBe(bits >>> 16);
      for (const bits of [0x7f800001, 0xffffffff, 0x7fc00000])
        expect(Number.isNaN(widened(roundedByChance(bits, chance)))).toBe(true);
    }
  });
});

function widened(half: number): number {
  const floats = new Float32Array(1);
  widen('BF16', Uint16Array.of(half), floats);
  return floats[0] ?? 0;
}
