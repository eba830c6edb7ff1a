// Splits of a data set: which files of a folder, of records or of text, are to train on, to validate on and to test with. Which split a
// file is of is told by its name (file-names.ts).
//
// Invariant: of a folder that is a source, no file that is named to validate on or to test with is trained on; a source without
// splits, and a file that is named itself, is used as it is.

import type { Files } from '../../runtime/host.ts';
import { firstFew, shortened } from '../../util/errors.ts';
import { filesOf, type SourceFile } from '../corpus.ts';
import { type InSplits, inSplits, inTextSplits, SPLIT_NAMES, type SplitName } from './file-names.ts';
import { notRead } from './other-forms.ts';
import { ownFilesOf } from './record-files.ts';

type ReadFiles = Pick<Files, 'stat' | 'list' | 'readRange'>;

/** A folder that has splits. */
interface SplitFolder {
  readonly source: string;
  readonly files: InSplits<SourceFile>;
}

/** A source, in splits or as it is. */
type Source = SplitFolder | string;

/** Sources of a data set, for one use. */
export interface ChosenSources {
  readonly sources: readonly string[];
  /** Which files of folders with splits are for what, a line for each folder, and which files are not read. */
  readonly notes: readonly string[];
}

/** What is trained and validated on. */
export interface TrainingSources extends ChosenSources {
  /** Undefined: a share of what is trained on is held back. */
  readonly validation: readonly string[] | undefined;
}

/** What is said of validation, beside the data. */
export interface ValidationChoice {
  /** A file, or a folder, to validate on. */
  readonly validationFile?: string | undefined;
  /** The part of the data that is held back. */
  readonly validationShare?: number | undefined;
}

type Choose<C extends unknown[], T> = (files: ReadFiles, data: readonly string[], ...choice: C) => Promise<T>;

/** Of records. Errors: HoldfastError for nothing there. */
export const recordsToTrain: Choose<[choice?: ValidationChoice], TrainingSources> = (...given) =>
  toTrain(recordSplits, ...given);

/** Of text: a folder has splits where all its files are named for one. Errors: as `recordsToTrain`. */
export const textToTrain: Choose<[choice?: ValidationChoice], TrainingSources> = (...given) =>
  toTrain(textSplits, ...given);

/** What a model is measured with: of a folder with splits those to test with, or where it has none to validate on. Errors: as `recordsToTrain`. */
export const recordsToTest: Choose<[], ChosenSources> = (...given) => toTest(recordSplits, ...given);

/** As `recordsToTest`, of text. */
export const textToTest: Choose<[], ChosenSources> = (...given) => toTest(textSplits, ...given);

/** The splits of a source, if it is a folder that has them. */
type SplitsOf = (files: ReadFiles, source: string) => Promise<InSplits<SourceFile> | undefined>;

const recordSplits: SplitsOf = async (files, source) => {
  const own: SourceFile[] = [];
  for await (const file of ownFilesOf(files, [source])) if (file.isFound) own.push(file);
  return inSplits(own);
};

const textSplits: SplitsOf = async (files, source) => {
  const own: SourceFile[] = [];
  for await (const file of filesOf(files, [source])) {
    if (!file.isFound) return undefined;
    if (file.kind !== 'file' || file.bytes > 0) own.push(file);
  }
  return own.every(({ kind }) => kind === 'file') ? inTextSplits(own) : undefined;
};

async function toTrain(
  splitsOf: SplitsOf,
  files: ReadFiles,
  data: readonly string[],
  { validationFile, validationShare }: ValidationChoice = {},
): Promise<TrainingSources> {
  const found = await sourcesOf(splitsOf, files, data);
  const isSaid = validationFile !== undefined || validationShare !== undefined;
  const own = isSaid ? [] : found.flatMap((source) => pathsIn(source, 'validation'));
  const named = validationFile === undefined ? own : await heldOut(splitsOf, files, validationFile);
  const train = 'to train on';
  const uses = found.flatMap((source) =>
    isSaid
      ? describe(source, { train }, 'not trained on')
      : describe(source, { train, validation: 'to validate on' }, 'left out'),
  );
  return {
    sources: found.flatMap((source) => (typeof source === 'string' ? source : pathsIn(source, 'train'))),
    validation: named.length > 0 ? named : undefined,
    notes: [...uses, ...(await notRead(files, data, splitsOf === recordSplits))],
  };
}

async function toTest(splitsOf: SplitsOf, files: ReadFiles, data: readonly string[]): Promise<ChosenSources> {
  const found = (await sourcesOf(splitsOf, files, data)).map((source) => ({
    source,
    split: firstOf(source, ['test', 'validation']),
  }));
  return {
    sources: found.flatMap(({ source, split }) => (typeof source === 'string' ? source : pathsIn(source, split))),
    notes: [
      ...found.flatMap(({ source, split }) => describe(source, { [split]: 'to test with' }, 'left out')),
      ...(await notRead(files, data, splitsOf === recordSplits)),
    ],
  };
}

async function heldOut(splitsOf: SplitsOf, files: ReadFiles, validationFile: string): Promise<string[]> {
  const found = await sourcesOf(splitsOf, files, [validationFile]);
  return found.flatMap((source) =>
    typeof source === 'string' ? source : pathsIn(source, firstOf(source, ['validation', 'test'])),
  );
}

async function sourcesOf(splitsOf: SplitsOf, files: ReadFiles, sources: readonly string[]): Promise<Source[]> {
  const found: Source[] = [];
  for (const source of sources) {
    const splits = await splitsOf(files, source);
    found.push(splits ? { source, files: splits } : source);
  }
  return found;
}

const pathsIn = (source: Source, split: SplitName): string[] =>
  typeof source === 'string' ? [] : source.files[split].map(({ path }) => path);

/** The first of the splits that a folder has. */
const firstOf = (source: Source, [first, second]: readonly [SplitName, SplitName]): SplitName =>
  pathsIn(source, first).length > 0 ? first : second;

/** What the files of some splits are for; `rest`: what is said of the others. A line for a folder that has splits. */
function describe(
  source: Source,
  uses: Partial<Readonly<Record<SplitName | 'other', string>>>,
  rest: string,
): string[] {
  if (typeof source === 'string') return [];
  const { files } = source;
  const shown = (some: readonly SourceFile[]) =>
    firstFew(some.map(({ name, folders }) => [...folders, name].join('/')));
  const used = SPLIT_NAMES.flatMap((split) =>
    uses[split] !== undefined && files[split].length > 0 ? `${shown(files[split])} ${uses[split]}` : [],
  );
  const others = [...SPLIT_NAMES, 'other' as const].flatMap((split) => (uses[split] === undefined ? files[split] : []));
  return [
    [
      `${shortened(source.source)}: ${used.join('; ')}`,
      ...(others.length > 0 ? [`${shown(others)} ${rest}`] : []),
    ].join('; '),
  ];
}
