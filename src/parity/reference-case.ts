// One case of the numeric reference, read from its folder and checked: a configuration, initial weights,
// batches, and what float64 arithmetic makes of them (losses, norms, gradients, activations, final weights).
// The format is that of test/fixtures/reference/README.md. Nothing runs here.
//
// Invariant: a ReferenceCase can be replayed as it is. Whatever cannot (a file that is missing or damaged,
// tensors that do not fit the configuration, a loss that we do not compute) is a HoldfastError in one line.

import type { Batch, BatchArray } from '../data/batches.ts';
import { parseConfig } from '../formats/config.ts';
import { FAMILY_NAMES } from '../formats/families/index.ts';
import { nameOfStored, parseAdapterConfig } from '../formats/peft.ts';
import { parse, type StoredTensor } from '../formats/safetensors.ts';
import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import { makeModel } from '../nn/index.ts';
import type { InputSpec } from '../nn/inputs.ts';
import { withLora } from '../nn/lora.ts';
import { type Model, observedNames } from '../nn/model.ts';
import { type Host, join } from '../runtime/host.ts';
import { readJSON, readWhole } from '../runtime/read-whole.ts';
import type { LearningRateSchedule } from '../train/step/schedule.ts';
import type { AdamWOptions } from '../train/step/trainer-options.ts';
import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, line, list, namesTo, number, object, oneOf, optional } from '../util/json.ts';
import { realNumber, wholeNumber } from '../util/range.ts';
import type { Values } from '../values/tensor-source.ts';

/** Of each step. */
export interface ReferenceCurves {
  readonly lr: readonly number[];
  readonly loss: readonly number[];
  readonly gradNorm: readonly number[];
}

/** What comes of a case: in float64, or of a replay. */
export interface Outcome extends ReferenceCurves {
  /** Loss on the data of step 0 with the final weights. */
  readonly finalLoss: number;
  /** Gradients before clipping, by 0-based step: step 0 always, others where the case has them. */
  readonly gradients: ReadonlyMap<number, Values>;
  /** The trained parameters after the last step. */
  readonly final: Values;
  /** Of step 0's first micro-batch: see forwardActivations; perhaps `final_logits`, with the final weights. */
  readonly activations: Values;
}

export interface ReferenceCase extends Outcome {
  readonly name: string;
  readonly model: Model;
  readonly batch: number;
  readonly seq: number;
  readonly accumulate: number;
  readonly schedule: LearningRateSchedule;
  readonly optimizer: AdamWOptions;
  /** Initial values of every parameter, low-rank ones included. */
  readonly weights: Values;
  /** batches[step][micro-batch] */
  readonly batches: readonly (readonly Batch[])[];
  readonly tolerance: ReadonlyMap<string, number>;
}

const FILES = [
  'ref.json',
  'config.json',
  'weights.safetensors',
  'batches.safetensors',
  'activations.safetensors',
  'grads.safetensors',
  'final.safetensors',
];

/** Of one of its safetensors. */
const MOST_CASE_BYTES = 2 ** 30;
const AGAIN = 'copy it again';

/** Reads and checks the case in `folder`. Errors: HoldfastError naming the file, what is wrong, and the fix. */
export async function loadCase(host: Host, folder: string): Promise<ReferenceCase> {
  for (const file of FILES) {
    if ((await host.files.stat(join(folder, file)))?.kind === 'file') continue;
    throw new HoldfastError(`${join(folder, file)} is missing: a case holds ${FILES.join(', ')}; copy it again, whole`);
  }
  const open = async (file: string): Promise<Map<string, StoredTensor>> =>
    parse(await readWhole(host.files, join(folder, file), MOST_CASE_BYTES, { fix: AGAIN }), join(folder, file));
  const floats = async (file: string) => asFloats(await open(file), join(folder, file));

  const json = (path: string) => readJSON(host.files, path, AGAIN);
  const refPath = join(folder, 'ref.json');
  const refuse = (problem: string): never => {
    throw new HoldfastError(`${refPath}: ${problem}`);
  };
  const ref = check(REFERENCE, await json(refPath), refPath);
  const { kind, hparams, steps, accum: accumulate, micro_batch: batch, seq } = ref;
  const configPath = join(folder, 'config.json');
  const config = parseConfig(await json(configPath), configPath);
  const family = config.model_type;
  if (kind !== family && kind !== `${family}-lora`) {
    refuse(`kind is ${kind}, but config.json has model_type ${family}; one of the two is from another case`);
  }

  const stored = await open('weights.safetensors');
  const weights = new Map(stored);
  /** Tensors by the names used here: where adapters are trained, they are PEFT's in files. */
  const nameOf = (stored: string) => (kind === family ? stored : nameOfStored(stored, config));
  const named = async (file: string) =>
    new Map([...(await open(file))].map(([name, tensor]) => [nameOf(name), tensor]));
  let model = makeModel(config);
  let source = 'weights.safetensors';
  if (kind !== family) {
    const configured = await host.files.stat(join(folder, 'adapter_config.json'));
    const file = configured ? 'adapter_model.safetensors' : 'lora.safetensors';
    const adapters = await named(file);
    for (const [name, tensor] of adapters) weights.set(name, tensor);
    const adapterPath = join(folder, 'adapter_config.json');
    // A case without a configuration adapts every c_attn.
    const rank = configured ? 0 : rankOf(adapters, join(folder, file));
    const scale = configured ? 0 : (ref.lora?.scale ?? refuse('lora.scale is missing'));
    const { options } = configured
      ? parseAdapterConfig(await json(adapterPath), adapterPath)
      : { options: { rank, alpha: scale * rank, targets: ['c_attn'] } };
    model = withLora(model, options);
    source = `weights.safetensors with ${file}`;
  }
  const isTrained = ({ trainable = true }) => trainable;
  checkTensors(weights, model.parameters, `${folder}/${source}`);
  const trained = async (file: string): Promise<Values> => {
    const tensors = await named(file);
    checkTensors(tensors, model.parameters.filter(isTrained), join(folder, file));
    return asFloats(tensors, join(folder, file));
  };

  const { context, classes } = model.shape;
  const read = [...(ref.inputs ?? ['input_ids']), 'targets'];
  const names = new Map(read.map((name) => [name, INPUTS[name] ?? name]));
  const specs = [...model.inputs(seq, read.includes('document_ids')), ...model.objective.labels(classes, seq)];
  const batchesPath = join(folder, 'batches.safetensors');
  const counts = [steps, accumulate, batch, seq] as const;
  const batches = readBatches(await open('batches.safetensors'), counts, specs, names, batchesPath);
  if (ref.reduction === 'micro_mean') checkEvenTargets(batches, model, refuse);
  if (seq > context) refuse(`seq is ${seq}, longer than the ${context} positions of config.json`);
  if (hparams.steps !== steps)
    refuse(`hparams.steps is ${hparams.steps} and steps is ${steps}; they must be one number`);
  for (const name of ['lr', 'loss_f64', 'grad_norm_f64'] as const) {
    const { length } = ref[name];
    if (length !== steps) refuse(`${name} is a list of ${length}; it must be a list of ${steps}, one number a step`);
  }

  const gradients = new Map([[0, await trained('grads.safetensors')]]);
  for (const file of await host.files.list(folder)) {
    const step = /^grads_step(\d+)\.safetensors$/.exec(file)?.[1];
    if (step === undefined) continue;
    if (Number(step) >= steps)
      throw new HoldfastError(`${join(folder, file)}: the case has only steps 0 to ${steps - 1}; remove it`);
    gradients.set(Number(step), await trained(file));
  }
  const activations = await floats('activations.safetensors');
  checkActivations(activations, model, [batch, seq], join(folder, 'activations.safetensors'));

  return {
    name: ref.name,
    model,
    batch,
    seq,
    accumulate,
    schedule: {
      decay: 'cosine',
      peak: hparams.lr_max,
      min: hparams.lr_min,
      warmup: hparams.warmup,
      steps,
    },
    optimizer: {
      beta1: hparams.beta1,
      beta2: hparams.beta2,
      epsilon: hparams.eps,
      weightDecay: hparams.weight_decay,
      clip: hparams.max_norm,
    },
    weights: asFloats(weights, join(folder, 'weights.safetensors')),
    batches,
    tolerance: new Map(Object.entries(ref.tolerance)),
    lr: ref.lr,
    loss: ref.loss_f64,
    gradNorm: ref.grad_norm_f64,
    finalLoss: ref.final_loss_batch0_f64,
    gradients,
    final: await trained('final.safetensors'),
    activations,
  };
}

const any = realNumber(-Number.MAX_VALUE, Number.MAX_VALUE);
const above0 = number(realNumber(Number.MIN_VALUE, Number.MAX_VALUE));
const count = number(wholeNumber(1));
const curve = list(number(any));

/** Families, and those of them with low-rank updates. */
const KINDS = FAMILY_NAMES.flatMap((name) => [name, `${name}-lora` as const]);

/** What a batch calls the tensors that a model reads. */
const INPUTS: Readonly<Record<string, string>> = {
  input_ids: 'ids',
  position_ids: 'positions',
  document_ids: 'documents',
  token_type_ids: 'tokenTypes',
  attention_mask: 'attentionMask',
  pixel_values: 'pixels',
};

const REFERENCE = object({
  name: line,
  kind: oneOf(KINDS),
  ignore_index: oneOf([IGNORE_INDEX]),
  reduction: oneOf(['token_mean', 'micro_mean']),
  lora: optional(object({ scale: number(any) })),
  inputs: optional(list(oneOf(Object.keys(INPUTS)))),
  ...{ steps: count, accum: count, micro_batch: count, seq: count },
  hparams: object({
    steps: count,
    ...{ lr_max: number(any), lr_min: number(any), warmup: number(any) },
    ...{ beta1: number(any), beta2: number(any), eps: number(any), weight_decay: number(any) },
    // For the trainer 0 means "never"; a reference that clips to 0 has no gradients at all.
    max_norm: above0,
  }),
  tolerance: namesTo(above0),
  ...{ lr: curve, loss_f64: curve, grad_norm_f64: curve },
  final_loss_batch0_f64: number(any),
});

/** The rank of the adapters, from their shapes: A is (rank, in), B (out, rank). */
function rankOf(adapters: ReadonlyMap<string, StoredTensor>, path: string): number {
  for (const [name, { shape }] of adapters) {
    if (name.endsWith('lora_A.weight') && shape.length === 2 && at(shape, 0) > 0) return at(shape, 0);
  }
  throw new HoldfastError(`${path}: no tensor h.0.attn.c_attn.lora_A.weight of shape [rank, in]; copy the case again`);
}

/** The file must hold exactly these tensors, in these shapes. */
function checkTensors(
  tensors: ReadonlyMap<string, StoredTensor>,
  wanted: readonly { name: string; shape: readonly number[] }[],
  path: string,
): void {
  const fix = 'it does not belong to this config.json, copy the case again';
  for (const { name, shape } of wanted) {
    const found = tensors.get(name)?.shape;
    if (!found) throw new HoldfastError(`${path}: tensor "${name}" is missing; ${fix}`);
    if (found.join() !== shape.join()) {
      throw new HoldfastError(
        `${path}: tensor "${name}" has shape [${found.join(', ')}], not [${shape.join(', ')}]; ${fix}`,
      );
    }
  }
  const names = new Set(wanted.map(({ name }) => name));
  for (const name of tensors.keys()) {
    if (!names.has(name)) throw new HoldfastError(`${path}: there is no place for tensor "${name}"; ${fix}`);
  }
}

/** Names and sizes that the model's forward pass gives; a case may hold fewer. */
function checkActivations(
  activations: Values,
  { objective, ...model }: Model,
  [batch, seq]: readonly [number, number],
  path: string,
): void {
  const { width, classes } = model.shape;
  const [labels] = objective.labels(classes, seq);
  const logits = batch * (labels?.row[0] ?? 1) * classes;
  const sizes = new Map([
    ...observedNames({ objective, ...model }).map((name) => [name, batch * seq * width] as const),
    ['logits', logits],
    ['final_logits', logits],
  ]);
  for (const [name, { length }] of activations) {
    const size = sizes.get(name);
    if (size === length) continue;
    const problem = size ? `has ${length} elements, not ${size}` : 'is none that the forward pass gives';
    throw new HoldfastError(
      `${path}: tensor "${name}" ${problem}; it does not belong to this config.json, copy the case again`,
    );
  }
}

/** What a number in an input is, and what says how many of it there are. */
const MEANINGS: Readonly<Record<string, string>> = {
  ids: 'token #, the vocabulary of config.json ends',
  targets: 'token #, the vocabulary of config.json ends',
  positions: 'position #, those of config.json end',
  documents: 'document #, numbers of 32 bits end',
};

/** The arrays of each micro-batch, by the names of the inputs: `stored` says what the file calls them. */
function readBatches(
  tensors: ReadonlyMap<string, StoredTensor>,
  [steps, accumulate, batch, seq]: readonly [number, number, number, number],
  specs: readonly InputSpec[],
  stored: ReadonlyMap<string, string>,
  path: string,
): Batch[][] {
  const take = (name: string, { type, row, below, ignored }: InputSpec): BatchArray => {
    const tensor = tensors.get(name);
    const shape = [steps, accumulate, batch, ...row];
    const wanted = type === 'i32' ? Int32Array : Float32Array;
    if (!tensor || !(tensor.data instanceof wanted) || tensor.shape.join() !== shape.join()) {
      throw new HoldfastError(
        `${path}: no ${type.toUpperCase()} tensor "${name}" of shape [${shape.join(', ')}], which ref.json promises; copy the case again`,
      );
    }
    if (type === 'f32') return tensor.data;
    const what = MEANINGS[stored.get(name) ?? ''] ?? '#, the numbers of config.json end';
    const most = below ?? 2 ** 31;
    for (const value of tensor.data) {
      if ((value >= 0 && value < most) || value === ignored) continue;
      throw new HoldfastError(
        `${path}: ${name} has ${what} at ${most - 1}; copy the case again`.replace('#', String(value)),
      );
    }
    return tensor.data;
  };
  const arrays = [...stored].flatMap(([name, input]) => {
    const spec = specs.find((candidate) => candidate.name === input);
    // Positions begin anew in each document of a row: rotary embeddings, which see differences alone, do not read them.
    if (!spec && input === 'positions') return [];
    if (!spec) throw new HoldfastError(`${path}: ${name} is no input of the model in config.json; copy the case again`);
    return [[input, take(name, spec)] as const];
  });
  return Array.from({ length: steps }, (_, step) =>
    Array.from({ length: accumulate }, (_, micro): Batch => {
      const part = arrays.map(([name, values]) => {
        const size = values.length / (steps * accumulate);
        const begin = (step * accumulate + micro) * size;
        return [name, values.slice(begin, begin + size)] as const;
      });
      return { ...Object.fromEntries(part), batch, seq };
    }),
  );
}

/** A mean of micro-batch means is the mean over all tokens only where all have equally many targets. */
function checkEvenTargets(
  batches: ReferenceCase['batches'],
  { objective }: Model,
  refuse: (problem: string) => never,
): void {
  for (const [step, micros] of batches.entries()) {
    const counts = new Set(micros.map((micro) => objective.count(micro)));
    if (counts.size > 1) {
      refuse(
        `reduction is micro_mean and the micro-batches of step ${step} have ${[...counts].join(', ')} valid targets; only token_mean can be replayed then`,
      );
    }
  }
}

function asFloats(tensors: ReadonlyMap<string, StoredTensor>, path: string): Values {
  return new Map(
    [...tensors].map(([name, { dtype, data }]) => {
      if (data instanceof Float32Array) return [name, data];
      throw new HoldfastError(`${path}: tensor "${name}" is ${dtype}; a case stores F32`);
    }),
  );
}
