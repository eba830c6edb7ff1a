// Kernels on operands that are stored in sixteen bits, or in blocks of eight or four: in every variant the bits of the same kernel on the widened operand,
// whatever the size, the offset and the stride; and the text of a shader where nothing is narrow.

import { describe, expect, it } from 'vitest';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { onTensors } from '../../src/graph/program.ts';
import type { Kernel } from '../../src/kernels/kernel.ts';
import { isNarrowing } from '../../src/kernels/narrow.ts';
import {
  type MadeElement,
  type NarrowElement,
  readingStored,
  STORED_BLOCKS,
  storedBytes,
} from '../../src/kernels/stored.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { CODECS } from '../../src/values/stored-elements.ts';
import { type HostArray, isWorthwhile, runKernel, runnable, type StoredAs, testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { decoded, GGML_BLOCKS, GGML_ELEMENTS, type GGMLElement, randomBlocks } from '../values/ggml-decoder.ts';
import { cases } from './cases.ts';
import { inputsOf } from './inputs.ts';

/** The operands in which a model's parameters are read. */
const PARAMETERS: Readonly<Record<string, readonly string[]>> = {
  matmul: ['b', 'bias'],
  embedding: ['weight'],
  positionEmbedding: ['positionWeight'],
  layernorm: ['weight', 'bias'],
  layernormBackward: ['weight'],
  layernormGradients: ['weight'],
  rmsnorm: ['weight'],
  rmsnormBackward: ['weight'],
  rmsnormGradients: ['weight'],
  headNorm: ['weight'],
  headNormBackward: ['weight'],
  copyRows: ['x'],
};

/** The operands in which activations are read that are kept in bf16. */
const ACTIVATIONS: Readonly<Record<string, readonly string[]>> = {
  matmul: ['a', 'b', 'residual', 'preactivation'],
  layernorm: ['x'],
  layernormBackward: ['x'],
  layernormGradients: ['x'],
  rmsnorm: ['x'],
  rmsnormBackward: ['x'],
  rmsnormGradients: ['x'],
  headNormBackward: ['normal'],
  headNormParameterGrad: ['normal'],
  attention: ['q', 'k', 'v'],
  attentionBackwardQ: ['qkv', 'y'],
  attentionBackwardKV: ['qkv'],
  copyTensor: ['x'],
  dropout: ['x'],
  geluBackward: ['x'],
  geluErfBackward: ['x'],
  swiglu: ['gate', 'up'],
  swigluBackward: ['up'],
  geglu: ['gate', 'up'],
  gegluBackward: ['up'],
  add: ['a'],
};

/** Its values are rounded products: only what multiplies with them takes it. */
const OF_PRODUCTS: Readonly<Record<string, readonly string[]>> = { matmul: ['b'] };

/**
 * A value in blocks is a product: where it is added to another, as a bias is, or a weight to its gain, a compiler may choose
 * which of them it rounds before the sum: an H100's does. SwiftShader's rounds each.
 */
const OF_BLOCKS_COMPILED: typeof PARAMETERS = {
  ...PARAMETERS,
  matmul: ['b'],
  layernorm: ['weight'],
  headNormBackward: [],
};

const { name, architecture } = (await testDevice()).adapter;
const roundsEach = /swiftshader/i.test(`${name} ${architecture}`);

function operandsIn(element: NarrowElement, kernel: string): readonly string[] {
  const inBlocks = roundsEach || element === 'bf16' || element === 'f16' ? PARAMETERS : OF_BLOCKS_COMPILED;
  return (element === 'nf4' ? OF_PRODUCTS : inBlocks)[kernel] ?? [];
}

const ELEMENTS = ['bf16', 'f16', 'q8_0', 'q4_0', 'nf4', ...GGML_ELEMENTS] as const;

const isGGML = (element: NarrowElement): element is GGMLElement => GGML_ELEMENTS.some((other) => other === element);

/** The values of an operand as they are once stored, and what they are stored as. */
function storedValues(given: HostArray, element: (typeof ELEMENTS)[number]): { values: HostArray; as: StoredAs } {
  if (!isGGML(element)) return { values: rounded(given, element), as: { element } };
  const bytes = randomBlocks(element, Math.ceil(given.length / GGML_BLOCKS[element].elements), 5);
  return { values: decoded(element, bytes).slice(0, given.length), as: { element, bytes } };
}

/** The values as they are once stored; among them zeros of both signs, the smallest and the largest of sixteen bits. */
function rounded(values: HostArray, element: Exclude<MadeElement, 'f32'>): Float32Array {
  const given = Float32Array.from(values);
  const { elements } = STORED_BLOCKS[element];
  const { narrow, widen } = CODECS[element];
  if (elements > 1) {
    const whole = new Float32Array(Math.ceil(given.length / elements) * elements);
    whole.set(given);
    // A block of zeros, one whose scale is a subnormal binary16, and one that is too small for anything.
    [0, -(2 ** -13), 2 ** -125].forEach((value, i) => {
      const first = (i + 1) * elements;
      if (whole.length >= first + elements) whole.fill(value, first, first + elements);
    });
    return widen(narrow(whole), given.length);
  }
  const special = element === 'bf16' ? [2 ** -126, -(2 ** -133), 2 ** 60] : [2 ** -14, -(2 ** -24), 65504];
  [0, -0, ...special].forEach((value, i) => {
    if (7 * i + 5 < given.length) given[7 * i + 5] = value;
  });
  return widen(narrow(given), given.length);
}

const bits = (results: Record<string, HostArray>) =>
  Object.fromEntries(
    Object.entries(results).map(([name, { buffer, byteOffset, length }]) => [
      name,
      new Uint32Array(buffer, byteOffset, length),
    ]),
  );

/** Of those for GPUs the compilation alone takes seconds on a software adapter. */
const isForGPU = ({ name }: { name: string }) => name.startsWith('tiled') || name === 'staged' || name === 'block';

/** What a variant reads that takes so long: all in `npm run test:all`. A read is the same in every variant, which the quick ones have all of. */
const FEW_ELEMENTS: Readonly<Record<string, readonly NarrowElement[]>> = { tiled: ['bf16'], tiledSmall: ['q8_0'] };

const isSmall = (kernel: Kernel<unknown>, problem: unknown) =>
  Object.values(kernel.operands(problem)).every(({ size }) => size < 1e5);

describe.each(cases.filter(({ kernel }) => kernel.name in PARAMETERS))('$kernel.name', async (kernelCase) => {
  const { kernel, problems } = kernelCase;
  const small = problems.filter((problem) => isSmall(kernel, problem));
  for (const variant of await runnable(kernel)) {
    // A read of a format is the same in every kernel: two of them have it, by one value and by four.
    const reads =
      EVERY_CASE ||
      ['embedding', 'matmul rows', 'matmul block'].some((name) => `${kernel.name} ${variant.name}`.startsWith(name));
    const elements = ELEMENTS.filter(
      (element) =>
        operandsIn(element, kernel.name).length > 0 &&
        (reads || !isGGML(element)) &&
        (EVERY_CASE || (FEW_ELEMENTS[variant.name] ?? ELEMENTS).includes(element)),
    );
    it.each(elements)(`${variant.name} has the bits of f32 where its weights are %s`, async (element) => {
      let compared = 0;
      const stride = EVERY_CASE ? 1 : Math.ceil(small.length / (isGGML(element) || !THOROUGH ? 2 : 4));
      for (const [n, problem] of small.entries()) {
        if (n % stride !== 0 || !(await isWorthwhile(variant, n, 3 * stride))) continue;
        const names = Object.keys(kernel.operands(problem)).filter((name) =>
          operandsIn(element, kernel.name).includes(name),
        );
        const data = inputsOf(kernelCase, problem);
        const found = names.map((name) => [name, storedValues(data[name] ?? new Float32Array(), element)] as const);
        for (const [name, { values }] of found) data[name] = values;
        const wide = await runKernel(kernel, variant, problem, data);
        const stored = Object.fromEntries(found.map(([name, { as }]) => [name, as]));
        expect(bits(await runKernel(kernel, variant, problem, data, stored)), JSON.stringify(problem)).toEqual(
          bits(wide),
        );
        compared++;
      }
      expect(compared).toBeGreaterThan(0);
    });
  }
});

describe.each(cases.filter(({ kernel }) => kernel.name in ACTIVATIONS))('$kernel.name', async (kernelCase) => {
  const { kernel, problems } = kernelCase;
  const small = problems.filter((problem) => isSmall(kernel, problem));
  const variants = (await runnable(kernel)).filter((variant) => EVERY_CASE || !isForGPU(variant));
  for (const variant of variants) {
    it.each(['bf16', 'f16'] as const)(
      `${variant.name} has the bits of f32 where its activations are %s`,
      async (element) => {
        let compared = 0;
        const stride = EVERY_CASE ? 1 : Math.ceil(small.length / 2);
        for (const [n, problem] of small.entries()) {
          if (n % stride !== 0 || !(await isWorthwhile(variant, n, 3 * stride))) continue;
          // What the problem only reads: a pre-activation is written, too, and never stored narrow there.
          const names = Object.entries(kernel.operands(problem))
            .filter(([name, { access }]) => access === 'read' && (ACTIVATIONS[kernel.name] ?? []).includes(name))
            .map(([name]) => name);
          const data = inputsOf(kernelCase, problem);
          for (const name of names) {
            const given = Float32Array.from(data[name] ?? []);
            data[name] = CODECS[element].widen(CODECS[element].narrow(given), given.length);
          }
          const wide = await runKernel(kernel, variant, problem, data);
          const stored = Object.fromEntries(names.map((name) => [name, { element }]));
          expect(bits(await runKernel(kernel, variant, problem, data, stored)), JSON.stringify(problem)).toEqual(
            bits(wide),
          );
          compared++;
        }
        expect(compared).toBeGreaterThan(0);
      },
    );
  }
});

describe('the table of operands', () => {
  it.each(FAMILY_NAMES)('has every one in which a %s reads activations that are kept narrow', (family) => {
    const base = makeModel(configOfShape({ family, layers: 2, width: 16, heads: 2, context: 8 }));
    for (const model of [base, withLora(base, { rank: 2, dropout: 0.1 })]) {
      const { first } = traceStep(model, 2, 8, { activationDtype: 'bf16' });
      for (const { kernel, problem, operands } of onTensors(first)) {
        for (const [operand, { access }] of Object.entries(kernel.operands(problem))) {
          if (!operands[operand]?.stored || isNarrowing(kernel)) continue;
          expect(access).toBe('read');
          expect(ACTIVATIONS[kernel.name] ?? [], `${kernel.name} reads an activation as ${operand}`).toContain(operand);
        }
      }
    }
  });

  it.each(FAMILY_NAMES)('has every one in which a %s reads its frozen weights', (family) => {
    const model = withLora(makeModel(configOfShape({ family, layers: 1, width: 16, heads: 2, context: 8 })), {
      rank: 2,
    });
    const { first } = traceStep(model, 1, 8);
    for (const { kernel, problem, operands } of onTensors(first)) {
      for (const [operand, { access }] of Object.entries(kernel.operands(problem))) {
        if (operands[operand]?.role !== 'parameter') continue;
        expect(access).toBe('read');
        expect(PARAMETERS[kernel.name] ?? [], `${kernel.name} reads a parameter as ${operand}`).toContain(operand);
      }
    }
  });
});

describe('a shader', () => {
  const text = '@group(0) @binding(2) var<storage, read> b: array<f32>;\nfn f(i: u32) -> f32 { return b[i + 1u]; }';

  it('stays as it is where its operands are f32', () => {
    expect(readingStored(text, 'b', 'f32')).toBe(text);
  });

  it('reads nothing of a narrow operand but through its words', () => {
    const narrowed = readingStored(text, 'b', 'bf16');
    expect(narrowed).toContain('b: array<u32>');
    expect(narrowed).toContain('return b_at(i + 1u);');
  });

  it('of which an operand is written takes no narrow one', () => {
    expect(() => readingStored(text.replace('read>', 'read_write>'), 'b', 'f16')).toThrow('only reads');
  });

  it('is bound to whole words', () => {
    expect([storedBytes('f32', 3), storedBytes('bf16', 3), storedBytes('f16', 4), storedBytes('bf16', 1)]).toEqual([
      12, 8, 8, 4,
    ]);
    expect([storedBytes('q8_0', 64), storedBytes('q8_0', 96), storedBytes('q8_0', 1)]).toEqual([68, 104, 36]);
    expect([storedBytes('q4_0', 64), storedBytes('q4_0', 96), storedBytes('q4_0', 1)]).toEqual([36, 56, 20]);
    expect([storedBytes('nf4', 64), storedBytes('nf4', 65)]).toEqual([36, 72]);
  });
});
