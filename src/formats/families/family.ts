// Model family as the rest sees it, one record: its configuration, and all facts that follow from one. Everything that
// differs between families is asked here, never by name; what it computes is its forward pass, in nn/.

import type { GGUFFamily } from '../gguf/families/family.ts';
import type { Fields } from './fields.ts';
import type { Labels } from './labels.ts';

/** Sizes of a model. */
export interface ModelShape {
  /** L: blocks. */
  readonly layers: number;
  /** C: the width of the residual stream. */
  readonly width: number;
  /** V: tokens that there are; 0 where there are none (images). */
  readonly vocabulary: number;
  /** Rows of the head: what is told apart, tokens or classes. */
  readonly classes: number;
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
export interface FamilyShape extends Omit<ModelShape, 'headSize' | 'classes'> {
  /** Whether the head is the embedding, where the family leaves it open. */
  readonly tied: boolean;
  /** Of a family that looks at images. */
  readonly images?: ImageShape | undefined;
}

/** Images of one size. */
export interface ImageSize {
  readonly channels: number;
  readonly height: number;
  readonly width: number;
}

/** Images as a model looks at them. */
export interface SeenImages extends ImageSize {
  /** Rows and columns of a patch. */
  readonly patch: readonly [number, number];
}

/** Images, and the classes that are told apart in them. */
export interface ImageShape {
  /** Rows and columns. */
  readonly image: number | readonly [number, number];
  /** Of a patch. */
  readonly patch: number | readonly [number, number];
  readonly channels: number;
  readonly classes: number;
  /** Of the classes. @default LABEL_0 and so on */
  readonly names?: readonly string[];
}

/** Those of a new model where nothing is said: CIFAR's images, in the patches that suit them. */
export const DEFAULT_IMAGES = { image: 32, patch: 4, channels: 3, classes: 10 } as const satisfies ImageShape;

export interface Family<C> {
  /** For a person. */
  readonly label: string;
  /** Hugging Face's class, for `architectures`. */
  architecture(config: C): string;
  /** Whether it can go on with a text: each token is told from those before it. */
  readonly writes: boolean;
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
  /** How several ranks share its linears. */
  readonly linears: LinearLayout;
  /** Tensors, by their names here, that its files may hold and its forward pass has no use for. @default none */
  unused?(config: C): RegExp;
  /** The images that its models look at. @default none */
  images?(config: C): SeenImages;
  /** Of a family that may tell classes apart. */
  readonly classifier?: FamilyClassifier<C>;
  /** How llama.cpp knows it. @default it does not: no GGUF file is written or read */
  readonly gguf?: GGUFFamily<C>;
}

/** How models of a family tell classes apart. */
export interface FamilyClassifier<C> {
  /** The classes, of a model that tells some apart. */
  labels(config: C): Labels | undefined;
  /** The model, telling these apart in place of what its head was for. */
  tells(config: C, labels: Labels): C;
  /** Whether the model has no head, and so tells nothing: a classifier is made of it. @default it has one */
  isBare?(config: C): boolean;
  /** The module of its head, which is drawn anew for other classes. */
  readonly head: string;
  /** A module besides that is drawn where a file of another head has none. @default none */
  readonly lacking?: string;
}

/**
 * Of each linear but the head, by the end of its module's name: what each rank has of it (Shoeybi et al. 2019). `columns`: some
 * of its outputs, of each of so many sections side by side; `rows`: some of its inputs, so that the outputs are to be added up;
 * `whole`: all of it.
 */
export type LinearLayout = Readonly<Record<string, 'columns' | 'rows' | 'whole' | { readonly columns: number }>>;

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
  /** What is added to the products with the head. @default nothing is */
  readonly headBias?: string;
  /** What else some writers store twice: the one name, and that of the tensor which it equals. */
  readonly copies?: Readonly<Record<string, string>>;
  /** What of names others write otherwise, and how it is here. */
  readonly renamed?: readonly (readonly [part: RegExp, now: string])[];
}
