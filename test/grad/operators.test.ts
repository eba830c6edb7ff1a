// Gradient rules of the operators that GPT-2 and Llama fuse away, used where a tensor has several readers: the
// standalone GELU and the sum. Central differences in float64 on the interpreted program.

import { expect, test } from 'vitest';
import { Graph, makeTensor, type Program, type Tensor } from '../../src/graph/graph.ts';
import { gelu } from '../../src/graph/operators/activation.ts';
import { add } from '../../src/graph/operators/add.ts';
import { crossEntropyHead } from '../../src/graph/operators/cross-entropy.ts';
import { makeTokens } from '../../src/graph/operators/embedding.ts';
import { makeStepScalars } from '../../src/graph/operators/optimizer.ts';
import { Memory } from '../interpret.ts';

const [BATCH, SEQ, WIDTH, VOCABULARY] = [2, 3, 4, 5];
const values = (size: number, seed: number) => Float64Array.from({ length: size }, (_, i) => Math.sin(seed + 1.7 * i));

test('gelu and add, with an input that three operators read', () => {
  const x = makeTensor('x', [BATCH, SEQ, WIDTH], 'parameter', 'f32', true);
  const head = makeTensor('head', [VOCABULARY, WIDTH], 'parameter', 'f32', true);
  const gradients = new Map<Tensor, Tensor>([x, head].map((p) => [p, makeTensor(`d ${p.name}`, p.shape, 'gradient')]));
  const tokens = makeTokens(BATCH, SEQ);
  const scalars = makeStepScalars();
  const trace = (backward: boolean): Program => {
    const g = new Graph('test', { gradientOf: (p) => gradients.get(p) as Tensor });
    const once = add(g, gelu(g, x), x);
    const twice = add(g, once, add(g, once, x));
    const scale = backward ? { scale: scalars.lossScale } : {};
    crossEntropyHead(g, twice, head, tokens, { sum: scalars.lossSum, accumulate: false, ...scale });
    if (backward) g.backward([x, head]);
    return g.program();
  };
  const at = new Map([
    [x, values(x.size, 1)],
    [head, values(head.size, 2)],
  ]);
  const run = (program: Program): Memory => {
    const memory = new Memory();
    for (const [tensor, data] of at) memory.set(tensor, data);
    memory.set(tokens.targets, [0, 3, -100, 4, 1, 2]);
    memory.set(scalars.lossScale, [1]);
    memory.run(program);
    return memory;
  };
  const trained = run(trace(true));
  const forward = trace(false);
  const loss = () => run(forward).of(scalars.lossSum)[0];
  const STEP = 1e-5;
  for (const [tensor, data] of at) {
    const gradient = trained.of(gradients.get(tensor) as Tensor);
    for (let i = 0; i < data.length; i++) {
      const old = data[i];
      data[i] = old + STEP;
      const above = loss();
      data[i] = old - STEP;
      const below = loss();
      data[i] = old;
      // Truncation STEP^2 times a third derivative of some units, rounding 2^-52 * loss / STEP.
      expect(Math.abs((above - below) / (2 * STEP) - gradient[i]), `${tensor.name}[${i}]`).toBeLessThan(1e-8);
    }
  }
});
