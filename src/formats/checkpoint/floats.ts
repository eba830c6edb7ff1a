// The tensors of a model's files as values by the names of its parameters: a source that reads them when they are asked for.

import type { FolderReader } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { noTensor, type TensorReader, type TensorSource } from '../../values/tensor-source.ts';
import { READ_TYPE_NAMES } from '../gguf/tensor-types.ts';
import type { StoredTensors } from './model-tensors.ts';
import { removed } from './opening.ts';

/** What is read as floats, the blocks of bitsandbytes and GGUF among them. */
const FLOATS: readonly string[] = ['F32', 'F16', 'BF16', 'NF4', ...READ_TYPE_NAMES];

/** Tensors by other names. Errors: HoldfastError naming one that holds something else than floats. */
export function floatsOf(
  files: FolderReader,
  folder: string,
  tensors: StoredTensors,
  names: ReadonlyMap<string, string>,
): TensorSource {
  for (const stored of names.values()) {
    const dtype = tensors.entries.get(stored)?.dtype ?? '';
    if (FLOATS.includes(dtype)) continue;
    throw new HoldfastError(
      `${tensors.pathOf(stored)}: ${shortened(stored)} is ${shortened(dtype)}; weights and moments are F32, F16 or BF16`,
    );
  }
  const storedName = (name: string): string => {
    const stored = names.get(name);
    if (stored === undefined) throw noTensor(tensors.path, name, names.keys());
    return stored;
  };
  const failed = async (path: string, error: unknown): Promise<unknown> => {
    if (await files.stat(path)) return error;
    return removed(folder);
  };
  async function* whileThere<P>(path: string, pieces: AsyncIterable<P>): AsyncGenerator<P, void> {
    try {
      yield* pieces;
    } catch (error) {
      throw await failed(path, error);
    }
  }
  return {
    names: [...names.keys()],
    read(name) {
      const stored = storedName(name);
      const pieces = tensors.pieces(stored) as AsyncIterable<Float32Array<ArrayBuffer>>;
      return whileThere(tensors.pathOf(stored), pieces);
    },
    packed(name) {
      const stored = storedName(name);
      const packed = tensors.packed(stored);
      return packed && { ...packed, read: () => whileThere(tensors.pathOf(stored), packed.read()) };
    },
    reader(name, element) {
      const stored = storedName(name);
      const reader = tensors.reader?.(stored, element);
      if (!reader) return undefined;
      const read: TensorReader['read'] = async (...part) => {
        try {
          await reader.read(...part);
        } catch (error) {
          throw await failed(tensors.pathOf(stored), error);
        }
      };
      return { ...reader, read };
    },
  };
}
