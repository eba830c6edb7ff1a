// The programs of a training step, traced from a model without a device: a step's first micro-batch, the ones
// that follow, the update, and the evaluation. Pure: the trainer runs them, tests interpret them, and a dry
// run predicts from them.

import { checkTokens } from '../../data/batches.ts';
import { Graph } from '../../graph/graph.ts';
import type { GridPlace } from '../../graph/grid-place.ts';
import {
  type ActivationCoins,
  type ActivationDtype,
  narrowActivations,
  throwActivations,
} from '../../graph/narrow-activations.ts';
import {
  type BackwardPasses,
  type BlockTensors,
  backwardPassesOf,
  decisionInBackward,
  makeBlockTensors,
  makeStepScalars,
  OPTIMIZER_DEVICES,
  optimizerStep,
  type StepScalars,
  splitBlocks,
  type Update,
  updateInBackward,
} from '../../graph/operators/optimizer.ts';
import { blockNumbers, type StageBlocks, stageBlocks } from '../../graph/operators/stages.ts';
import { cut, fromZero, withResults } from '../../graph/pipeline.ts';
import { makeTensor, type Program, type Tensor } from '../../graph/program.ts';
import type { InBackward } from '../../graph/update-in-backward.ts';
import { KEY_WORDS } from '../../kernels/dropout.ts';
import { momentDtypeOf, trainingDtypeOf, updatedOn } from '../../memory/layout/chunk-map.ts';
import { BatchInputs } from '../../nn/inputs.ts';
import { lookup, type Model, parameterTensors } from '../../nn/model.ts';
import { isTied, type ModelStages, modelStages, onStage, ownerIn } from '../../nn/pipeline-parallel.ts';
import { assert, HoldfastError } from '../../util/errors.ts';

export interface StepPrograms extends BlockTensors {
  /** Forward and backward of a step's first micro-batch: gradients and loss start anew. */
  readonly first: Program;
  /** Forward and backward of the micro-batches that follow: gradients and loss add up. */
  readonly next: Program;
  /** From the complete gradients to the decision to clip or to skip, and on to the new parameters. */
  readonly update: Program;
  /** Where chunks are updated inside the backward pass: what it takes beside. @default behind it */
  readonly inBackward?: InBackward;
  /** Forward only: the loss adds up. */
  readonly evaluate: Program;
  /** Of several stages, behind all batches of an evaluation: what the last one has added up is on all of them. */
  readonly evaluated?: Program;
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
  /** Where these are the programs of one of several stages. */
  readonly stages?: ModelStages;
  /** Gradients of which the first and the last stage each have a part of the sum. */
  readonly tied: readonly Tensor[];
}

/** The loss of a model alone: what a step evaluates with, by itself. */
export interface EvaluationProgram {
  readonly program: Program;
  /** What a batch brings. */
  readonly inputs: BatchInputs;
  /** (1) what the losses of batches add up to. */
  readonly lossSum: Tensor;
  /** (B) of each label, whether it is told right, where the objective asks for that. */
  readonly hits: Tensor | undefined;
}

/**
 * Checks the sizes of a batch before anything of them is made. Errors: HoldfastError for what is no size, for sequences longer
 * than the model's context, and for more tokens than are held at once.
 */
export function checkBatch({ shape }: Pick<Model, 'shape'>, batch: number, seq: number): void {
  checkTokens('batch', batch, seq);
  const { context } = shape;
  if (seq > context)
    throw new HoldfastError(
      `a sequence of ${seq} tokens is longer than the model's context of ${context}; use at most that`,
    );
}

/** Traces the loss on batches of `batch` sequences of `seq` tokens. `adapter`: as in ForwardOptions. Errors: as `checkBatch`. */
export function traceEvaluation(
  model: Model,
  { batch, seq, packed = false, adapter }: { batch: number; seq: number; packed?: boolean; adapter?: string },
): EvaluationProgram {
  checkBatch(model, batch, seq);
  const inputs = inputsOf(model, batch, seq, packed);
  const { lossSum } = makeStepScalars();
  const hits = hitsOf(model, batch);
  const g = new Graph('evaluate');
  const weights = lookup(parameterTensors(model, false));
  const features = model.forward(g, inputs, weights, adapter === undefined ? {} : { adapter });
  model.objective.loss(g, features, inputs, { sum: lossSum, accumulate: true, hitsOfRows: hits });
  return { program: g.program(), inputs, lossSum, hits };
}

const hitsOf = ({ objective }: Model, rows = 1): Tensor | undefined =>
  objective.accuracy ? makeTensor('hits', [rows], 'persistent') : undefined;

function inputsOf(model: Model, batch: number, seq: number, packed: boolean): BatchInputs {
  const { objective, shape } = model;
  return new BatchInputs([...model.inputs(seq, packed), ...objective.labels(shape.classes, seq)], batch, seq);
}

/** How a step is done, of what is not the model's. */
export interface StepOptions {
  /** Whether sequences hold several documents each. @default false */
  readonly packed?: boolean | undefined;
  /** What activations are kept as for the backward pass. @default 'f32' */
  readonly activationDtype?: ActivationDtype | undefined;
  /** What they are moved by in its place, in f32. @default nothing */
  readonly activationCoins?: ActivationCoins | undefined;
  /** Among the stages that have the model's blocks. @default there is one */
  readonly place?: GridPlace | undefined;
  /** Among the ranks that share layers and have some of the rows between these. @default each has all */
  readonly rows?: GridPlace | undefined;
  /** Of a step that updates in its backward pass. @default it updates at its end */
  readonly passes?: BackwardPasses | undefined;
  /** See Program. @default true */
  readonly appliesAlone?: boolean | undefined;
}

/** Backward passes of a step of this model that updates within one. */
export const passesIn = (
  { parameters }: Model,
  update: Update,
  { clip }: { readonly clip: number },
): BackwardPasses | undefined => backwardPassesOf(update, { clip, dtype: trainingDtypeOf(parameters) });

/**
 * Traces a model and its objective on micro-batches of `batch` sequences of `seq` tokens. Errors: as
 * `checkBatch`; HoldfastError for a model that so many stages cannot have.
 */
export function traceStep(model: Model, batch: number, seq: number, options: StepOptions = {}): StepPrograms {
  checkBatch(model, batch, seq);
  const { packed = false, activationDtype = 'f32', activationCoins, passes, appliesAlone } = options;
  const { place = { rank: 0, size: 1 } } = options;
  const rows = options.rows && { ranks: options.rows.size, rank: options.rows.rank, batch, seq };
  const { objective } = model;
  const inputs = inputsOf(model, batch, seq, packed);
  const dtype = trainingDtypeOf(model.parameters);
  const momentDtype = momentDtypeOf(model.parameters);
  const scalars = makeStepScalars(dtype, momentDtype);
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
    const g = new Graph(name, { gradientOf, accumulate, ...(backward && { rows }) });
    const features = model.forward(g, inputs, weights, backward && dropoutKey ? { dropout: dropoutKey } : {});
    const scale = backward ? { scale: scalars.lossScale } : {};
    const counted = !backward && hits ? { hits } : {};
    objective.loss(g, features, inputs, { sum: scalars.lossSum, accumulate, ...scale, ...counted });
    if (!backward) return g.program();
    g.backward([...parameters.values()]);
    const program = { ...g.program(), appliesAlone };
    if (activationCoins) return throwActivations(program, activationCoins);
    return activationDtype === 'f32' ? program : narrowActivations(program, activationDtype);
  };
  const first = trace('first micro-batch', false, true);
  const stages = place.size > 1 ? modelStages(model, first, place) : undefined;
  const own = <P extends Program>(program: P): P => (stages ? cut(program, stages, place.rank) : program);
  const here = stages ? onStage([...parameters.values()], stages) : [...parameters.values()];
  const evaluate = own(trace('evaluate', true, false));
  const trained = here.filter(({ wantsGradient }) => wantsGradient);
  const tied = stages ? trained.filter((tensor) => isTied(stages, tensor)).map(gradientOf) : [];
  // How moments are rounded goes by which of the whole model's blocks they are of.
  const isNumbered = stages !== undefined && momentDtype === 'bf16';
  const blocks = makeBlockTensors(trained, isNumbered ? blockNumbers(trained, [...gradients.values()]) : undefined);
  const update = new Graph('update', { phase: 'update' });
  const how = {
    devices: OPTIMIZER_DEVICES.filter((device) => updatedOn(device, model.parameters).length > 0),
    dtype,
    momentDtype,
    split: splitBlocks(trained),
    stages: stages && squaresIn(stages, [...gradients.values()], trained),
  };
  const decide = new Graph('decision', { phase: 'update' });
  if (passes === undefined) optimizerStep(update, blocks, scalars, how);
  else {
    decisionInBackward(decide, blocks, scalars, passes, how);
    updateInBackward(update, blocks, scalars, passes, how);
  }
  return {
    ...blocks,
    ...(passes !== undefined && { inBackward: { passes, decide: decide.program() } }),
    update: update.program(),
    // Of a gradient that two stages have, the last one's part is written first in the whole model's program.
    first: place.rank === place.size - 1 ? own(first) : fromZero(own(first), tied),
    next: own(trace('next micro-batch', true, true)),
    evaluate,
    ...(stages && {
      evaluated: withResults(nothing('evaluated'), [scalars.lossSum, ...(hits ? [hits] : [])], place.size),
    }),
    parameters: new Map(here.map((tensor) => [tensor.name, tensor])),
    gradients: new Map(trained.map((tensor) => [tensor.name, gradientOf(tensor)])),
    inputs,
    scalars,
    hits,
    dropoutKey,
    ...(stages && { stages }),
    tied,
  };
}

const nothing = (name: string): Program => ({ name, instructions: [], outputs: [] });

/** The squares of all stages: those of a gradient that two of them have count once. */
function squaresIn(stages: ModelStages, all: readonly Tensor[], own: readonly Tensor[]): StageBlocks {
  const others = own.filter((tensor) => ownerIn(stages, tensor) !== stages.place.rank);
  return stageBlocks(
    all.map((tensor) => ({ size: tensor.size, stage: ownerIn(stages, tensor) })),
    stages.place,
    others,
  );
}
