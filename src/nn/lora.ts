// Low-rank updates (LoRA, Hu et al. 2021) of any linears of any model, by PEFT's rules and names: the weights of the model
// are frozen, and the matrices A and B beside chosen ones are what trains. Not the arithmetic (graph/operators/low-rank.ts),
// and not PEFT's files (formats/peft.ts).
//
// Which weights are linears is read off the model's own forward pass: what it multiplies with, apart from its head.
// Invariant: with B = 0, as adapters begin, or with the adapter 'none', the forward pass has the bits of the model alone.

import {
  type AdaptedLinear,
  type AdapterInfo,
  ALL_LINEAR,
  type CompleteLora,
  isNamed,
  type Linear,
  type LoraOptions,
  type SavedParameter,
  savedName,
} from '../formats/adapter.ts';
import { familyOf } from '../formats/families/index.ts';
import { Graph } from '../graph/graph.ts';
import { onTensors } from '../graph/program.ts';
import { matmul } from '../kernels/matmul.ts';
import type { MatmulProblem } from '../kernels/matmul-problem.ts';
import { withoutUndefined } from '../util/arguments.ts';
import { asText, HoldfastError, shortened } from '../util/errors.ts';
import { anything, check, closed, list, optional, show, text, truth } from '../util/json.ts';
import { checkSource, collect, restricted, type TensorSource } from '../values/tensor-source.ts';
import { BatchInputs } from './inputs.ts';
import { checkModel, lookup, type Model, type Parameter, parameterTensors, type Weights } from './model.ts';
import { savedParameters } from './modules-to-save.ts';

/** The adapter that trains, and is in use where none is named. */
export const DEFAULT_ADAPTER = 'default';
/** In place of an adapter's name: the model without. */
export const NO_ADAPTER = 'none';

/** The names of all parameters of an adapter. */
const parametersOf = ({ linears, saved }: Pick<AdapterInfo, 'linears' | 'saved'>): string[] => [
  ...linears.flatMap(({ a, b }) => [a, b]),
  ...saved.map(({ name }) => name),
];

/** Of a parameter: what PEFT calls its module, in Hugging Face's class for the model. */
const moduleOf = ({ config }: Pick<Model, 'config'>, weight: string): string => {
  const { prefix, head } = familyOf(config).stored;
  return (weight === head ? '' : prefix) + weight.replace(/\.weight$/, '');
};

/** The linear layers of a model but its head, in the order of its parameters. */
export function linearsOf(model: Model): Linear[] {
  const tensors = parameterTensors(model, false);
  const g = new Graph('linears');
  const { head } = model.forward(g, new BatchInputs(model.inputs(1), 1, 1), lookup(tensors), { adapter: NO_ADAPTER });
  const stored = new Map<string, MatmulProblem['layout']>();
  for (const { kernel, problem, operands } of onTensors(g.program())) {
    const weight = operands['b'];
    if (kernel !== matmul || weight?.role !== 'parameter' || weight === head.weight || weight.shape.length !== 2)
      continue;
    stored.set(weight.name, (problem as MatmulProblem).layout);
  }
  return model.parameters.flatMap(({ name: weight, shape }) => {
    const layout = stored.get(weight);
    if (!layout) return [];
    const fanInFanOut = layout === 'NN';
    const [first = 0, second = 0] = shape;
    const [inputs, outputs] = fanInFanOut ? [first, second] : [second, first];
    return [{ weight, module: moduleOf(model, weight), inputs, outputs, fanInFanOut }];
  });
}

/** Whether PEFT adapts a module where it is given such targets. */
const isTarget = (module: string, target: string): boolean => target === ALL_LINEAR || isNamed(module, target);

/** Errors: HoldfastError for numbers that no adapter can have, and for targets that are no linears of the model. */
function targetsIn(
  model: Model,
  { rank, alpha, targets, dropout }: CompleteLora,
  saved: readonly SavedParameter[],
): Linear[] {
  const refuse = (problem: string): never => {
    throw new HoldfastError(`low-rank updates: ${problem}`);
  };
  const whole = new Set(saved.map(({ original }) => original));
  const linears = linearsOf(model).filter(({ weight }) => !whole.has(weight));
  const widest = Math.max(...linears.map(({ inputs, outputs }) => Math.max(inputs, outputs)));
  if (!Number.isSafeInteger(rank) || rank < 1 || rank > widest)
    refuse(
      `the rank is ${show(rank)}; it must be a whole number from 1 to ${widest}, the largest side of a linear here`,
    );
  if (!Number.isFinite(alpha) || alpha <= 0) refuse(`alpha is ${show(alpha)}; it must be a number above 0`);
  if (!(typeof dropout === 'number' && dropout >= 0 && dropout < 1))
    refuse(`the dropout is ${show(dropout)}; it must be from 0 to below 1`);
  const known = () => [...new Set(linears.map(({ module }) => module.split('.').at(-1)))].join(', ');
  const { stored } = familyOf(model.config);
  for (const target of targets) {
    if (linears.some(({ module }) => isTarget(module, target))) continue;
    const head = [stored.head, stored.embedding].some((name) => isTarget(moduleOf(model, name), target));
    refuse(
      `${shortened(target)} is ${head ? 'an embedding or the head, which are not adapted here' : 'no linear of this model'}; it has ${known()}, or ${ALL_LINEAR}`,
    );
  }
  if (targets.length === 0) refuse(`there are no targets; this model has ${known()}, or ${ALL_LINEAR}`);
  return linears.filter(({ module }) => targets.some((target) => isTarget(module, target)));
}

/** What is left open, filled in. */
export function completeLora({ rank, ...rest }: LoraOptions): CompleteLora {
  const alpha = typeof rank === 'number' ? 2 * rank : 1;
  return { rank, alpha, targets: [ALL_LINEAR], dropout: 0, rslora: false, ...withoutUndefined(rest) };
}

/** PEFT leaves "default" out of the names of parameters in files. */
const suffixOf = (adapter: string): string => (adapter === DEFAULT_ADAPTER ? '' : `.${adapter}`);

/** The name of a parameter of an adapter: PEFT's in files. */
const adapterParameter = (weight: string, which: 'A' | 'B', adapter = DEFAULT_ADAPTER): string =>
  weight.replace(/\.weight$/, `.lora_${which}${suffixOf(adapter)}.weight`);

/** The names of an adapter's parameters where it is the default one, as what loads it has them, by those that they have here. */
export const loadedNames = ({ linears, saved }: AdapterInfo): ReadonlyMap<string, string> =>
  new Map([
    ...linears.flatMap(({ weight, a, b }): [string, string][] => [
      [a, adapterParameter(weight, 'A')],
      [b, adapterParameter(weight, 'B')],
    ]),
    ...saved.map(({ original, name }): [string, string] => [name, savedName(original)]),
  ]);

/** What `targetsIn` does not see; the numbers it names itself. */
const loraOptions = closed<LoraOptions>({
  rank: anything,
  alpha: anything,
  targets: optional(list(text)),
  dropout: anything,
  rslora: optional(truth),
  modulesToSave: optional(list(text)),
});

/**
 * The model with a low-rank update of some of its linears; all else is frozen. An adapter of the name 'default' trains;
 * those of other names, of which there may be several, are there to be chosen when text is written. Errors: HoldfastError
 * naming the number or the target that is none.
 */
export function withLora(model: Model, lora: LoraOptions, name = DEFAULT_ADAPTER): Model {
  checkModel(model);
  check(loraOptions, lora, 'low-rank updates');
  const { adapters = [] } = model;
  if (
    name === NO_ADAPTER ||
    typeof name !== 'string' ||
    !/^[\w-]+$/.test(name) ||
    adapters.some((other) => other.name === name)
  )
    throw new HoldfastError(
      `an adapter cannot be called ${show(name)}; give it a name of its own, of letters, digits, - and _`,
    );
  const options = completeLora(lora);
  const { rank, alpha, rslora, dropout: rate, modulesToSave = [] } = options;
  const saved = savedParameters(model, modulesToSave, suffixOf(name));
  const linears = targetsIn(model, options, saved).map(
    (linear): AdaptedLinear => ({
      ...linear,
      a: adapterParameter(linear.weight, 'A', name),
      b: adapterParameter(linear.weight, 'B', name),
    }),
  );
  const scale = rslora ? alpha / Math.sqrt(rank) : alpha / rank;
  const byWeight = new Map(linears.map((linear) => [linear.weight, linear]));
  const copies = new Map(saved.map(({ original, name }) => [original, name]));
  const trainable = name === DEFAULT_ADAPTER;
  const ofAdapters = new Set(adapters.flatMap(parametersOf));
  const parameters = model.parameters.flatMap((parameter): Parameter[] => {
    const frozen = ofAdapters.has(parameter.name) ? parameter : { ...parameter, trainable: false };
    const linear = byWeight.get(parameter.name);
    const copy = copies.get(parameter.name);
    if (copy !== undefined) return [frozen, { ...parameter, name: copy, trainable }];
    if (!linear) return [frozen];
    const { a, b, inputs, outputs } = linear;
    return [
      frozen,
      // Kaiming's uniform distribution with a = sqrt(5), as PEFT draws A.
      { name: a, shape: [rank, inputs], initial: { uniform: 1 / Math.sqrt(inputs) }, trainable },
      { name: b, shape: [outputs, rank], initial: { constant: 0 }, trainable },
    ];
  });
  return {
    ...model,
    parameters,
    adapters: [...adapters, { name, options, scale, linears, saved }],
    forward(g, inputs, all, forward = {}) {
      if ((forward.adapter ?? DEFAULT_ADAPTER) !== name) return model.forward(g, inputs, all, forward);
      const w: Weights = (parameter) => all(copies.get(parameter) ?? parameter);
      linears.forEach(({ weight, a, b }, stream) => {
        const dropout = forward.dropout && rate > 0 ? { rate, stream, key: forward.dropout } : undefined;
        g.adapt(w(weight), { a: w(a), b: w(b), scale, dropout });
      });
      return model.forward(g, inputs, w, { ...forward, adapter: NO_ADAPTER });
    },
  };
}

/** Errors: HoldfastError for an adapter that the model does not have. */
export function checkAdapter({ adapters = [] }: Pick<Model, 'adapters'>, name: string | undefined): void {
  if (name === undefined || name === NO_ADAPTER || adapters.some((adapter) => adapter.name === name)) return;
  const names = [...adapters.map((adapter) => adapter.name), NO_ADAPTER];
  throw new HoldfastError(`the model has no adapter ${shortened(asText(name))}; it has ${names.join(', ')}`);
}

/** The adapter in use where this one is asked for, or none is; undefined where the model has none. Errors: as `checkAdapter`. */
export function adapterInUse(model: Pick<Model, 'adapters'>, name: string | undefined): string | undefined {
  checkAdapter(model, name);
  const { adapters = [] } = model;
  if (adapters.length === 0) return undefined;
  return name ?? (adapters.some((adapter) => adapter.name === DEFAULT_ADAPTER) ? DEFAULT_ADAPTER : NO_ADAPTER);
}

/**
 * The weights of the model alone with an adapter made a part of them: W + scale B A, in float64, rounded once. `weights` are
 * those of the model with its adapters; the adapter's own are held in memory.
 */
export async function mergedWeights(
  model: Model,
  weights: TensorSource,
  name = DEFAULT_ADAPTER,
): Promise<TensorSource> {
  checkModel(model);
  checkSource(weights, 'weights');
  checkAdapter(model, name);
  const { adapters = [] } = model;
  const of = adapters.find((adapter) => adapter.name === name);
  const own = new Set(adapters.flatMap(parametersOf));
  const rest = restricted(weights, (parameter) => !own.has(parameter));
  if (!of) return rest;
  const { scale, options, linears, saved } = of;
  const copies = new Map(saved.map(({ original, name }) => [original, name]));
  const wanted = new Set(linears.flatMap(({ a, b }) => [a, b]));
  const low = await collect(restricted(weights, (parameter) => wanted.has(parameter)));
  const byWeight = new Map(linears.map((linear) => [linear.weight, linear]));
  return {
    names: rest.names,
    async *read(parameter) {
      const linear = byWeight.get(parameter);
      const [a, b] = [low.get(linear?.a ?? ''), low.get(linear?.b ?? '')];
      if (!linear || !a || !b) {
        const copy = copies.get(parameter);
        yield* copy === undefined ? rest.read(parameter) : weights.read(copy);
        return;
      }
      const { inputs, outputs, fanInFanOut } = linear;
      const columns = fanInFanOut ? outputs : inputs;
      let at = 0;
      for await (const piece of rest.read(parameter)) {
        yield piece.map((value, i) => {
          const [row, column] = [Math.floor((at + i) / columns), (at + i) % columns];
          const [input, output] = fanInFanOut ? [row, column] : [column, row];
          let sum = 0;
          for (let r = 0; r < options.rank; r++)
            sum += (b[output * options.rank + r] ?? 0) * (a[r * inputs + input] ?? 0);
          return value + scale * sum;
        });
        at += piece.length;
      }
    },
  };
}
