// An image of pixels as a file among those that were chosen: what is drawn on a page is learned from as files are.

import { encodePng, type Pixels } from '../data/write-png.ts';
import { check, text } from '../util/json.ts';
import type { ChosenFile } from './protocol.ts';

/**
 * Pixels, such as `context.getImageData` gives of a canvas, as a PNG file for `NewRun.images`; of a class, `path` is
 * `cat/1.png`. What is seen through is left out: a canvas has to be filled first. Errors: HoldfastError for what is no path or no
 * pixels.
 */
export async function imageFile(path: string, pixels: Pixels): Promise<ChosenFile> {
  check(text, path, 'the path of the image');
  const name = path.slice(path.lastIndexOf('/') + 1);
  return { path, file: new File([await encodePng(pixels)], name, { type: 'image/png' }) };
}
