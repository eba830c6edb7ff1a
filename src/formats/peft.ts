// PEFT's adapter_config.json and the names in its adapter_model.safetensors: what one says, as options of a low-rank update,
// and back. Not the files themselves (checkpoint/load.ts, save.ts).
//
// Invariant: an adapter that parseAdapterConfig() lets pass computes here what PEFT computes with it. A field that would
// make it something else is refused by name, and so is one that is not known and is set.

import { HoldfastError, shortened } from '../util/errors.ts';
import { isObject, show } from '../util/json.ts';
import { type AdapterInfo, ALL_LINEAR, type CompleteLora, isNamed, savedName } from './adapter.ts';
import { Fields } from './families/fields.ts';
import { familyOf, labelsIn, type ModelConfig, shapeOf } from './families/index.ts';

/** What adapter_config.json says. */
export interface AdapterConfig {
  readonly options: CompleteLora;
  /** The name or folder of the model that it belongs to, if it says one. */
  readonly base?: string;
  /** Of the base, where it says one. */
  readonly revision?: string;
}

/** Of PEFT's LoraConfig: fields that are read, or say nothing of what is computed with an adapter that is loaded. */
const KNOWN = [
  ...['peft_type', 'r', 'lora_alpha', 'lora_dropout', 'target_modules', 'use_rslora', 'base_model_name_or_path'],
  // The sides of A and B say by themselves how the weight lies.
  ...['fan_in_fan_out', 'inference_mode', 'task_type', 'revision', 'peft_version', 'auto_mapping'],
  ...['megatron_core', 'qalora_group_size', 'bias', 'init_lora_weights', 'modules_to_save'],
];

/** How A and B began, where the base stayed what it was. */
const PLAIN_STARTS = [true, false, 'gaussian', 'orthogonal', 'eva'] as const;

/** What works with any adapter. */
const MERGE = 'merge it into its model with PEFT (merge_and_unload), and use that';

const isUnset = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (isObject(value) && Object.keys(value).length === 0);

/** `name` is for messages. Errors: HoldfastError naming the field. */
export function parseAdapterConfig(json: unknown, name: string): AdapterConfig {
  if (!isObject(json)) throw new HoldfastError(`${name}: is ${show(json)}, not an object; expected PEFT's LoraConfig`);
  const fields = new Fields(json, name);
  if (!fields.has('peft_type') && fields.has('fine_tune_type'))
    fields.refuse('an adapter as mlx-lm writes it; PEFT has another layout, convert it');
  fields.only('peft_type', ['LORA']);
  fields.only('bias', ['none'], 'none');
  fields.only('init_lora_weights', PLAIN_STARTS, true);
  for (const [field, value] of Object.entries(json)) {
    if (KNOWN.includes(field) || isUnset(value)) continue;
    fields.refuse(`${shortened(field)} is ${show(value)}; adapters with it are not supported: ${MERGE}`);
  }
  const rank = fields.count('r', 8);
  const { base_model_name_or_path: base, revision, lora_dropout = 0 } = json;
  if (typeof lora_dropout !== 'number' || !(lora_dropout >= 0 && lora_dropout < 1))
    fields.refuse(`lora_dropout is ${show(lora_dropout)}; it must be from 0 to below 1`);
  return {
    options: {
      rank,
      alpha: fields.positive('lora_alpha', 8),
      targets: targetsOf(fields, json['target_modules']),
      dropout: lora_dropout as number,
      rslora: fields.only('use_rslora', [true, false], false),
      ...savedOf(fields, json['modules_to_save']),
    },
    ...(typeof base === 'string' && base !== '' && { base }),
    ...(typeof revision === 'string' && revision !== '' && { revision }),
  };
}

function targetsOf(fields: Fields, value: unknown): readonly string[] {
  if (value === 'all-linear') return [value];
  if (Array.isArray(value) && value.length > 0 && value.every((target) => typeof target === 'string')) return value;
  const what = typeof value === 'string' ? `${show(value)}, a regular expression` : show(value);
  return fields.refuse(`target_modules is ${what}; it must be a list of names, or "all-linear"`);
}

function savedOf(fields: Fields, value: unknown): Pick<CompleteLora, 'modulesToSave'> {
  if (isUnset(value)) return {};
  if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return { modulesToSave: value };
  return fields.refuse(`modules_to_save is ${show(value)}; it must be a list of names`);
}

/** Names of the linears that have an update, as ends of their modules' that no module which trains whole has. */
function targetNames({ linears, saved, options: { targets } }: AdapterInfo): readonly string[] {
  const whole = saved.map(({ original }) => original.replace(/\.\w+$/, ''));
  const isApart = (name: string) => !whole.some((module) => isNamed(module, name));
  if (!targets.includes(ALL_LINEAR) && targets.every(isApart)) return targets;
  // PEFT writes what it found, by the last parts of the names.
  const names = linears.map(({ module }) => {
    const parts = module.split('.');
    const ends = parts.map((_, i) => parts.slice(-1 - i).join('.'));
    return ends.find(isApart) ?? module;
  });
  return [...new Set(names)];
}

/** What PEFT's class for the model is called by. */
function taskOf(config: ModelConfig): string | null {
  if (familyOf(config).writes) return 'CAUSAL_LM';
  return labelsIn(config) && shapeOf(config).vocabulary > 0 ? 'SEQ_CLS' : null;
}

/** The fields of adapter_config.json, all of them, for a model of this configuration; `base` is its name or folder, `revision` the base's. */
export function adapterConfigOf(
  info: AdapterInfo,
  config: ModelConfig,
  base: string | undefined,
  revision?: string,
): Record<string, unknown> {
  const { linears, options } = info;
  const { rank, alpha, dropout, rslora, modulesToSave = null } = options;
  return {
    alpha_pattern: {},
    auto_mapping: null,
    base_model_name_or_path: base ?? null,
    bias: 'none',
    exclude_modules: null,
    fan_in_fan_out: linears.every(({ fanInFanOut }) => fanInFanOut),
    inference_mode: true,
    init_lora_weights: true,
    layer_replication: null,
    layers_pattern: null,
    layers_to_transform: null,
    loftq_config: {},
    lora_alpha: alpha,
    lora_dropout: dropout,
    megatron_config: null,
    megatron_core: 'megatron.core',
    modules_to_save: modulesToSave,
    peft_type: 'LORA',
    peft_version: '0.21.0',
    r: rank,
    rank_pattern: {},
    revision: revision ?? null,
    target_modules: targetNames(info),
    task_type: taskOf(config),
    trainable_token_indices: null,
    use_dora: false,
    use_rslora: rslora,
  };
}

const PREFIX = 'base_model.model.';

/** PEFT's names of an adapter's parameters in files, by the names used here. */
export const storedNames = ({ linears, saved }: AdapterInfo): ReadonlyMap<string, string> =>
  new Map([
    ...linears.flatMap(({ module, a, b }): [string, string][] => [
      [a, `${PREFIX}${module}.lora_A.weight`],
      [b, `${PREFIX}${module}.lora_B.weight`],
    ]),
    ...saved.map(({ original, name }): [string, string] => [name, PREFIX + original]),
  ]);

/** The name used here of a parameter of the default adapter, by the one in a file. */
export function nameOfStored(stored: string, config: ModelConfig): string {
  const { prefix } = familyOf(config).stored;
  const inside = stored.startsWith(PREFIX) ? stored.slice(PREFIX.length) : stored;
  const name = inside.startsWith(prefix) ? inside.slice(prefix.length) : inside;
  return /\.lora_[AB]\./.test(name) ? name : savedName(name);
}
