// What llama.cpp has to know of a family of models, as one record: its name for the architecture, the sizes and switches that
// it reads, how each weight is called and must lie, what it cannot compute. Not how a tensor is encoded.

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
  /** Of a weight in a block: its number, and the rest of the name. */
  readonly block: RegExp;
  /** Weights in a block, by the rest of their names. */
  inBlock(config: C): Readonly<Record<string, string | TensorRule>>;
  /** Tensors beside the weights. */
  made(config: C): readonly MadeTensor[];
}

/** What becomes of a weight. Errors: HoldfastError for one that llama.cpp has no place for. */
export function ruleOf<C>(family: GGUFFamily<C>, config: C, name: string): TensorRule {
  const [, block, rest] = family.block.exec(name) ?? [];
  const found = rest === undefined ? family.outside[name] : family.inBlock(config)[rest];
  if (found === undefined) {
    throw new HoldfastError(`tensor ${shortened(name)} has no place in a GGUF file of a ${family.architecture} model`);
  }
  const rule = typeof found === 'string' ? { name: found } : found;
  return block === undefined ? rule : { ...rule, name: `blk.${block}.${rule.name}` };
}
