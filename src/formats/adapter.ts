// An adapter as a part of a model: what a low-rank update was asked for with, the linears that it adapts, and the parameters
// that train whole beside it, by PEFT's names. Plain data; what puts it into a model is nn/lora.ts and nn/modules-to-save.ts.

/** A low-rank update, by the meanings of PEFT's LoraConfig. */
export interface LoraOptions {
  /** Rows of A and columns of B, 1 or more. */
  rank: number;
  /** What is added is scaled by alpha / rank. @default 2 * rank */
  alpha?: number;
  /** Names of modules or ends of them, such as `q_proj` or `mlp.c_proj`, or 'all-linear'. @default ['all-linear'] */
  targets?: readonly string[];
  /** Of the adapter's inputs while it trains, from 0 to below 1. @default 0 */
  dropout?: number;
  /** Scales by alpha / sqrt(rank) instead (rsLoRA, Kalajdzievski 2023). @default false */
  rslora?: boolean;
  /** Modules that train whole beside it: of a classifier `classifier`, its head. @default none */
  modulesToSave?: readonly string[];
}

/** With all that has a default; modules that train whole are there where there are any. */
export type CompleteLora = Required<Omit<LoraOptions, 'modulesToSave'>> & Pick<LoraOptions, 'modulesToSave'>;

/** A linear layer of a model. */
export interface Linear {
  /** Its parameter. */
  readonly weight: string;
  /** PEFT's name of its module, in Hugging Face's class for the model. */
  readonly module: string;
  /** Elements of a row of its input. */
  readonly inputs: number;
  /** Elements of a row of its output. */
  readonly outputs: number;
  /** Whether its weight is stored (in, out), as PEFT's fan_in_fan_out has it. */
  readonly fanInFanOut: boolean;
}

/** A linear layer with its adapter's parameters. */
export interface AdaptedLinear extends Linear {
  /** The name of A, (rank, inputs). */
  readonly a: string;
  /** The name of B, (outputs, rank). */
  readonly b: string;
}

/** A parameter of a module that trains whole beside a low-rank update, and its copy. */
export interface SavedParameter {
  /** The name of the base's own. */
  readonly original: string;
  /** The name of the copy. */
  readonly name: string;
  readonly shape: readonly number[];
}

/** An adapter as a part of a model. */
export interface AdapterInfo {
  /** 'default', or the name that it was given. */
  readonly name: string;
  /** Complete; `targets` are as they were given. */
  readonly options: CompleteLora;
  /** What its product is multiplied with. */
  readonly scale: number;
  /** In the order of the model's parameters. */
  readonly linears: readonly AdaptedLinear[];
  /** What trains whole, in the same order. */
  readonly saved: readonly SavedParameter[];
}

/** The target that is every linear but the head. */
export const ALL_LINEAR = 'all-linear';

/** Whether PEFT takes a module for one that is called so. */
export const isNamed = (module: string, name: string): boolean => module === name || module.endsWith(`.${name}`);

/** The name of a parameter's copy; in files of PEFT's it is the parameter's own. */
export const savedName = (original: string, suffix = ''): string =>
  original.replace(/(?=\.\w+$)/, `.modules_to_save${suffix}`);
