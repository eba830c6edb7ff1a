// The tensors of a model by their names in its files, whatever the files are, and those of one safetensors file or of
// several. Knows stored names, no model. Which files a folder has, and what is in which, is tensor-files.ts.

import type { StoredElement } from '../../values/stored-elements.ts';
import { noTensor, type PackedTensor, type TensorReader } from '../../values/tensor-source.ts';
import type { TensorData, TensorFile } from '../safetensors.ts';
import type { TensorEntry } from '../safetensors-header.ts';

/** The tensors of a model by their names in its files, whatever the files are. */
export interface StoredTensors {
  /** For messages: the file, or the index of several. */
  readonly path: string;
  readonly entries: ReadonlyMap<string, Pick<TensorEntry, 'dtype' | 'shape'>>;
  /** Of the file that a tensor is in. */
  pathOf(name: string): string;
  /** Its values. Errors: HoldfastError for a type that is not read. */
  pieces(name: string): AsyncIterable<TensorData>;
  /** The tensor as it is stored; undefined where that is in a type of whole words. */
  packed(name: string): PackedTensor | undefined;
  /** See `TensorSource`. */
  reader?(name: string, element: StoredElement): TensorReader | undefined;
}

/** The tensors of one safetensors file or of several, by their stored names. */
export class ModelTensors implements StoredTensors {
  readonly path: string;
  readonly entries: ReadonlyMap<string, TensorEntry>;
  readonly #files: ReadonlyMap<string, TensorFile>;

  constructor(path: string, files: readonly TensorFile[]) {
    this.path = path;
    this.entries = new Map(files.flatMap(({ entries }) => [...entries]));
    this.#files = new Map(files.flatMap((file) => [...file.entries.keys()].map((name) => [name, file] as const)));
  }

  pathOf(name: string): string {
    return this.#fileOf(name).path;
  }

  pieces(name: string): AsyncIterable<TensorData> {
    return this.#fileOf(name).pieces(name);
  }

  packed(name: string): PackedTensor | undefined {
    return this.#fileOf(name).packed(name);
  }

  reader(name: string, element: StoredElement): TensorReader | undefined {
    return this.#fileOf(name).reader(name, element);
  }

  /** A whole tensor, whatever its size. */
  read(name: string): Promise<TensorData> {
    return this.#fileOf(name).read(name);
  }

  /** Bytes of a tensor, whatever its type. */
  readBytes(name: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#fileOf(name).readBytes(name, offset, bytes);
  }

  #fileOf(name: string): TensorFile {
    const file = this.#files.get(name);
    if (!file) throw noTensor(this.path, name, this.entries.keys());
    return file;
  }
}
