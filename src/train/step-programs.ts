// The programs of a training step, traced from a model without a device: a step's first micro-batch, the ones
// that follow, the update, and the evaluation. Pure: the trainer runs them, tests interpret them, and a dry
// run predicts from them.

import { Graph, makeTensor, type Program, type Tensor } from '../graph/graph.ts';
import { type ActivationDtype, narrowActivations } from '../graph/narrow-activations.ts';
import {
  type BlockTensors,
  makeBlockTensors,
  makeStepScalars,
  type OptimizerDevice,
  optimizerStep,
  type StepScalars,
  splitBlocks,
} from '../graph/operators/optimizer.ts';
import { KEY_WORDS } from '../kernels/dropout.ts';
import { trainingDtypeOf } from '../memory/layout/chunk-map.ts';
import { BatchInputs } from '../nn/inputs.ts';
import { lookup, type Model, parameterTensors } from '../nn/model.ts';
import { assert } from '../util/errors.ts';

export interface StepPrograms extends BlockTensors {
  /** Forward and backward of a step's first micro-batch: gradients and loss start anew. */
  readonly first: Program;
  /** The same for the micro-batches that follow: gradients and loss add up. */
  readonly next: Program;
  /** From the complete gradients to the decision to clip or to skip, and on to the new parameters. */
  readonly update: Program;
  /** Forward only: the loss adds up. */
  readonly evaluate: Program;
  readonly parameters: ReadonlyMap<string, Tensor>;
  /** By parameter name: the trainable ones. */
  readonly gradients: ReadonlyMap<string, Tensor>;
  /** What a micro-batch brings. */
  readonly inputs: BatchInputs;
  readonly scalars: StepScalars;
  /** (1) labels that the evaluation finds told right, added up, where the objective asks for them. */
  readonly hits: Tensor | undefined;
  /** The randomness of a micro-batch, where something of the model is dropped: (2) u32. */
  readonly dropoutKey: Tensor | undefined;
}

/** The loss of a model alone: what a step evaluates with, by itself. */
export interface EvaluationProgram {
  readonly program: Program;
  /** What a batch brings. */
  readonly inputs: BatchInputs;
  /** (1) what the losses of batches add up to. */
  readonly lossSum: Tensor;
  /** (1) labels that are told right, added up, where the objective asks for them. */
  readonly hits: Tensor | undefined;
}

/** Traces the loss on batches of `batch` sequences of `seq` tokens. `adapter`: as in ForwardOptions. */
export function traceEvaluation(
  model: Model,
  { batch, seq, packed = false, adapter }: { batch: number; seq: number; packed?: boolean; adapter?: string },
): EvaluationProgram {
  const inputs = inputsOf(model, batch, seq, packed);
  const { lossSum } = makeStepScalars();
  const hits = hitsOf(model);
  const g = new Graph('evaluate');
  const weights = lookup(parameterTensors(model, false));
  const features = model.forward(g, inputs, weights, adapter === undefined ? {} : { adapter });
  model.objective.loss(g, features, inputs, { sum: lossSum, accumulate: true, hits });
  return { program: g.program(), inputs, lossSum, hits };
}

const hitsOf = ({ objective }: Model): Tensor | undefined =>
  objective.accuracy ? makeTensor('hits', [1], 'persistent') : undefined;

function inputsOf(model: Model, batch: number, seq: number, packed: boolean): BatchInputs {
  const { objective, shape } = model;
  return new BatchInputs([...model.inputs(seq, packed), ...objective.labels(shape.classes, seq)], batch, seq);
}

/** Traces a model and its objective on micro-batches of `batch` sequences of `seq` tokens; `packed`: of several documents each. `activationDtype`: what activations are kept as for the backward pass. */
export function traceStep(
  model: Model,
  batch: number,
  seq: number,
  packed = false,
  optimizerDevice: OptimizerDevice = 'gpu',
  activationDtype: ActivationDtype = 'f32',
): StepPrograms {
  const { objective } = model;
  const inputs = inputsOf(model, batch, seq, packed);
  const dtype = trainingDtypeOf(model.parameters);
  const scalars = makeStepScalars(dtype);
  const hits = hitsOf(model);
  const drops = (model.adapters ?? []).some(({ options }) => options.dropout > 0);
  const dropoutKey = drops ? makeTensor('dropout key', [KEY_WORDS], 'persistent', 'u32') : undefined;
  const parameters = parameterTensors(model, true);
  const weights = lookup(parameters);
  const gradients = new Map<string, Tensor>();
  for (const [name, tensor] of parameters) {
    if (tensor.wantsGradient) gradients.set(name, makeTensor(name, tensor.shape, 'gradient'));
  }
  const gradientOf = ({ name }: Tensor): Tensor => {
    const gradient = gradients.get(name);
    assert(gradient, `${name} trains without a gradient`);
    return gradient;
  };
  const trace = (name: string, accumulate: boolean, backward: boolean): Program => {
    const g = new Graph(name, { gradientOf, accumulate });
    const features = model.forward(g, inputs, weights, backward && dropoutKey ? { dropout: dropoutKey } : {});
    const scale = backward ? { scale: scalars.lossScale } : {};
    const counted = !backward && hits ? { hits } : {};
    objective.loss(g, features, inputs, { sum: scalars.lossSum, accumulate, ...scale, ...counted });
    if (!backward) return g.program();
    g.backward([...parameters.values()]);
    return activationDtype === 'f32' ? g.program() : narrowActivations(g.program());
  };
  const blocks = makeBlockTensors([...gradients.values()]);
  const update = new Graph('update', { phase: 'update' });
  const trained = [...parameters.values()].filter(({ wantsGradient }) => wantsGradient);
  optimizerStep(update, blocks, scalars, optimizerDevice, dtype, splitBlocks(trained));
  return {
    ...blocks,
    update: update.program(),
    first: trace('first micro-batch', false, true),
    next: trace('next micro-batch', true, true),
    evaluate: trace('evaluate', true, false),
    parameters,
    gradients,
    inputs,
    scalars,
    hits,
    dropoutKey,
  };
}
