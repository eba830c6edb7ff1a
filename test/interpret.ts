// Programs on plain arrays: traces a micro-batch as the trainer does, and executes any program in float64
// with the kernels' own references. An oracle for the traced backward pass that no GPU has a part in.
//
// Invariant: what an instruction did not write is NaN, so that reading it shows in the result.

import type { Batch } from '../src/data/batches.ts';
import { Graph, makeTensor, type Program, type Tensor } from '../src/graph/graph.ts';
import { crossEntropyHead } from '../src/graph/operators/cross-entropy.ts';
import { makeTokens, type Tokens } from '../src/graph/operators/embedding.ts';
import { makeStepScalars, type StepScalars } from '../src/graph/operators/optimizer.ts';
import { tokenIndex } from '../src/kernels/embedding.ts';
import type { Arrays } from '../src/kernels/kernel.ts';
import { lookup, type Model, parameterTensors } from '../src/nn/model.ts';

export interface Traced {
  /** Forward and backward; with `accumulate`, gradients and loss add to what is there. */
  readonly program: Program;
  readonly parameters: ReadonlyMap<string, Tensor>;
  /** By parameter name: trainable ones only. */
  readonly gradients: ReadonlyMap<string, Tensor>;
  readonly tokens: Tokens;
  readonly scalars: StepScalars;
}

/** The programs of Trainer.create: a step's first micro-batch, one that follows, and an evaluation. */
export function traceModel(model: Model, batch: number, seq: number): Record<'first' | 'next' | 'evaluate', Traced> {
  const tokens = makeTokens(batch, seq);
  const scalars = makeStepScalars();
  const parameters = parameterTensors(model, true);
  const gradients = new Map<string, Tensor>();
  for (const [name, { shape, wantsGradient }] of parameters) {
    if (wantsGradient) gradients.set(name, makeTensor(name, shape, 'gradient'));
  }
  const weights = lookup(parameters);
  const trace = (name: string, backward: boolean, accumulate: boolean): Traced => {
    const g = new Graph(name, { gradientOf: ({ name }) => gradients.get(name) as Tensor, accumulate });
    const { hidden, head } = model.forward(g, tokens, weights);
    const scale = backward ? { scale: scalars.lossScale } : {};
    crossEntropyHead(g, hidden, head, tokens, { sum: scalars.lossSum, accumulate, ...scale });
    if (backward) g.backward([...parameters.values()]);
    return { program: g.program(), parameters, gradients, tokens, scalars };
  };
  return {
    first: trace('first micro-batch', true, false),
    next: trace('next micro-batch', true, true),
    evaluate: trace('evaluate', false, true),
  };
}

/** The memory of a program: a Float64Array for each tensor, NaN until written. */
export class Memory {
  readonly #values = new Map<Tensor, Float64Array>();

  of(tensor: Tensor): Float64Array {
    let values = this.#values.get(tensor);
    if (!values) this.#values.set(tensor, (values = new Float64Array(tensor.size).fill(NaN)));
    return values;
  }

  set(tensor: Tensor, values: ArrayLike<number>): void {
    this.of(tensor).set(values);
  }

  /** What the trainer writes before a micro-batch: tokens, their index, position 0, the loss's scale. */
  setInputs(model: Model, { tokens, scalars }: Traced, { ids, targets }: Batch, lossScale: number): void {
    const index = tokenIndex(ids);
    this.set(tokens.ids, ids);
    this.set(tokens.targets, targets);
    this.set(tokens.position, [0]);
    this.set(tokens.index.tokens, index.tokens);
    this.set(tokens.index.starts, index.starts);
    this.set(tokens.index.order, index.order);
    this.set(scalars.lossScale, [lossScale]);
    for (const { tensor, values } of model.constants) this.set(tensor, values);
  }

  /** Executes a program. Activations of earlier programs are forgotten, as arenas are used again. */
  run({ instructions }: Program): void {
    for (const tensor of [...this.#values.keys()]) if (tensor.role === 'activation') this.#values.delete(tensor);
    for (const { kernel, problem, operands } of instructions) {
      const arrays: Arrays = {};
      for (const [name, { access, size }] of Object.entries(kernel.operands(problem))) {
        // Views of exactly the operand's size: a reference that touches more changes nothing beyond it.
        const view = this.of(operands[name] as Tensor).subarray(0, size);
        if (access === 'write') view.fill(NaN);
        arrays[name] = view;
      }
      kernel.reference(problem, arrays);
    }
  }
}
