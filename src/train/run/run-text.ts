// The text of a run: what its settings say it learns from, as tokens, documents, images or labelled texts, and the batches that
// come of them.

import { openText, type TextIdentity, type TextSource } from '../../data/corpus.ts';
import { type Dataset, type DocumentSets, documentDataset, textDataset } from '../../data/dataset.ts';
import { imageDataset } from '../../data/image-dataset.ts';
import { labelledDataset } from '../../data/labelled-texts.ts';
import { type Masking, maskedDataset, maskingOf, textOf } from '../../data/masking.ts';
import { tokenizerOf } from '../../data/open-tokenizer.ts';
import { readDocuments } from '../../data/records/read-records.ts';
import { holdConversations, recordFilesOf } from '../../data/records/record-files.ts';
import { recordsToTrain, type TrainingSources, textToTrain } from '../../data/records/splits.ts';
import { withTurnEnd } from '../../data/records/turn-end.ts';
import { isSynthetic, syntheticTokens } from '../../data/synthetic.ts';
import { type TokenizedText, type TokenizingOptions, tokenizedText } from '../../data/tokenized-text.ts';
import type { Tokenizer } from '../../data/tokenizer.ts';
import { familyOf, labelsIn, shapeOf } from '../../formats/families/index.ts';
import { findTokenizer, type TokenizerFiles } from '../../formats/tokenizer-files.ts';
import type { Files, Host } from '../../runtime/host.ts';
import { HoldfastError } from '../../util/errors.ts';
import { type ClassContent, readExamples } from './class-data.ts';
import { microBatchesOf } from './ranks.ts';
import type { RunSettings } from './run-settings.ts';

/** What a run learns from. */
export interface RunText {
  /** Where it comes from. */
  readonly corpus: Omit<TextSource, 'pieces'>;
  readonly identity: TextIdentity;
  /** Its tokens, and how some are hidden where they are to be told from both sides; its records as documents; what has a class. */
  readonly content:
    | { readonly kind: 'text'; readonly tokens: TokenizedText; readonly masking?: Masking | undefined }
    | ClassContent
    | { readonly kind: 'records'; readonly documents: DocumentSets };
  /** The files that the data of a run of an earlier version was; undefined where they are the same as now. */
  readonly earlierFiles?: () => Promise<readonly string[] | undefined>;
}

/**
 * Tokenizes what a run learns from and validates on. Errors: HoldfastError where there is no text, and naming the place of a
 * record that cannot be used.
 */
export async function readText(
  host: Host,
  settings: RunSettings,
  tokenizer: Tokenizer,
  options: TokenizingOptions = {},
): Promise<RunText> {
  const { config, images, records, data, validationFile, validationShare, seed, seq } = settings;
  const { vocabulary } = shapeOf(config);
  const corpusOf = ({ identity, names }: { readonly identity: TextIdentity; readonly names: readonly string[] }) => ({
    corpus: { bytes: identity.bytes, files: names.length, names, skipped: 0 },
    identity,
  });
  const labels = labelsIn(config);
  if (labels) {
    const sources = { config, labels, data, validationFile, validationShare, seq, images, tokenizer };
    const content = await readExamples(host, sources, options);
    if (content.kind === 'images') return { ...corpusOf(content.images), content };
    return { ...corpusOf(content.texts.train), content, earlierFiles: () => earlierRecords(host, data) };
  }
  const masking = familyOf(config).writes ? undefined : maskingOf(tokenizer, settings.markedWindows);
  if (isSynthetic(data)) {
    const tokens = await syntheticTokens(host, vocabulary, seq + 1);
    const corpus = { bytes: tokens.identity.bytes, files: 1, names: data, skipped: 0 };
    return {
      corpus,
      identity: tokens.identity,
      content: { kind: 'text', tokens, masking: masking && { ...masking, vocabulary } },
    };
  }
  if (records) {
    const chosen = await recordsToTrain(host.files, data, settings);
    const read = (sources: readonly string[]) => readDocuments(host, sources, tokenizer, records, options);
    const train = await read(chosen.sources);
    const validation = chosen.validation && (await read(chosen.validation));
    const content = { kind: 'records', documents: { train, validation } } as const;
    return { ...corpusOf(train), content, earlierFiles: () => earlierRecords(host, data) };
  }
  const chosen = await textToTrain(host.files, data, settings);
  const corpus = await openText(host, { ...settings, data: chosen.sources });
  const heldBack = chosen.validation ? await openText(host, { data: chosen.validation, seed }) : validationShare;
  const tokens = await tokenizedText(host, corpus, tokenizer, { ...options, heldBack });
  return {
    ...{ corpus, identity: tokens.identity, content: { kind: 'text', tokens, masking } },
    earlierFiles: () => earlierTexts(host, data),
  };
}

/** Where folders have splits, all files that are records: earlier versions learned from them. */
async function earlierRecords({ files }: Host, data: readonly string[]): Promise<string[] | undefined> {
  if (!haveSplits(data, await recordsToTrain(files, data))) return undefined;
  const found: string[] = [];
  for await (const { path } of recordFilesOf(files, data)) found.push(path);
  return found;
}

const haveSplits = (data: readonly string[], { sources }: TrainingSources): boolean =>
  sources.some((source, i) => source !== data[i]);

/** As `earlierRecords`, of text; a pipe is not read again. */
async function earlierTexts(host: Host, data: readonly string[]): Promise<string[] | undefined> {
  let isOther = false;
  const found: string[] = [];
  for (const source of data) {
    const hasSplits = haveSplits([source], await textToTrain(host.files, [source]));
    found.push(...(hasSplits ? (await openText(host, { data: [source], seed: 0 })).names : [source]));
    isOther ||= hasSplits;
  }
  return isOther ? found : undefined;
}

/**
 * The tokenizer of a run, made of the files that its checkpoint carries; where there are none, of those that its settings
 * name. Of a run that begins to learn conversations, the end of a turn is among what ends a text: its checkpoints carry that
 * on, so that it goes on as it began. Errors: HoldfastError where they are not those of the settings, and for a vocabulary that is not the
 * tokenizer's.
 */
export async function tokenizerFor(
  files: Files,
  { config, tokenizer, data, records }: RunSettings,
  model = 'the model',
  carried?: TokenizerFiles,
): Promise<Tokenizer> {
  const named = async (path: string) => {
    const found = await findTokenizer(files, path);
    const template = records?.template;
    return template && (await holdConversations(files, data)) ? withTurnEnd(found, template) : found;
  };
  const found = tokenizer?.kind === 'huggingface' ? (carried ?? (await named(tokenizer.path))) : undefined;
  const { vocabulary } = shapeOf(config);
  // Problems are made as tokens: nothing is read in it, and nothing written.
  return tokenizerOf(tokenizer, found, !found && isSynthetic(data) ? 0 : vocabulary, model);
}

/** Batches from the first on. Errors: HoldfastError for text too short. */
export async function datasetOf(settings: RunSettings, { content }: RunText): Promise<Dataset> {
  if (content.kind === 'images')
    return imageDataset(content.images, { ...settings, labels: labelsIn(settings.config) });
  if (content.kind === 'labelled') return labelledDataset(content.texts, settings);
  if (content.kind === 'text') {
    const { tokens, masking } = content;
    if (!masking) return textDataset(tokens, settings);
    const dataset = await textDataset(tokens, { ...settings, seq: textOf(settings.seq, masking) });
    return maskedDataset(dataset, masking, settings.seed);
  }
  return documentDataset(content.documents, settings, settings.records?.pack === 'yes');
}

/** The settings of a run of so many passes over its data. */
export async function withEpochs(settings: RunSettings, text: RunText, epochs: number): Promise<RunSettings> {
  const whole = { ...settings, epochs };
  const rows = (await datasetOf(whole, text)).rowsIn(epochs);
  return { ...whole, steps: Math.ceil(rows / (settings.batch * microBatchesOf(settings))) };
}

/** Errors: HoldfastError where `found` is not the text that a checkpoint in `from` was trained on. */
export async function checkText(
  { identity: found, earlierFiles }: Pick<RunText, 'identity' | 'earlierFiles'>,
  saved: TextIdentity,
  from: string,
): Promise<void> {
  if (found.sha256 === saved.sha256) return;
  const files = await earlierFiles?.();
  const earlier = files
    ? `; of a run of an earlier version, which trained on all files of a folder, name them: --data ${files.join(' ')}`
    : '';
  throw new HoldfastError(
    `${from}: trained on a corpus of ${saved.bytes} bytes, this one has ${found.bytes} or other text; give the same --data${earlier}`,
  );
}
