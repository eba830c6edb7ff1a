// The interface of a model: a configuration, a list of parameters in the order of use, and a forward pass over symbolic
// tensors. Nothing here holds values.

import type { AdapterInfo } from '../formats/adapter.ts';
import type { ModelConfig } from '../formats/config.ts';
import type { ModelShape } from '../formats/families/family.ts';
import { Graph } from '../graph/graph.ts';
import type { Cache } from '../graph/operators/attention.ts';
import type { OptimizerDeviceChoice } from '../graph/operators/optimizer.ts';
import { makeTensor, type Tensor, type TensorSplit } from '../graph/program.ts';
import { STORED_BLOCKS, type StoredElement } from '../kernels/stored.ts';
import { MOMENT_DTYPES, type MomentDtype, TRAINING_DTYPES, type TrainingDtype } from '../memory/layout/kinds.ts';
import { rowStep } from '../memory/layout/layout.ts';
import { callable, having } from '../util/arguments.ts';
import { assert, firstFew, HoldfastError } from '../util/errors.ts';
import { check, oneOf } from '../util/json.ts';
import { checkSource, type TensorSource } from '../values/tensor-source.ts';
import { BatchInputs, type InputSpec, type ModelInputs } from './inputs.ts';
import type { Features, Objective } from './objective.ts';

/** Standard deviation of a normal distribution around 0, the bound of a uniform one around 0, or a constant. */
export type Initial = { normal: number } | { uniform: number } | { constant: number };

/** A tensor that belongs to the model's weights. */
export interface Parameter {
  /** Hugging Face's name. */
  readonly name: string;
  /** Row-major; of a projection see the model's file. */
  readonly shape: readonly number[];
  /** What a new one holds. */
  readonly initial: Initial;
  /** False: its gradient is never computed and the optimizer leaves it alone. @default true */
  readonly trainable?: boolean;
  /** How its elements lie in memory, where it does not train; kernels compute in f32 whatever it is. @default 'f32' */
  readonly stored?: StoredElement;
  /** Where it trains: what kernels read of it; its float32 is the optimizer's. @default 'f32' */
  readonly computedIn?: TrainingDtype;
  /** Where it trains: what the optimizer keeps its moments as. @default 'f32' */
  readonly momentsIn?: MomentDtype;
  /** Where it trains: whether the optimizer updates it on the host, with all that come behind it. @default on the GPU */
  readonly updatedOnHost?: boolean;
  /** Of the first of those: rows that the GPU updates, the first ones. @default none */
  readonly rowsOnGPU?: number;
  /** Set where each of several ranks has a part of it, of this shape. @default it is whole */
  readonly split?: ParameterSplit;
}

/**
 * Which part of a parameter a rank has: of each section of one of its axes, one of as many equal parts as there are ranks; of a
 * table, whose rows they may not divide, rows rounded up.
 */
export interface ParameterSplit extends TensorSplit {
  readonly axis: number;
  /** Of all ranks together, along the axis. */
  readonly sections: readonly number[];
}

export interface ForwardOptions {
  /** Of each layer, one a sequence: generation. */
  caches?: readonly (readonly Cache[])[];
  /** Called with the embedding, the residual stream after each block and the norm behind the last, where there is one, by HF's names. */
  observe?: (name: string, tensor: Tensor) => void;
  /** The name of the adapter in use, or 'none': the model without. @default the one that trains */
  adapter?: string;
  /** (2) u32: the key of dropout, where adapters have it. Absent: nothing is dropped. */
  dropout?: Tensor;
}

/** A model as its description; its weights are a trainer's or a generator's. */
export interface Model {
  /** What it was made from. */
  readonly config: ModelConfig;
  /** In the order of use. */
  readonly parameters: readonly Parameter[];
  /** Its sizes, whatever its family calls them. */
  readonly shape: ModelShape;
  /** What it is trained for. */
  readonly objective: Objective;
  /** Low-rank updates of its weights. @default none */
  readonly adapters?: readonly AdapterInfo[];
  /** What its forward pass reads of a batch, in sequences of `seq` tokens, or in rows of several documents. */
  inputs(seq: number, packed?: boolean): InputSpec[];
  /** Appends the forward pass: of a language model, hidden (B, T, C), to be multiplied with head (V, C); of a classifier, hidden (B, C). */
  forward(g: Graph, inputs: ModelInputs, weights: Weights, options?: ForwardOptions): Features;
}

const anyModel = having<Model>('a model, as makeModel gives', 'parameters');

/** Errors: HoldfastError for what is no model. */
export const checkModel = (model: Model): void => void check(anyModel, model, 'model');

/** Errors: HoldfastError naming parameters of the model that are not among `weights`. */
export function checkComplete({ parameters }: Pick<Model, 'parameters'>, weights: TensorSource): void {
  checkSource(weights, 'weights');
  const given = new Set(weights.names);
  const missing = parameters.map(({ name }) => name).filter((name) => !given.has(name));
  if (missing.length > 0)
    throw new HoldfastError(`the weights have no ${firstFew(missing)}; give every parameter of the model`);
}

/** The parameter tensors by name. */
export type Weights = (name: string) => Tensor;

/** Tensors for a model's parameters; with `trainable`, those that train require gradients. */
export function parameterTensors(model: Model, trainable: boolean): Map<string, Tensor> {
  return new Map(
    model.parameters.map(({ name, shape, split, trainable: own = true }) => [
      name,
      { ...makeTensor(name, shape, 'parameter', 'f32', trainable && own), ...(split && { split }) },
    ]),
  );
}

const storedElement = oneOf(Object.keys(STORED_BLOCKS) as StoredElement[]);

/** The model with those of its parameters frozen that are stored narrower than f32, as `storedAs` has it by their names. Errors: HoldfastError for an element that there is not. */
export function withStored(model: Model, storedAs: (name: string) => StoredElement): Model {
  checkModel(model);
  check(callable, storedAs, 'storedAs');
  const parameters = model.parameters.map((parameter): Parameter => {
    const stored = check(storedElement, storedAs(parameter.name), `what ${parameter.name} is stored as`);
    return stored === 'f32' ? parameter : { ...parameter, trainable: false, stored };
  });
  return { ...model, parameters };
}

/**
 * The model with what trains of it computed with in `dtype`; what is frozen is computed with as it is stored. Errors:
 * HoldfastError for a type that is none of f32, bf16 and f16.
 */
export const computedIn = (model: Model, dtype: TrainingDtype): Model => {
  checkModel(model);
  check(oneOf(TRAINING_DTYPES), dtype, 'dtype');
  return dtype === 'f32' ? model : withTrained(model, { computedIn: dtype });
};

/**
 * The model with the moments of what trains of it kept as `dtype`: in bf16 they are rounded by chance, seeded. Errors:
 * HoldfastError for a type that is neither f32 nor bf16.
 */
export const momentsIn = (model: Model, dtype: MomentDtype): Model => {
  checkModel(model);
  check(oneOf(MOMENT_DTYPES), dtype, 'dtype');
  return dtype === 'f32' ? model : withTrained(model, { momentsIn: dtype });
};

/** Rows in this part (0 to 1) of a tensor, of those at which it may be cut: none is of one dimension. */
export function rowsIn(tensor: Pick<Parameter, 'name' | 'shape'>, part: number): number {
  const [rows = 0, ...others] = tensor.shape;
  if (others.length === 0) return 0;
  const step = rowStep(tensor);
  return Math.min(rows, step * Math.round((part * rows) / step));
}

/**
 * The model with what trains of it updated where it is said to be. `split`: of `auto`, so many tensors on the GPU, the first
 * ones, and such a part of the rows of the next one, and the others on the host.
 */
export function optimizedOn(model: Model, device: OptimizerDeviceChoice, split?: number): Model {
  if (device === 'gpu') return model;
  assert(device === 'cpu' || split !== undefined, 'a split was chosen');
  const onGPU = device === 'cpu' ? 0 : (split ?? 0);
  const whole = Math.floor(onGPU);
  let before = 0;
  const parameters = model.parameters.map((parameter): Parameter => {
    if (parameter.trainable === false) return parameter;
    const place = before++;
    const rowsOnGPU = place === whole ? rowsIn(parameter, onGPU - whole) : 0;
    if (place < whole || rowsOnGPU === parameter.shape[0]) return parameter;
    return { ...parameter, updatedOnHost: true, ...(rowsOnGPU > 0 && { rowsOnGPU }) };
  });
  return { ...model, parameters };
}

const withTrained = (model: Model, facts: Pick<Parameter, 'computedIn' | 'momentsIn'>): Model => ({
  ...model,
  parameters: model.parameters.map((parameter) =>
    (parameter.trainable ?? true) ? { ...parameter, ...facts } : parameter,
  ),
});

export function lookup(tensors: ReadonlyMap<string, Tensor>): Weights {
  return (name) => {
    const tensor = tensors.get(name);
    assert(tensor, `the model has no parameter ${name}`);
    return tensor;
  };
}

/** What a forward pass shows to `observe`, in order; all of it has a row of C for each row of the sequences. */
export function observedNames(model: Model): string[] {
  const names: string[] = [];
  const weights = lookup(parameterTensors(model, false));
  const inputs = new BatchInputs(model.inputs(1), 1, 1);
  model.forward(new Graph('names'), inputs, weights, { observe: (name) => names.push(name) });
  return names;
}

const countOf = (parameters: readonly Parameter[]): number =>
  parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);

/** Number of parameters, tied ones once. */
export function parameterCount(model: Model): number {
  checkModel(model);
  return countOf(model.parameters);
}

/** Number of those that train. */
export function trainedCount({ parameters }: Model): number {
  return countOf(parameters.filter(({ trainable = true }) => trainable));
}
