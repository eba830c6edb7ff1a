// Reference cases computed in sixteen bits, within tolerances that are derived from the width; and what a kernel that is wrong
// does to them: its results are further off than any rounding to that width may take them.

import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/gpu/device.ts';
import { TRAINING_DTYPES } from '../../src/memory/layout/kinds.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { type ReplayOptions, replay } from '../../src/parity/replay-case.ts';
import { join } from '../../src/runtime/host.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost, VERBOSE } from '../host.ts';
import { replayCase } from '../replay-case.ts';

const FOLDER = 'test/fixtures/reference';
const SMALLEST = join(FOLDER, 'gpt2-accum4-ignore');
const { files } = testHost;
const found = await Promise.all(
  (await files.list(FOLDER)).map(async (name) => ({ name, isCase: await files.stat(join(FOLDER, name, 'ref.json')) })),
);
const cases = found.filter(({ isCase }) => isCase).map(({ name }) => name);
const NARROW = TRAINING_DTYPES.filter((dtype) => dtype !== 'f32');

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(11);
});

/** Parameters, activations, moments, and where AdamW runs. */
const WIDTHS: readonly ReplayOptions[] = [
  ...NARROW.map((dtype) => ({ dtype })),
  { activationDtype: 'bf16' },
  ...(EVERY_CASE
    ? [
        { momentDtype: 'bf16' as const },
        { activationDtype: 'f16' as const },
        { dtype: 'bf16' as const, activationDtype: 'bf16' as const },
        { dtype: 'f16' as const, activationDtype: 'f16' as const, momentDtype: 'bf16' as const },
        ...NARROW.map((dtype) => ({ dtype, optimizerDevice: 'cpu' as const })),
        { dtype: 'bf16' as const, momentDtype: 'bf16' as const, optimizerDevice: 'cpu' as const },
      ]
    : []),
];

describe.each(WIDTHS)('%o', (widths) => {
  it.each(EVERY_CASE ? cases : ['gpt2-accum4-ignore'])('%s passes', async (name) => {
    const { choices, ...atEnd } = await replayCase(device, join(FOLDER, name), widths);
    const { metrics, worst, pass, unchecked } = atEnd;
    const table = [...metrics].map(
      ([metric, { value, tolerance, multiple, where }]) =>
        `${metric} ${value.toExponential(1)} of ${tolerance.toExponential(1)}, ${multiple.toFixed(3)} ${where}`,
    );
    if (VERBOSE) console.log(`${name} in ${Object.values(widths).join()}\n  ${table.join('\n  ')}`);
    expect(worst, table.join('\n')).toBeLessThanOrEqual(1);
    expect([pass, unchecked]).toEqual([true, []]);
    // It does round, and the tolerances are not of another size than what they are for.
    expect(worst, table.join('\n')).toBeGreaterThan(0.02);
    const inBackward = { ...widths, choices, update: 'in-backward' } as const;
    const { choices: _, ...found } = await replayCase(device, join(FOLDER, name), inBackward);
    expect(found, 'updated inside the backward pass').toEqual(atEnd);
  });
});

/**
 * A shader in which one text stands for another. What a step of weight decay changes is less than the rounding of a parameter:
 * in which direction it goes, the cases tell in f32 alone.
 */
const WRONG: readonly [what: string, from: string | RegExp, to: string, widths?: ReplayOptions][] = [
  // The sample has this one, of which a single shader is compiled again.
  ['the correction of the second moment', 'sqrt(second / correction2)', 'sqrt(second)'],
  ['halves of a word, one for the other', 'vec2u(w << 16u, w & 0xffff0000u)', 'vec2u(w & 0xffff0000u, w << 16u)'],
  ['the sign of a term of the layer norm’s gradient', 'd = r * (g - sum - (', 'd = r * (g - sum + ('],
  ['a layer norm’s gradient without its mean', 'd = r * (g - sum - (', 'd = r * (g - ('],
  ['the derivative of GELU without its second term', '(e * s) * s;', '(e * s) * s * 0.0;'],
  ['the last row of each sum of columns', 'row < last; row++', 'row + 1u < last; row++'],
  [
    'gradients of tokens that come twice',
    'j < last; j++) { sum += dy',
    'j < min(last, starts[slot] + 1u); j++) { sum += dy',
  ],
  [
    'gradients without the bits of their fractions',
    'let halves = select(nearest',
    'let halves = select(nearest & vec4u(0xff80u)',
  ],
  [
    'activations without the last four bits of their fractions',
    'let halves = select(nearest',
    'let halves = select(nearest & vec4u(0xfff0u)',
    { activationDtype: 'bf16' },
  ],
  [
    'moments that are always rounded down',
    'select((bits + chance) >> vec4u(16u)',
    'select(bits >> vec4u(16u)',
    { momentDtype: 'bf16' },
  ],
];

describe('a wrong kernel is noticed', () => {
  it.each(EVERY_CASE ? WRONG : WRONG.slice(0, 1))('%s', async (what, from, to, widths = { dtype: 'bf16' }) => {
    const { pipelines } = device;
    const get = pipelines.get.bind(pipelines);
    let changed = 0;
    const wrong = vi.spyOn(pipelines, 'get');
    try {
      wrong.mockImplementation((label, source, ...others) => {
        const text = source.replaceAll(from, to);
        if (text !== source) changed++;
        return get(label, text, ...others);
      });
      const { worst, pass, metrics } = await replay(device, await loadCase(testHost, SMALLEST), widths);
      if (VERBOSE)
        console.log(
          what,
          worst,
          [...metrics].map(([name, { multiple }]) => `${name} ${multiple.toFixed(2)}`).join(', '),
        );
      expect(changed).toBeGreaterThan(0);
      expect([worst > 1, pass]).toEqual([true, false]);
    } finally {
      wrong.mockRestore();
    }
  });
});
