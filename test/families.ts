// Tiny models of every family, out of the files of families/: for tests of gradients, recomputation, generation and placement.

import type { LoraOptions } from '../src/formats/adapter.ts';

/** A model, with what is trained of it. */
export interface SmallModel {
  readonly config: object;
  readonly lora?: LoraOptions;
  /** In rows of several documents. @default false */
  readonly packed?: boolean;
}

/** What a file of a family exports. */
interface SmallFamily {
  /** One for each switch that tells a decoder of Llama's kind from Llama: windows shorter than a sequence, layers that differ. */
  readonly decoders?: Readonly<Record<string, object>>;
  /** Further ones, for the comparison of gradients with differences of the loss alone. */
  readonly models?: Readonly<Record<string, SmallModel>>;
}

const files = Object.values(import.meta.glob<SmallFamily>('./families/*.ts', { eager: true }));

/** Configurations by their names. */
export const DECODERS: Readonly<Record<string, object>> = Object.assign({}, ...files.map(({ decoders }) => decoders));

export const SMALL_MODELS: Readonly<Record<string, SmallModel>> = Object.assign(
  Object.fromEntries(Object.entries(DECODERS).map(([name, config]) => [name, { config }])),
  ...files.map(({ models }) => models),
);
