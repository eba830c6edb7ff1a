// The names of tensors in files: Hugging Face's, as its libraries have written them over the years, for those that the
// models here use. Buffers that are computed anew are left out, a tied head is compared with the embedding and left
// out, prefixes go; everything else stays, to be known or refused by name.

import { mapByName } from '../../util/arguments.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { check, list, object, text } from '../../util/json.ts';
import type { ModelConfig } from '../config.ts';
import { familyOf } from '../families/index.ts';
import type { TensorData } from '../safetensors.ts';
import type { Shapes } from './contents.ts';
import type { StoredTensors } from './model-tensors.ts';

export const MOMENT1 = 'exp_avg.';
export const MOMENT2 = 'exp_avg_sq.';

/**
 * The stored names of a model's weights by the names used here. Errors: HoldfastError for one name twice, and for a
 * head that is another than the embedding to which the configuration ties it.
 */
export async function weightNames(tensors: StoredTensors, config: ModelConfig): Promise<Map<string, string>> {
  const family = familyOf(config);
  const { prefix, buffers, head, embedding, copies = {}, renamed = [] } = family.stored;
  const unused = family.unused?.(config);
  const names = namesOnce(tensors, (stored) => {
    const own = stored.startsWith(prefix) ? stored.slice(prefix.length) : stored;
    const name = renamed.reduce((found, [part, now]) => found.replace(part, now), own);
    return buffers.test(name) || unused?.test(name) ? undefined : name;
  });
  const isTied = 'tie_word_embeddings' in config && config.tie_word_embeddings;
  for (const [copy, original] of Object.entries({ ...(isTied && { [head]: embedding }), ...copies })) {
    const [one, other] = [names.get(copy), names.get(original)];
    if (one === undefined || other === undefined) continue;
    if (!(await sameValues(tensors, one, other))) {
      const fix = copy === head ? 'set tie_word_embeddings to false there' : 'the two are one in this model';
      throw new HoldfastError(`${tensors.path}: ${one} is not ${other}, to which its config.json ties it; ${fix}`);
    }
    names.delete(copy);
  }
  return names;
}

/**
 * The stored names of tensors by the names that they have here, without those that have none. Errors: HoldfastError for two
 * of one name.
 */
export function namesOnce(
  { path, entries }: Pick<StoredTensors, 'path' | 'entries'>,
  nameOf: (stored: string) => string | undefined,
): Map<string, string> {
  const names = new Map<string, string>();
  for (const stored of entries.keys()) {
    const name = nameOf(stored);
    if (name === undefined) continue;
    const other = names.get(name);
    if (other !== undefined)
      throw new HoldfastError(
        `${path}: ${shortened(other)} and ${shortened(stored)} are one weight; write it under one of these names`,
      );
    names.set(name, stored);
  }
  return names;
}

async function sameValues(tensors: StoredTensors, a: string, b: string): Promise<boolean> {
  if (tensors.entries.get(a)?.shape.join() !== tensors.entries.get(b)?.shape.join()) return false;
  const others = tensors.pieces(b)[Symbol.asyncIterator]();
  try {
    for await (const piece of tensors.pieces(a)) {
      const other = (await others.next()).value;
      if (!other || !sameBits(piece, other)) return false;
    }
    return true;
  } finally {
    await others.return?.();
  }
}

function sameBits(a: TensorData, b: TensorData): boolean {
  const others = new Int32Array(b.buffer, b.byteOffset, b.byteLength / 4);
  return new Int32Array(a.buffer, a.byteOffset, a.byteLength / 4).every((bits, i) => bits === others[i]);
}

/** Checks that weights of these shapes are those of a model with these parameters. */
export function checkWeights(
  shapes: Shapes,
  parameters: readonly { name: string; shape: readonly number[] }[],
  from: string,
): void {
  check(mapByName, shapes, 'shapes');
  check(list(object({ name: text })), parameters, 'parameters');
  for (const { name, shape } of parameters) {
    const found = shapes.get(name);
    if (!found) throw new HoldfastError(`${from}: there is no tensor ${name}; its config.json describes another model`);
    if (found.join() !== shape.join()) {
      throw new HoldfastError(
        `${from}: ${name} has shape [${shortened(found.join(', '))}], its config.json asks for [${shape.join(', ')}]`,
      );
    }
  }
  const known = new Set(parameters.map(({ name }) => name));
  const stranger = [...shapes.keys()].find((name) => !known.has(name));
  if (stranger !== undefined)
    throw new HoldfastError(`${from}: tensor ${shortened(stranger)} is no parameter of the model in its config.json`);
}
