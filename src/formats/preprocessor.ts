// What preprocessor_config.json says of the images that a vision model was trained on, held against what is done with images
// here: brought to its size by the bilinear filter, and from -1 to 1.
//
// Invariant: a model whose images were made ready in another way is refused by the field that says so.

import { type FolderReader, join } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import { isObject, parseJSON, show } from '../util/json.ts';
import { OTHER_CHECKPOINT } from './checkpoint/folder.ts';

export const PREPROCESSOR = 'preprocessor_config.json';

const BILINEAR = 2;
const isHalf = (value: unknown): boolean =>
  Array.isArray(value) ? value.length > 0 && value.every(isHalf) : value === 0.5;
const isByte = (value: unknown): boolean => typeof value === 'number' && Math.abs(value * 255 - 1) < 1e-5;

/** Of each field that changes pixels: what is done here. */
const DONE: Readonly<Record<string, { readonly is: (value: unknown) => boolean; readonly words: string }>> = {
  image_mean: { is: isHalf, words: '0.5 of each channel' },
  image_std: { is: isHalf, words: '0.5 of each channel' },
  rescale_factor: { is: isByte, words: '1 / 255' },
  resample: { is: (value) => value === BILINEAR, words: `${BILINEAR}, bilinear` },
  do_rescale: { is: (value) => value === true, words: 'true' },
  do_normalize: { is: (value) => value === true, words: 'true' },
  do_center_crop: { is: (value) => value === false, words: 'false' },
};

/** Does nothing where a model's folder has no such file. Errors: HoldfastError naming the field. */
export async function checkPreprocessor(files: FolderReader, folder: string): Promise<void> {
  const path = join(folder, PREPROCESSOR);
  if (!(await files.stat(path))) return;
  const json = parseJSON(await files.read(path), path, OTHER_CHECKPOINT);
  for (const [field, { is, words }] of Object.entries(DONE)) {
    const value = isObject(json) ? (json[field] ?? undefined) : undefined;
    if (value === undefined || is(value)) continue;
    const shown = Array.isArray(value) ? `[${value.slice(0, 4).map(show).join(', ')}]` : show(value);
    throw new HoldfastError(`${path}: ${field} is ${shown}; images are read with ${words} here`);
  }
}
