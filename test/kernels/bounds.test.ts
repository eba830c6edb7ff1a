// No kernel reads or writes past the end of what it is given, whatever the compiler would make of it: each index is compared with the
// length of its array, in every variant, on the problems of the table. What is stored in 16 bits or in blocks is read at the same elements.

import { describe, expect, it } from 'vitest';
import type { Variant } from '../../src/kernels/kernel.ts';
import { assert } from '../../src/util/errors.ts';
import { type HostArray, isWorthwhile, runKernel, runnable, testDevice } from '../harness.ts';
import { ADAPTER, EVERY_CASE, THOROUGH } from '../host.ts';
import { cases } from './cases.ts';
import { checkedVariant, counting, noneOutside, OUTSIDE, outsideOf, withCheckedIndices } from './checked-indices.ts';
import { inputsOf, type KernelCase } from './inputs.ts';

/** Indices past the end of each array, of one problem. `wild`: in place of all integers among its operands. */
async function outside<P>(
  kernelCase: KernelCase<P>,
  variant: Variant<P>,
  problem: P,
  wild?: number,
): Promise<Record<string, number>> {
  const { kernel } = kernelCase;
  const data: Record<string, HostArray> = { ...inputsOf(kernelCase, problem), [OUTSIDE]: noneOutside() };
  for (const [name, { type }] of Object.entries(kernel.operands(problem)))
    if (wild !== undefined && type !== 'f32') data[name]?.fill(wild);
  const results = await runKernel(counting(kernel), checkedVariant(variant), problem, data);
  const { shader } = variant.dispatch(problem, (await testDevice()).traits);
  return outsideOf(shader, results[OUTSIDE] ?? []);
}

/** The texts are the same on other adapters, whose compilers take longer for what GPUs run. */
const isWorthIt = THOROUGH && (EVERY_CASE || ADAPTER === 'software');

describe.runIf(isWorthIt).each(cases)('$kernel.name', async (kernelCase) => {
  for (const variant of await runnable(kernelCase.kernel)) {
    it(`${variant.name}: is within its arrays`, async () => {
      for (const [n, problem] of kernelCase.problems.entries()) {
        if (!(await isWorthwhile(variant, n, 48))) continue;
        expect(await outside(kernelCase, variant, problem), JSON.stringify(problem)).toEqual({});
      }
    });
  }
});

/** A problem for each set of integers that a kernel reads of a batch: tokens, targets, positions. Those of `embeddingBackward` are made of it (`tokenIndex`). */
const OF_BATCHES = cases.flatMap(({ kernel, problems, ...rest }) => {
  const found = new Map<string, (typeof problems)[number]>();
  for (const problem of kernel.name === 'embeddingBackward' ? [] : problems) {
    const integers = Object.entries(kernel.operands(problem)).flatMap(([name, { type }]) =>
      type === 'f32' ? [] : [name],
    );
    if (integers.length > 0 && !found.has(integers.join())) found.set(integers.join(), problem);
  }
  return [...found].map(([integers, problem]) => ({ kernelCase: { kernel, problems, ...rest }, integers, problem }));
});

describe.runIf(isWorthIt).each(OF_BATCHES)(
  '$kernelCase.kernel.name, whatever $integers',
  async ({ kernelCase, problem }) => {
    const [variant] = await runnable(kernelCase.kernel);
    it.each([-1, 2 ** 31 - 1, 10_000])('all %d', async (wild) => {
      assert(variant, 'a kernel has a variant');
      expect(await outside(kernelCase, variant, problem, wild)).toEqual({});
    });
  },
);

const TEXT = `
@group(0) @binding(1) var<storage, read> x: array<f32>; // x[7]
@group(0) @binding(2) var<storage, read_write> y: array<vec4f>;
var<workgroup> panel: array<array<vec4f, ROWS + 1>, max(2, 4)>;
fn one(@builtin(local_invocation_index) lane: u32, x: vec4f) -> f32 { return x[0]; }
fn main() { y[i + u32(x[j])] = panel[a][b][c] + other[0]; }`;

it('counts what is past an end', async () => {
  const checked = withCheckedIndices(TEXT).replace(/\s+/g, ' ');
  expect(checked).toContain(
    'y[checked_index(u32(i + u32(x[checked_index(u32(j), length_of_x(), 0u)])), length_of_y(), 1u)]',
  );
  expect(checked).toContain(
    'panel[checked_index(u32(a), max(2, 4), 2u)][checked_index(u32(b), ROWS + 1, 2u)][c] + other[0];',
  );
  expect(checked).toContain('return x[0]; }');
  expect(outsideOf(TEXT, [3, 0, 1])).toEqual({ x: 3, panel: 1 });
});

it('sees a kernel that is past an end', async () => {
  const [kernelCase] = cases.filter(({ kernel: { name } }) => name === 'add');
  const [variant] = kernelCase?.kernel.variants ?? [];
  assert(kernelCase && variant, 'there is no add');
  // The invocations behind the last elem of three.
  const unguarded: Variant<unknown> = {
    ...variant,
    dispatch: (problem, traits) => {
      const dispatch = variant.dispatch(problem, traits);
      return { ...dispatch, params: { ...dispatch.params, size: 8 } };
    },
  };
  expect(await outside(kernelCase, unguarded, { size: 3 })).toEqual({ a: 5, b: 5, y: 5 });
});
