// `holdfast tokenizer train`: a byte-level BPE of text, or of what JSON records say, as a folder that `train --tokenizer` and
// Hugging Face's libraries read.

import { Command, Option } from 'commander';
import { LEAST_VOCABULARY, MOST_VOCABULARY } from '../data/bpe.ts';
import { openText } from '../data/corpus.ts';
import { recordContents } from '../data/records/contents.ts';
import { checkUTF8, holdRecords, type RecordFile, recordFilesOf } from '../data/records/record-files.ts';
import { recordsToTrain, textToTrain } from '../data/records/splits.ts';
import { type BpeProgress, trainBpe, writeTokenizer } from '../data/train-bpe.ts';
import { checkNewFolder } from '../formats/new-folder.ts';
import type { Host } from '../runtime/host.ts';
import { wholeNumber } from '../util/range.ts';
import { argument, pathName, within } from './options.ts';

interface Flags {
  data: string[];
  vocabSize: number;
  out: string;
  json?: boolean;
}

const DEFAULT_VOCABULARY = 4096;

export function tokenizerCommand(host: Host): Command {
  const train = new Command('train')
    .description('make a tokenizer of text, or of JSON records: byte-level BPE, written as tokenizer.json')
    .addOption(
      new Option('--data <path...>', 'files, folders, or - for standard input').default(
        [],
        'TypeScript’s declarations',
      ),
    )
    .option(
      '--vocab-size <n>',
      'tokens, the 256 bytes and <|endoftext|> among them',
      within(wholeNumber(LEAST_VOCABULARY, MOST_VOCABULARY)),
      DEFAULT_VOCABULARY,
    )
    .requiredOption('--out <dir>', 'folder for it, which must not be there yet', pathName)
    .option('--json', 'one JSON object')
    .action(async ({ data, vocabSize, out, json = false }: Flags) => {
      const { files, terminal } = host;
      await checkNewFolder(files, out);
      const { kind, source, notes } = await sourceIn(host, data);
      for (const note of notes) terminal[json ? 'warn' : 'write'](`data: ${note}\n`);
      if (!json) terminal.write(`${kind}: ${source.bytes.toLocaleString('en')} bytes\n`);
      const show = ({ phase, done, total }: BpeProgress) => {
        const what = phase === 'counting' ? 'bytes counted' : 'merges';
        if (terminal.interactive)
          terminal.warn(`\r${done.toLocaleString('en')} of ${total.toLocaleString('en')} ${what}\x1b[K`);
      };
      const made = await trainBpe(source, vocabSize, show);
      if (terminal.interactive) terminal.warn('\r\x1b[K');
      await writeTokenizer(files, out, made.files);
      if (json) {
        terminal.write(`${JSON.stringify({ out, bytes: source.bytes, vocabulary: made.vocabulary })}\n`);
        return;
      }
      const fewer = made.vocabulary < vocabSize ? ` (no other pair occurs twice, so not ${vocabSize})` : '';
      terminal.write(`${made.vocabulary} tokens${fewer} in ${out}\n`);
      terminal.write(`use:     holdfast train --tokenizer ${argument(out)}\n`);
    });
  return new Command('tokenizer').description('make a tokenizer').addCommand(train);
}

/** What a tokenizer is made of: as `train` learns from it, but for what a chat template writes. */
interface Source {
  readonly kind: 'text' | 'records';
  readonly source: Parameters<typeof trainBpe>[0];
  /** What the files of its folders are for, a line each. */
  readonly notes: readonly string[];
}

async function sourceIn(host: Host, data: readonly string[]): Promise<Source> {
  const isOfRecords = await holdRecords(host, data);
  // Nothing is validated.
  const chosen = await (isOfRecords ? recordsToTrain : textToTrain)(host.files, data, { validationShare: 0 });
  const { sources, notes } = chosen;
  if (!isOfRecords) await checkUTF8(host.files, data);
  if (!isOfRecords) return { kind: 'text', source: await openText(host, { data: sources, seed: 0 }), notes };
  const found: RecordFile[] = [];
  for await (const file of recordFilesOf(host.files, sources)) found.push(file);
  return { kind: 'records', source: recordContents(host.files, found), notes };
}
