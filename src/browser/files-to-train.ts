// Files to train on among those that were chosen on a page, where folders are among them: as the command line has it, but for what
// validates, which a page has no place for. By their names alone: nothing is read.

import {
  inSplits,
  inTextSplits,
  liesBeside,
  OTHER_FORM,
  type PlaceInFolder,
  RECORDS,
} from '../data/records/file-names.ts';
import { check } from '../util/json.ts';
import { chosenFiles } from './arguments.ts';
import type { ChosenFile } from './protocol.ts';

/** What is trained on, and what is not. */
export interface FilesToTrain {
  /** Without what lies beside records in their folder. */
  readonly files: readonly ChosenFile[];
  /** To validate on, to test with, and data in another form beside records. */
  readonly leftOut: readonly ChosenFile[];
}

/**
 * Of files that were chosen, those to train on: of a folder with records (*.jsonl) without what lies beside them, and, where it
 * has files to train on and others, without those to validate on and to test with, as of a folder of text whose files are all
 * named so. What was chosen by itself is trained on.
 * Errors: HoldfastError for what are no files.
 */
export function filesToTrain(chosen: readonly ChosenFile[]): FilesToTrain {
  check(chosenFiles, chosen, 'the files to train on');
  const folders = new Map<string, (ChosenFile & PlaceInFolder)[]>();
  const files: ChosenFile[] = [];
  for (const { path, file } of chosen) {
    const [top = '', ...below] = path.split('/');
    const name = below.pop();
    if (name === undefined) files.push({ path, file });
    else folders.set(top, [...(folders.get(top) ?? []), { path, file, name, folders: below }]);
  }
  const leftOut: ChosenFile[] = [];
  const plain = ({ path, file }: ChosenFile): ChosenFile => ({ path, file });
  for (const inside of folders.values()) {
    const isOfRecords = inside.some((file) => RECORDS.test(file.name) && !liesBeside(file));
    const beside = isOfRecords ? inside.filter((file) => !liesBeside(file)) : inside;
    const isOwn = ({ name }: PlaceInFolder) => !isOfRecords || !OTHER_FORM.test(name);
    const own = beside.filter(isOwn);
    const splits = isOfRecords ? inSplits(own) : inTextSplits(own);
    files.push(...(splits?.train ?? own).map(plain));
    if (splits) leftOut.push(...[...splits.validation, ...splits.test, ...splits.other].map(plain));
    leftOut.push(...beside.filter((file) => !isOwn(file)).map(plain));
  }
  return { files, leftOut };
}
