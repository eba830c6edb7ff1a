// Data in other forms than lines of JSON: what gzip has packed is read as what is in it, in pieces; tables and what is packed otherwise
// are named, with what to do about them, and never passed over or learned as text.

import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, test } from 'vitest';
import { loadCorpus } from '../../src/data/corpus.ts';
import { labelledRecords } from '../../src/data/records/labelled.ts';
import { recordsOf } from '../../src/data/records/lines.ts';
import { readDocuments } from '../../src/data/records/read-records.ts';
import { holdRecords } from '../../src/data/records/record-files.ts';
import { recordsToTest, recordsToTrain, textToTrain } from '../../src/data/records/splits.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { refusal } from './refusal.ts';

const RECORDS = Array.from({ length: 600 }, (_, i) => ({
  text: `${i} holds ${'é'.repeat(i % 50)}`,
  label: `${i % 3}`,
}));
const LINES = `${RECORDS.map((record) => JSON.stringify(record)).join('\n')}\n`;
/** Of which gzip makes no less than half. */
const LARGE = Array.from(
  { length: 6000 },
  (_, i) => `{"text": "${createHash('sha512').update(`${i}`).digest('hex')}"}\n`,
);
const LIST = JSON.stringify(RECORDS, null, 1);
const packed = (text: string): Uint8Array => gzipSync(text);
const hostOf = (files: Record<string, string | Uint8Array>) => memoryHost(new MemoryFiles(files));
const read = (host: ReturnType<typeof hostOf>, ...sources: string[]) =>
  readDocuments(host, sources, new ByteTokenizer(), { trainOn: 'answers', template: TEMPLATES.chatml });
async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

describe('gzip', () => {
  const contents: Readonly<Record<string, string | Uint8Array>> = {
    'a.jsonl': LINES,
    'a.jsonl.gz': packed(LINES),
    'a.ndjson.gz': packed(LINES),
    'b.json.gz': packed(LIST),
    'large.jsonl.gz': packed(LARGE.join('')),
    'd/README.md': '# records',
    'd/train.jsonl.gz': packed(LINES),
    'd/test.jsonl.gz': packed(LINES),
    'cut.jsonl.gz': packed(LINES).slice(0, -2000),
    'none.jsonl.gz': LINES,
    'typo.jsonl.gz': packed(`${LINES}{"text": 3}\n`),
    'long.jsonl.gz': packed(`${LINES}{"text": "${'a'.repeat(2 ** 24)}"}\n`),
  };
  const host = hostOf(contents);
  const sizeOf = (path: string) => contents[path]!.length;

  it('holds the records that are in it', async () => {
    const { documents: wanted } = await read(host, 'a.jsonl');
    for (const source of ['a.jsonl.gz', 'a.ndjson.gz', 'b.json.gz']) {
      expect(await holdRecords(host, [source])).toBe(true);
      const { documents, identity, names } = await read(host, source);
      expect([documents.count, identity.bytes, names]).toEqual([wanted.count, sizeOf(source), [source]]);
      const values = async (path: string) => (await all(recordsOf(host.files, path))).map(({ value }) => value);
      expect(await values(source)).toEqual(RECORDS);
    }
    expect(await all(labelledRecords(host, ['a.jsonl.gz']))).toHaveLength(RECORDS.length);
  });

  it('is of a folder’s splits', async () => {
    expect(await holdRecords(host, ['d'])).toBe(true);
    expect(await recordsToTrain(host.files, ['d'])).toMatchObject({
      sources: ['d/train.jsonl.gz'],
      notes: ['d: train.jsonl.gz to train on; test.jsonl.gz left out'],
    });
  });

  it('is read in small pieces, and no further than is asked for', async () => {
    let [most, told] = [0, 0];
    const open = async (path: string) => {
      const file = await host.files.open(path);
      const readRange = (offset: number, bytes: number) => {
        most = Math.max(most, bytes);
        return file.readRange(offset, bytes);
      };
      return { ...file, readRange };
    };
    const files = { open, read: () => expect.unreachable('the file is read whole') };
    const onBytes = ({ length }: Uint8Array) => {
      told += length;
    };
    const size = sizeOf('large.jsonl.gz');
    const records = recordsOf(files, 'large.jsonl.gz', { onBytes });
    expect((await records.next()).value).toMatchObject({ at: 'large.jsonl.gz:1' });
    await records.return(undefined);
    expect(most).toBe(2 ** 16);
    expect(told).toBeLessThan(size);
    told = 0;
    expect(await all(recordsOf(files, 'large.jsonl.gz', { onBytes }))).toHaveLength(LARGE.length);
    expect(told).toBe(size);
  });

  it.each([
    ['cut.jsonl.gz', /^cut\.jsonl\.gz: is damaged, or no gzip file \(.+\); unpack it: gzip -dk "cut\.jsonl\.gz"$/],
    ['none.jsonl.gz', /^none\.jsonl\.gz: is damaged, or no gzip file \(.+\); unpack it/],
    ['typo.jsonl.gz', /^typo\.jsonl\.gz:601: text is 3/],
    ['long.jsonl.gz', /^long\.jsonl\.gz:601: longer than 16\.8 MB/],
  ])('%s is refused in one line', async (source, wanted) => {
    expect(await holdRecords(host, [source])).toBe(true);
    expect(await refusal(read(host, source))).toMatch(wanted);
  });
});

describe('in another form', () => {
  const host = hostOf({
    'd/a.jsonl': '{"text": "xy"}\n',
    'd/a.csv': 'text\nxy\n',
    'd/b.parquet': 'PAR1',
    'd/.c.parquet': 'PAR1',
    'd/below/c.arrow': Uint8Array.of(65, 0),
    't/a.csv': 'text\nxy\n',
    't/a.txt': 'a text',
    't/b.txt.gz': packed('another'),
    'o/a.txt': 'a text',
    'o/a.pdf': '%PDF-1.7 a text with signs between its words',
    'o/a.tar.gz': packed('another'),
    'o/a.zip': 'PK',
    'o/b.DOCX': 'PK',
    'x/it’s.tsv': 'text\n',
    'x/a.jsonl': '{"text": "xy"}\n',
  });

  it('beside records: one line names the files, and says what to do', async () => {
    expect(await holdRecords(host, ['d'])).toBe(true);
    expect((await read(host, 'd')).names).toEqual(['d/a.jsonl']);
    const note =
      `d/a.csv, d/b.parquet, d/below/c.arrow not read; write JSONL: python3 -c "from datasets import load_dataset as l; ` +
      `l('csv', data_files='d/a.csv', split='train').to_json('d/a.jsonl')"`;
    expect(await recordsToTrain(host.files, ['d'])).toEqual({ sources: ['d'], validation: undefined, notes: [note] });
    expect(await recordsToTest(host.files, ['d'])).toEqual({ sources: ['d'], notes: [note] });
    expect((await recordsToTrain(host.files, ['x'])).notes).toEqual([
      `x/it’s.tsv not read; write JSONL: python3 -c "from datasets import load_dataset as l; l('csv', sep='\\t', data_files='FILE', split='train').to_json('FILE.jsonl')"`,
    ]);
  });

  it('beside text: a table of text is text', async () => {
    expect(await holdRecords(host, ['t'])).toBe(false);
    const { sources, notes } = await textToTrain(host.files, ['t']);
    expect([sources, notes]).toEqual([['t'], ['t/b.txt.gz not read; unpack it: gzip -dk "t/b.txt.gz"']]);
  });

  it.each([
    [
      'd/b.parquet',
      "write JSONL: python3 -c \"from datasets import load_dataset as l; l('parquet', data_files='d/b.par",
    ],
    ['t/b.txt.gz', 'unpack it: gzip -dk "t/b.txt.gz"'],
    ['o/a.tar.gz', 'unpack it: tar -xf "o/a.tar.gz"'],
    ['o/a.zip', 'unpack it: unzip "o/a.zip"'],
    ['o/a.pdf', 'write its text: pdftotext "o/a.pdf" "o/a.txt"'],
    ['o/b.DOCX', 'write its text: pandoc "o/b.DOCX" -t plain -o "o/b.txt"'],
  ])('%s, named itself, is refused', async (source, fix) => {
    expect(await refusal(holdRecords(host, [source]))).toContain(`${source}: such files are not read; ${fix}`);
  });

  it('beside text: what is no text by its name is passed over, whatever is in it', async () => {
    const { names, skipped } = await loadCorpus(host, ['o']);
    expect([names, skipped]).toEqual([['o/a.txt'], 4]);
    const { notes } = await textToTrain(host.files, ['o']);
    expect(notes).toEqual([
      expect.stringMatching(/^o\/a\.pdf, o\/a\.tar\.gz, o\/a\.zip, .*not read; write its text: pdftotext/),
    ]);
  });

  test.each([
    ['a.txt', '\ufeffA text of Windows.'],
    ['b.jsonl', '\ufeff{"text": "xy", "label": "a"}\n'],
  ])('text in UTF-16, %s, is refused with the command that makes UTF-8 of it', async (name, text) => {
    const little = Uint8Array.from(Buffer.from(text, 'utf16le'));
    const big = Uint8Array.from(Buffer.from(text, 'utf16le').swap16());
    const [base, ending] = name.split('.');
    for (const bytes of [little, big]) {
      const host = hostOf({ [name]: bytes });
      const wanted = `${name}: is in UTF-16, and text is read in UTF-8; write that: iconv -f UTF-16 -t UTF-8 "${name}" > "${base}-utf-8.${ending}"`;
      expect(await refusal(holdRecords(host, [name]))).toBe(wanted);
    }
    expect(await holdRecords(hostOf({ [name]: text }), [name])).toBe(name === 'b.jsonl');
  });

  test('a table of text that is named is text', async () => {
    expect(await holdRecords(host, ['d/a.csv'])).toBe(false);
    const figures = hostOf({ 'a.csv': 'year,input\n1990,3\n' });
    expect(await holdRecords(figures, ['a.csv'])).toBe(false);
  });

  test.each([
    ['a.csv', 'text,label\n"a, b",pos\n', 'text, label'],
    ['b.csv', '\ufeff"label","id","sentence"\r\n', 'label, id, sentence'],
    ['c.tsv', 'prompt\tcompletion\n', 'prompt, completion'],
    ['d.csv', 'id,Question,Answer\n', 'id, Question, Answer'],
  ])('a table of records is not: %s, which is named', async (name, text, columns) => {
    const host = hostOf({ [name]: text });
    const wanted = `${name}: a table of records, with the columns "${columns}", is not read; write JSONL: python3 -c`;
    expect(await refusal(holdRecords(host, [name]))).toContain(wanted);
    expect(await refusal(all(labelledRecords(host, [name])))).toContain(wanted);
  });
});
