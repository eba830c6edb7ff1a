// One case of the numeric reference, read from its folder and checked: a configuration, initial weights,
// batches, and what float64 arithmetic makes of them (losses, norms, gradients, activations, final weights).
// The format is that of test/fixtures/reference/README.md. Nothing runs here.
//
// Invariant: a ReferenceCase can be replayed as it is. Whatever cannot (a file that is missing or damaged,
// tensors that do not fit the configuration, a loss that we do not compute) is a HoldfastError in one line.

import type { Batch } from '../data/batches.ts';
import { parseConfig } from '../formats/config.ts';
import { parse, type Tensor } from '../formats/safetensors.ts';
import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import type { LoraOptions } from '../nn/gpt2.ts';
import { makeModel } from '../nn/index.ts';
import type { Model } from '../nn/model.ts';
import { type Host, join } from '../runtime/host.ts';
import type { Schedule } from '../train/schedule.ts';
import type { AdamWOptions } from '../train/trainer.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import type { Values } from '../util/tensor-source.ts';

/** Of each step. */
export interface Curves {
  readonly lr: readonly number[];
  readonly loss: readonly number[];
  readonly gradNorm: readonly number[];
}

/** What comes of a case: in float64, or of a replay. */
export interface Outcome extends Curves {
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
  readonly schedule: Schedule;
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

/** Reads and checks the case in `folder`. Errors: HoldfastError naming the file, what is wrong, and the fix. */
export async function loadCase(host: Host, folder: string): Promise<ReferenceCase> {
  for (const file of FILES) {
    if ((await host.files.stat(join(folder, file)))?.kind === 'file') continue;
    throw new HoldfastError(`${join(folder, file)} is missing: a case holds ${FILES.join(', ')}; copy it again, whole`);
  }
  const open = async (file: string): Promise<Map<string, Tensor>> =>
    parse(await host.files.read(join(folder, file)), join(folder, file));
  const floats = async (file: string) => asFloats(await open(file), join(folder, file));

  const ref = new Reference(await readJSON(host, join(folder, 'ref.json')), join(folder, 'ref.json'));
  const configPath = join(folder, 'config.json');
  const config = parseConfig(await readJSON(host, configPath), configPath);
  const kind = ref.oneOf('kind', ['gpt2', 'gpt2-lora', 'llama']);
  if (!kind.startsWith(config.model_type)) {
    ref.refuse(
      `kind is ${kind}, but config.json has model_type ${config.model_type}; one of the two is from another case`,
    );
  }
  ref.equals('ignore_index', IGNORE_INDEX);
  const reduction = ref.oneOf('reduction', ['token_mean', 'micro_mean']);

  const stored = await open('weights.safetensors');
  const weights = new Map(stored);
  let lora: LoraOptions | undefined;
  if (kind === 'gpt2-lora') {
    const adapters = await open('lora.safetensors');
    for (const [name, tensor] of adapters) weights.set(name, tensor);
    lora = { rank: rankOf(adapters, join(folder, 'lora.safetensors')), scale: ref.number('lora.scale') };
  }
  const model = makeModel(config, lora);
  const source = lora ? 'weights.safetensors with lora.safetensors' : 'weights.safetensors';
  const isTrained = ({ trainable = true }) => trainable;
  checkTensors(weights, model.parameters, `${folder}/${source}`);
  const trained = async (file: string): Promise<Values> => {
    const tensors = await open(file);
    checkTensors(tensors, model.parameters.filter(isTrained), join(folder, file));
    return asFloats(tensors, join(folder, file));
  };

  const steps = ref.count('steps');
  const shape = [steps, ref.count('accum'), ref.count('micro_batch'), ref.count('seq')] as const;
  const [, accumulate, batch, seq] = shape;
  const batchesPath = join(folder, 'batches.safetensors');
  const batches = readBatches(await open('batches.safetensors'), shape, model.shape.vocabulary, batchesPath);
  if (reduction === 'micro_mean') checkEvenTargets(batches, ref);
  const context = model.shape.context;
  if (seq > context) ref.refuse(`seq is ${seq}, longer than the ${context} positions of config.json`);
  if (ref.count('hparams.steps') !== steps) {
    ref.refuse(`hparams.steps is ${ref.count('hparams.steps')} and steps is ${steps}; they must be one number`);
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
  checkActivations(activations, model, batch * seq, join(folder, 'activations.safetensors'));

  return {
    name: ref.text('name'),
    model,
    batch,
    seq,
    accumulate,
    schedule: {
      decay: 'cosine',
      peak: ref.number('hparams.lr_max'),
      min: ref.number('hparams.lr_min'),
      warmup: ref.number('hparams.warmup'),
      steps,
    },
    optimizer: {
      beta1: ref.number('hparams.beta1'),
      beta2: ref.number('hparams.beta2'),
      epsilon: ref.number('hparams.eps'),
      weightDecay: ref.number('hparams.weight_decay'),
      // For the trainer 0 means "never"; a reference that clips to 0 has no gradients at all.
      clip: ref.positive('hparams.max_norm'),
    },
    weights: asFloats(weights, join(folder, 'weights.safetensors')),
    batches,
    tolerance: ref.tolerances(),
    lr: ref.numbers('lr', steps),
    loss: ref.numbers('loss_f64', steps),
    gradNorm: ref.numbers('grad_norm_f64', steps),
    finalLoss: ref.number('final_loss_batch0_f64'),
    gradients,
    final: await trained('final.safetensors'),
    activations,
  };
}

async function readJSON(host: Host, path: string): Promise<unknown> {
  const text = new TextDecoder().decode(await host.files.read(path));
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new HoldfastError(`${path} is not JSON (${messageOf(error).split('\n')[0]}); copy it again`);
  }
}

/** Typed access to ref.json; a dot goes one object down. */
class Reference {
  readonly #json: unknown;
  readonly #path: string;

  constructor(json: unknown, path: string) {
    this.#json = json;
    this.#path = path;
  }

  refuse(problem: string): never {
    throw new HoldfastError(`${this.#path}: ${problem}`);
  }

  #at(field: string): unknown {
    let value = this.#json;
    for (const part of field.split('.'))
      value = isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined;
    return value;
  }

  number(field: string): number {
    const value = this.#at(field);
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    return this.refuse(`${field} is ${show(value)}; it must be a number`);
  }

  positive(field: string): number {
    const value = this.number(field);
    return value > 0 ? value : this.refuse(`${field} is ${value}; only a number above 0 can be replayed`);
  }

  count(field: string): number {
    const value = this.#at(field);
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a whole number above 0`);
  }

  text(field: string): string {
    const value = this.#at(field);
    return typeof value === 'string' ? value : this.refuse(`${field} is ${show(value)}; it must be a text`);
  }

  numbers(field: string, length: number): number[] {
    const value = this.#at(field);
    const fits = Array.isArray(value) && value.length === length && value.every((item) => Number.isFinite(item));
    return fits ? value : this.refuse(`${field} must be a list of ${length} numbers, one a step`);
  }

  oneOf<T extends string>(field: string, supported: readonly T[]): T {
    const found = supported.find((item) => item === this.#at(field));
    return found ?? this.refuse(`${field} is ${show(this.#at(field))}; what can be replayed: ${supported.join(', ')}`);
  }

  equals(field: string, supported: number): void {
    const value = this.#at(field);
    if (value !== supported) this.refuse(`${field} is ${show(value)}; only ${supported} can be replayed`);
  }

  tolerances(): Map<string, number> {
    const value = this.#at('tolerance');
    if (!isObject(value)) return this.refuse(`tolerance is ${show(value)}; it must be an object`);
    return new Map(Object.keys(value).map((name) => [name, this.positive(`tolerance.${name}`)]));
  }
}

/** The rank of the adapters, from their shapes: A is (rank, in), B (out, rank). */
function rankOf(adapters: ReadonlyMap<string, Tensor>, path: string): number {
  for (const [name, { shape }] of adapters) {
    if (name.endsWith('lora_A.weight') && shape.length === 2 && (shape[0] as number) > 0) return shape[0] as number;
  }
  throw new HoldfastError(`${path}: no tensor h.0.attn.c_attn.lora_A.weight of shape [rank, in]; copy the case again`);
}

/** The file must hold exactly these tensors, in these shapes. */
function checkTensors(
  tensors: ReadonlyMap<string, Tensor>,
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
function checkActivations(activations: Values, model: Model, rows: number, path: string): void {
  const { layers, width, vocabulary } = model.shape;
  const isGPT2 = model.config.model_type === 'gpt2';
  const sizes = new Map([
    ['embed', rows * width],
    [isGPT2 ? 'ln_f' : 'norm', rows * width],
    ['logits', rows * vocabulary],
    ['final_logits', rows * vocabulary],
  ]);
  for (let i = 0; i < layers; i++) sizes.set(`${isGPT2 ? 'h' : 'layers'}.${i}`, rows * width);
  for (const [name, { length }] of activations) {
    const size = sizes.get(name);
    if (size === length) continue;
    const problem = size ? `has ${length} elements, not ${size}` : 'is none that the forward pass gives';
    throw new HoldfastError(
      `${path}: tensor "${name}" ${problem}; it does not belong to this config.json, copy the case again`,
    );
  }
}

function readBatches(
  tensors: ReadonlyMap<string, Tensor>,
  shape: readonly [number, number, number, number],
  vocabulary: number,
  path: string,
): Batch[][] {
  const [steps, accumulate, batch, seq] = shape;
  const take = (name: string, ignored: boolean): Int32Array<ArrayBuffer> => {
    const tensor = tensors.get(name);
    if (!tensor || !(tensor.data instanceof Int32Array) || tensor.shape.join() !== shape.join()) {
      throw new HoldfastError(
        `${path}: no I32 tensor "${name}" of shape [${shape.join(', ')}], which ref.json promises; copy the case again`,
      );
    }
    for (const id of tensor.data) {
      if ((id >= 0 && id < vocabulary) || (ignored && id === IGNORE_INDEX)) continue;
      throw new HoldfastError(
        `${path}: ${name} has token ${id}, the vocabulary of config.json ends at ${vocabulary - 1}; copy the case again`,
      );
    }
    return tensor.data;
  };
  const ids = take('input_ids', false);
  const targets = take('targets', true);
  const size = batch * seq;
  return Array.from({ length: steps }, (_, step) =>
    Array.from({ length: accumulate }, (_, micro) => {
      const begin = (step * accumulate + micro) * size;
      return { ids: ids.slice(begin, begin + size), targets: targets.slice(begin, begin + size), batch, seq };
    }),
  );
}

/** A mean of micro-batch means is the mean over all tokens only where all have equally many targets. */
function checkEvenTargets(batches: readonly (readonly Batch[])[], ref: Reference): void {
  for (const [step, micros] of batches.entries()) {
    const counts = new Set(micros.map(({ targets }) => targets.filter((target) => target !== IGNORE_INDEX).length));
    if (counts.size > 1) {
      ref.refuse(
        `reduction is micro_mean and the micro-batches of step ${step} have ${[...counts].join(', ')} valid targets; only token_mean can be replayed then`,
      );
    }
  }
}

function asFloats(tensors: ReadonlyMap<string, Tensor>, path: string): Values {
  return new Map(
    [...tensors].map(([name, { dtype, data }]) => {
      if (data instanceof Float32Array) return [name, data];
      throw new HoldfastError(`${path}: tensor "${name}" is ${dtype}; a case stores F32`);
    }),
  );
}

/** A JSON value in a message. */
function show(value: unknown): string {
  if (value === undefined) return 'missing';
  return typeof value === 'object' ? 'an object or a list' : JSON.stringify(value).slice(0, 60);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
