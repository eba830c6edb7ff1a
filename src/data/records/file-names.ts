// Names of files in folders of records, and of text: which are records, which lie beside them, and which split of the data set each is
// of, as mlx-lm (train.jsonl, valid.jsonl, test.jsonl), the datasets library (train, validation and test, in names or folders) and
// WikiText (wiki.train.tokens) have them. Nothing of what is in them.

/** Where a file lies in a folder that is a source. */
export interface PlaceInFolder {
  /** Its own, without folders. */
  readonly name: string;
  /** Those of the folders that it lies in, below the source. */
  readonly folders: readonly string[];
}

/** Of files that are records whatever is in them. */
export const RECORDS = /\.(?:jsonl|ndjson)(?:\.gz)?$/i;
/** Of files that may be records, or any other value. */
export const JSON_FILE = /\.json(?:\.gz)?$/i;
/** Of files that are not read as what they are: tables, documents with more than text in them, and what is packed; of these, records and JSON are read. */
export const OTHER_FORM =
  /\.(?:parquet|arrow|feather|csv|tsv|pdf|docx|odt|epub|zip|tar|tgz|(?<!\.(?:jsonl|ndjson|json)\.)gz|bz2|xz|zst)$/i;
/** Whether a table is text, too. */
export const isTextTable = (name: string): boolean => /\.[ct]sv$/i.test(name);
const HIDDEN = /^\./;
/** What data sets are published with. */
const CARD = /^(?:README|LICEN[CS]E|CHANGELOG|CITATION|NOTICE)(?:\.[^.]*)?$/i;
/** What describes records beside them. */
const DESCRIPTION = /^(?:.*\.md|dataset_infos?\.json)$/i;
/** Of files that are text, where they are of a split. */
const TEXT = /\.(?:txt|text|tokens|raw)$/i;

const isHidden = ({ name, folders }: PlaceInFolder): boolean => [...folders, name].some((name) => HIDDEN.test(name));

/** Whether a file is none of a folder's records by its place: what describes them, hidden files, and what lies in hidden folders. */
export const liesBeside = (file: PlaceInFolder): boolean =>
  isHidden(file) || CARD.test(file.name) || DESCRIPTION.test(file.name);

/** Words of names, in small letters. */
const SPLITS = {
  train: /^train(?:ing)?(?:set|data)?$/,
  validation: /^(?:val(?:id(?:ation)?)?|eval(?:uation)?|dev(?:elopment)?)(?:set|data)?$/,
  test: /^test(?:ing)?(?:set|data)?$/,
} as const;

/** A split of a data set. */
export type SplitName = keyof typeof SPLITS;
/** All of them. */
export const SPLIT_NAMES = Object.keys(SPLITS) as SplitName[];
const NO_LETTERS = /[^a-z]+/;

/** Files of each split, and those that are named for none. */
export type InSplits<F> = Readonly<Record<SplitName | 'other', readonly F[]>>;

/** The files of a folder by their splits; undefined where it has none: no files to train on, or no others. */
export function inSplits<F extends PlaceInFolder>(files: readonly F[]): InSplits<F> | undefined {
  const found: Record<SplitName | 'other', F[]> = { train: [], validation: [], test: [], other: [] };
  for (const file of files) found[splitOf(file) ?? 'other'].push(file);
  return found.train.length > 0 && found.validation.length + found.test.length > 0 ? found : undefined;
}

/**
 * As `inSplits`, of a folder of text: undefined, too, where any of its files is named for none, or is no text by its name. What
 * data sets are published with is among the others; hidden files are left out.
 */
export function inTextSplits<F extends PlaceInFolder>(files: readonly F[]): InSplits<F> | undefined {
  const shown = files.filter((file) => !isHidden(file));
  const [cards, texts] = [shown.filter(isCard), shown.filter((file) => !isCard(file))];
  const found = texts.every(({ name }) => TEXT.test(name)) ? inSplits(texts) : undefined;
  return found && found.other.length === 0 ? { ...found, other: cards } : undefined;
}

const isCard = ({ name }: PlaceInFolder): boolean => CARD.test(name);

/** By a word of its own name, or else by the name of the innermost folder that is one. */
function splitOf({ name, folders }: PlaceInFolder): SplitName | undefined {
  const isWord = (word: string) => SPLIT_NAMES.find((split) => SPLITS[split].test(word));
  const words = name.toLowerCase().split(NO_LETTERS);
  return [...words, ...folders.map((folder) => folder.toLowerCase()).toReversed()].map(isWord).find(Boolean);
}
