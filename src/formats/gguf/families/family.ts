// Model family as llama.cpp has to know it, one record: its name for the architecture, the sizes and switches that it
// reads, how each weight is called and must lie, what it cannot compute. Not how a tensor is encoded.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import type { TensorArrangement } from '../arrange.ts';
import type { MetadataValue } from '../header.ts';

/** What becomes of a weight. */
export interface TensorRule {
  /** GGUF's name; in a block, what follows "blk.N.". */
  readonly name: string;
  readonly arrangement?: TensorArrangement;
}

/** A tensor that is no weight of the model. */
export interface MadeTensor {
  readonly name: string;
  readonly values: Float32Array<ArrayBuffer>;
}

export interface GGUFFamily<C> {
  /** `general.architecture`, before the dot of the family's keys. */
  readonly architecture: string;
  /** The family's keys, without the architecture. Errors: HoldfastError for a configuration that llama.cpp has no way to say. */
  metadata(config: C, from: string): Readonly<Record<string, MetadataValue>>;
  /** Weights outside of blocks, by the names of the parameters. */
  readonly outside: Readonly<Record<string, string | TensorRule>>;
  /** What the names of weights in blocks begin with, before their number. */
  readonly blocks: string;
  /** Weights in a block, by the rest of their names. */
  inBlock(config: C): Readonly<Record<string, string | TensorRule>>;
  /** Tensors beside the weights. */
  made(config: C): readonly MadeTensor[];
  /** The configuration that a file's keys describe, by Hugging Face's field names. Errors: HoldfastError naming a key. */
  config(keys: Keys): Readonly<Record<string, unknown>>;
}

/** The keys of a file's architecture, and what its list of tensors says. Errors: HoldfastError naming the key. */
export interface Keys {
  has(key: string): boolean;
  /** A number; without a fallback it has to be there. */
  number(key: string, fallback?: number): number;
  /** A float32 as the shortest number that is rounded to it. */
  real(key: string, fallback?: number): number;
  text(key: string, fallback: string): string;
  refuse(problem: string): never;
  /** Rows and columns of a tensor of the file; undefined where there is none. */
  shape(tensor: string): readonly number[] | undefined;
  /** Of a small tensor of float32. */
  values(tensor: string): Float32Array | undefined;
}

/** What becomes of a weight. Errors: HoldfastError for one that llama.cpp has no place for. */
export function ruleOf<C>(family: GGUFFamily<C>, config: C, name: string): TensorRule {
  const { blocks } = family;
  const [, block, rest] = (name.startsWith(blocks) && /^(\d+)\.(.+)$/.exec(name.slice(blocks.length))) || [];
  const found = rest === undefined ? family.outside[name] : family.inBlock(config)[rest];
  if (found === undefined) {
    throw new HoldfastError(`tensor ${shortened(name)} has no place in a GGUF file of a ${family.architecture} model`);
  }
  const rule = typeof found === 'string' ? { name: found } : found;
  return block === undefined ? rule : { ...rule, name: `blk.${block}.${rule.name}` };
}

/** The weight that a tensor of a file is, and what has become of it there; undefined where it is none. */
export function weightOf<C>(
  family: GGUFFamily<C>,
  config: C,
  tensor: string,
): { readonly name: string; readonly arrangement?: TensorArrangement | undefined } | undefined {
  const [, block, rest] = /^blk\.(\d+)\.(.+)$/.exec(tensor) ?? [];
  const rules = Object.entries(block === undefined ? family.outside : family.inBlock(config));
  for (const [own, found] of rules) {
    const rule = typeof found === 'string' ? { name: found } : found;
    if (rule.name !== (rest ?? tensor)) continue;
    return { name: block === undefined ? own : `${family.blocks}${block}.${own}`, arrangement: rule.arrangement };
  }
  return undefined;
}
