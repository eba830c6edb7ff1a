// What a model family is to the rest, as one record: its configuration, and all facts that follow from one. Everything
// that differs between families is asked here, never by name; what it computes is its forward pass, in nn/.

import type { Fields } from './fields.ts';

/** Sizes of a model. */
export interface ModelShape {
  /** L: blocks. */
  readonly layers: number;
  /** C: the width of the residual stream. */
  readonly width: number;
  /** V: tokens that there are. */
  readonly vocabulary: number;
  /** The longest sequence, in tokens. */
  readonly context: number;
  /** NH. */
  readonly heads: number;
  /** NKV: heads of keys and values. */
  readonly kvHeads: number;
  /** HS. */
  readonly headSize: number;
}

/** What a new model of a family is made from. */
export interface FamilyShape extends Omit<ModelShape, 'headSize'> {
  /** Whether the head is the embedding, where the family leaves it open. */
  readonly tied: boolean;
}

export interface Family<C> {
  /** For a person. */
  readonly label: string;
  /** Hugging Face's class, for `architectures`. */
  readonly architecture: string;
  /** Whether heads of keys and values may be fewer than heads. */
  readonly groupedHeads: boolean;
  /** Its configuration, complete and consistent. Errors: HoldfastError naming a field. */
  parse(fields: Fields): C;
  /** Fields of its config.json that `parse` does not ask for and that change no result; `rope_scaling.x` is one inside. */
  readonly harmless: readonly string[];
  shape(config: C): ModelShape;
  /** The fields of a new model's configuration; the others have their defaults. */
  fromShape(shape: FamilyShape): Readonly<Record<string, unknown>>;
  /** Shapes of the parameters, before any of them is made. */
  tensors(config: C): FamilyTensors;
  readonly stored: StoredNames;
}

export type TensorShape = readonly [rows: number, columns?: number];

export interface FamilyTensors {
  /** The field of the configuration that says how many blocks there are. */
  readonly layersField: string;
  /** In one block, and outside of all. */
  readonly block: readonly TensorShape[];
  readonly rest: readonly TensorShape[];
}

/** How its tensors are called in files. */
export interface StoredNames {
  /** Goes, where a name begins with it. */
  readonly prefix: string;
  /** What the model computes by itself, and some writers store: left out. */
  readonly buffers: RegExp;
  /** With tied embeddings, the same as `embedding`. */
  readonly head: string;
  readonly embedding: string;
}
