// Gradient rules of the operators that GPT-2 and Llama fuse away, used where a tensor has several readers: the
// standalone GELU and the sum; and attention under every mask. Central differences in float64 on the interpreted
// program.

import { describe, expect, test } from 'vitest';
import { Graph } from '../../src/graph/graph.ts';
import { gated, tanh } from '../../src/graph/operators/activation.ts';
import { add } from '../../src/graph/operators/add.ts';
import { attention, type Cache, type Mask } from '../../src/graph/operators/attention.ts';
import { crossEntropyHead } from '../../src/graph/operators/cross-entropy.ts';
import { makeTokens, type Tokens } from '../../src/graph/operators/embedding.ts';
import { firstRow, patchRows, withFirstRow } from '../../src/graph/operators/image.ts';
import { linear } from '../../src/graph/operators/linear.ts';
import { makeStepScalars } from '../../src/graph/operators/optimizer.ts';
import { makeTensor, type Program, type Tensor } from '../../src/graph/program.ts';
import { documentStarts } from '../../src/kernels/attention-mask.ts';
import { at } from '../../src/util/at.ts';
import { entry } from '../entry.ts';
import { Memory } from '../interpret.ts';

const [BATCH, SEQ, WIDTH, VOCABULARY] = [2, 3, 4, 5];
const TARGETS = [0, 3, -100, 4, 1, 2];
const values = (size: number, seed: number) => Float64Array.from({ length: size }, (_, i) => Math.sin(seed + 1.7 * i));

/** Every element of the gradients of these parameters, against differences of the loss that a head puts on `make`. */
function expectGradients(
  parameters: readonly Tensor[],
  make: (g: Graph, tokens: Tokens) => Tensor,
  inputs: readonly (readonly [Tensor, ArrayLike<number>])[] = [],
): void {
  const gradients = new Map<Tensor, Tensor>(
    parameters.map((p) => [p, makeTensor(`d ${p.name}`, p.shape, 'gradient')] as const),
  );
  const tokens = makeTokens(BATCH, SEQ);
  const targets = makeTensor('targets', [BATCH, SEQ], 'persistent', 'i32');
  const scalars = makeStepScalars();
  const head = at(parameters, parameters.length - 1);
  const trace = (backward: boolean): Program => {
    const g = new Graph('test', { gradientOf: (p) => entry(gradients, p) });
    const y = make(g, tokens);
    const scale = backward ? { scale: scalars.lossScale } : {};
    crossEntropyHead(g, y, { weight: head }, targets, { sum: scalars.lossSum, accumulate: false, ...scale });
    if (backward) g.backward(parameters);
    return g.program();
  };
  const point = new Map(parameters.map((p, i) => [p, values(p.size, i + 1)]));
  const run = (program: Program): Memory => {
    const memory = new Memory();
    for (const [tensor, data] of [...point, ...inputs]) memory.set(tensor, data);
    memory.set(tokens.position, [0]);
    memory.set(targets, TARGETS);
    memory.set(scalars.lossScale, [1]);
    memory.run(program);
    return memory;
  };
  const trained = run(trace(true));
  const forward = trace(false);
  const loss = () => run(forward).of(scalars.lossSum)[0]!;
  const STEP = 1e-5;
  for (const [tensor, data] of point) {
    const gradient = trained.of(entry(gradients, tensor));
    for (let i = 0; i < data.length; i++) {
      const old = data[i]!;
      data[i] = old + STEP;
      const above = loss();
      data[i] = old - STEP;
      const below = loss();
      data[i] = old;
      // Truncation STEP^2 times a third derivative of some units, rounding 2^-52 * loss / STEP.
      expect(Math.abs((above - below) / (2 * STEP) - gradient[i]!), `${tensor.name}[${i}]`).toBeLessThan(1e-8);
    }
  }
}

const parameter = (name: string, shape: number[]) => makeTensor(name, shape, 'parameter', 'f32', true);

test('tanh and add, with an input that three operators read', () => {
  const x = parameter('x', [BATCH, SEQ, WIDTH]);
  expectGradients([x, parameter('head', [VOCABULARY, WIDTH])], (g) => {
    const once = add(g, tanh(g, x), x);
    return add(g, once, add(g, once, x));
  });
});

test('tanh, with an input that another operator reads', () => {
  const x = parameter('x', [BATCH, SEQ, WIDTH]);
  expectGradients([x, parameter('head', [VOCABULARY, WIDTH])], (g) => add(g, tanh(g, tanh(g, x)), x));
});

test('a parameter that one operator alone reads, which would hand its gradient on without a copy', () => {
  const head = parameter('head', [VOCABULARY, WIDTH]);
  const [x, y] = [parameter('x', [BATCH, SEQ, WIDTH]), parameter('y', [BATCH, SEQ, WIDTH])];
  expectGradients([x, head], (g) => tanh(g, x));
  expectGradients([x, y, head], (g) => add(g, x, y));
  expectGradients([x, y, head], (g) => gated(g, 'silu', x, y, 'gated'));
  const weight = parameter('weight', [WIDTH, WIDTH]);
  expectGradients([x, weight, head], (g) => linear(g, tanh(g, x), weight, { residual: x }));
});

const shape = { heads: 2, kvHeads: 1, headSize: 2 };

/** A mask for rows of `seq` tokens, and the operand that it comes with. */
const masks: Record<
  string,
  (batch: number, seq: number) => { mask: Mask; starts?: [Tensor, Uint32Array | Int32Array] }
> = {
  causal: () => ({ mask: 'causal' }),
  none: () => ({ mask: 'none' }),
  window: () => ({ mask: { window: 2 } }),
  padding: (batch, seq) => {
    const keys = makeTensor('attention mask', [batch, seq], 'persistent', 'i32');
    return {
      mask: { keyMask: keys },
      starts: [keys, Int32Array.of(1, 0, 1, 0, 1, 1, 1, 1).slice(0, batch * seq)],
    };
  },
  documents: (batch, seq) => {
    const starts = makeTensor('document starts', [batch, seq], 'persistent', 'u32');
    return {
      mask: { documentStarts: starts },
      starts: [starts, documentStarts([1, 1, 1, 1, 0, 2, 2, 2].slice(0, batch * seq), seq)],
    };
  },
  'documents within a window': (batch, seq) => {
    const starts = makeTensor('document starts', [batch, seq], 'persistent', 'u32');
    return {
      mask: { documentStarts: starts, window: 2 },
      starts: [starts, documentStarts([1, 1, 1, 1, 0, 2, 2, 2].slice(0, batch * seq), seq, 2)],
    };
  },
};

test('patches behind a row of their own, at their positions, and the first row of what comes of them', () => {
  const position = makeTensor('position', [1], 'persistent', 'u32');
  const image = makeTensor('pixels', [BATCH, 2, 4, 6], 'persistent');
  const weight = parameter('projection', [WIDTH, 2, 2, 3]);
  const bias = parameter('bias', [WIDTH]);
  const [first, positions] = [parameter('first', [1, 1, WIDTH]), parameter('positions', [1, 5, WIDTH])];
  const head = parameter('head', [VOCABULARY, WIDTH]);
  expectGradients(
    [weight, bias, first, positions, head],
    (g) => {
      const rows = linear(g, patchRows(g, image, [2, 3]), weight, { bias, stored: 'out,in' });
      const x = withFirstRow(g, rows, first, positions, position);
      return firstRow(g, add(g, tanh(g, x), x), 'first row');
    },
    [
      [image, values(image.size, 5)],
      [position, [0]],
    ],
  );
});

describe('attention', () => {
  test.each(Object.entries(masks))('%s: has the gradients of its forward pass', (_, maskOf) => {
    const { mask, starts } = maskOf(BATCH, SEQ);
    const qkv = parameter('qkv', [BATCH, SEQ, 8]);
    const head = parameter('head', [VOCABULARY, 4]);
    expectGradients(
      [qkv, head],
      (g, tokens) => attention(g, qkv, tokens, shape, 'y', { mask }),
      starts ? [starts] : [],
    );
  });

  // Not without a mask, or with padding alone, where the first token would have to see the last.
  const causal = Object.entries(masks).filter(([name]) => name !== 'none' && name !== 'padding');
  test.each(causal)('%s: over a cache, a token at a time, is that of the whole row', (_, maskOf) => {
    const seq = 8;
    const rows = values(seq * 8, 3);
    const whole = maskOf(1, seq);
    const run = (memory: Memory, length: number, position: number, given: ReturnType<typeof maskOf>, cache?: Cache) => {
      const tokens = makeTokens(1, length);
      const qkv = makeTensor('qkv', [1, length, 8], 'persistent');
      const g = new Graph('test');
      const y = attention(g, qkv, tokens, shape, 'y', { mask: given.mask, ...(cache && { caches: [cache] }) });
      memory.set(qkv, rows.subarray(position * 8, (position + length) * 8));
      memory.set(tokens.position, [position]);
      if (given.starts) memory.set(given.starts[0], given.starts[1].subarray(0, length));
      memory.run(g.program());
      return [...memory.of(y)];
    };
    const wanted = run(new Memory(), seq, 0, whole);
    const memory = new Memory();
    const part = (name: string) => makeTensor(name, [1, 9, 2], 'persistent');
    const cache = { capacity: 9, keys: part('keys'), values: part('values') };
    const got = Array.from({ length: seq }, (_, t) => {
      const one = maskOf(1, 1);
      if (whole.starts) one.starts?.[1].fill(whole.starts[1][t]!);
      return run(memory, 1, t, one, cache);
    }).flat();
    for (const [i, value] of got.entries()) expect(value, `y[${i}]`).toBeCloseTo(wanted[i]!, 14);
  });
});
