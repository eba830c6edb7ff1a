// Arguments of `holdfast/browser` as schemas, for `check`: what a page gives without types, or in the wrong place.

import * as v from 'valibot';
import { list, object, type Schema, text } from '../util/json.ts';
import type { ChosenFile } from './protocol.ts';

/** A file. */
export const file: Schema<File> = v.instance(File, 'a File');

/** Files of a folder, and where each lies in it. */
export const chosenFiles: Schema<ChosenFile[]> = list(object({ path: text, file }));
