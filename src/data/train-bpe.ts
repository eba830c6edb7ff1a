// A tokenizer made of a text, or of many: read in pieces, their words counted, the merges found, the files written as Hugging Face's
// libraries read them. The counting and merging itself is bpe.ts; the texts of records are records/contents.ts.

import { writeNewFolder } from '../formats/new-folder.ts';
import { type Files, join } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import { bpeTokenizerFiles, trainMerges, WordCounts } from './bpe.ts';
import type { TextSource } from './corpus.ts';
import { GPT2_CUTS, nextCut } from './huggingface/cuts.ts';
import { MOST_UNCUT } from './text-parts.ts';
import { pauseForOthers } from './tokenized-text.ts';

export interface BpeProgress {
  /** Counting words, in bytes; then finding merges. */
  readonly phase: 'counting' | 'merging';
  readonly done: number;
  readonly total: number;
}

/** What words are counted in. */
export interface CountedTexts {
  /** Of the data that the texts lie in. */
  readonly bytes: number;
  /** Each begins with a word, and ends with one; `done`: bytes of the data up to its end. */
  texts(): AsyncIterable<{ readonly text: string; readonly done: number }>;
}

const PART = 2 ** 17;

/** The files of a tokenizer of so many tokens, by name. Errors: as trainMerges, and where the text cannot be read, or cut. */
export async function trainBpe(
  source: TextSource | CountedTexts,
  vocabulary: number,
  onProgress: (progress: BpeProgress) => void = () => {},
): Promise<{ readonly files: Record<string, string>; readonly vocabulary: number }> {
  const counts = new WordCounts();
  /** Since the last pause. */
  let characters = 0;
  for await (const { text, done } of 'texts' in source ? source.texts() : partsOf(source)) {
    counts.add(text);
    characters += text.length;
    if (characters < PART) continue;
    characters = 0;
    onProgress({ phase: 'counting', done, total: source.bytes });
    await pauseForOthers();
  }
  const merges = await trainMerges(counts, vocabulary, async ({ merges, wanted }) => {
    onProgress({ phase: 'merging', done: merges, total: wanted });
    await pauseForOthers();
  });
  return { files: bpeTokenizerFiles(merges), vocabulary: merges.length + 257 };
}

/** A text, cut where words end. Errors: HoldfastError for one that has no such place. */
async function* partsOf(source: TextSource): AsyncGenerator<{ text: string; done: number }> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let text = '';
  let done = 0;
  for await (const piece of source.pieces()) {
    const searched = Math.max(0, text.length - 4);
    text += decoder.decode(piece, { stream: true });
    let begin = 0;
    for (;;) {
      const cut = nextCut(GPT2_CUTS, text, Math.max(begin + PART, searched));
      if (!cut) break;
      const part = text.slice(begin, cut.end);
      begin = cut.begin;
      yield { text: part, done: done + Math.min(begin, piece.length) };
    }
    text = text.slice(begin);
    if (text.length > MOST_UNCUT) {
      throw new HoldfastError(
        `the text has ${text.length} characters in which it cannot be cut; break it with spaces or lines`,
      );
    }
    done += piece.length;
  }
  yield { text: text + decoder.decode(), done };
}

/** Writes them into a folder of their own, which is not there or empty. Errors: as `writeNewFolder`. */
export async function writeTokenizer(files: Files, out: string, contents: Record<string, string>): Promise<void> {
  await writeNewFolder(files, out, async (folder) => {
    for (const [name, text] of Object.entries(contents)) await files.writeAtomic(join(folder, name), text);
  });
}
