// Forms of what comes through a pipe or standard input, told by its first bytes, as it has no name: what is not text in UTF-8, and
// records, which are read from files. What other bytes there are is read as it comes. Of files see other-forms.ts.

import { hasLabel } from './labelled-fields.ts';
import { recordShape } from './shapes.ts';

interface Form {
  /** As it begins, from `at` on; each unit is a byte. */
  readonly mark: string;
  readonly at?: number;
  /** A sentence without its subject. */
  readonly problem: string;
}

const packed = (by: string, unpack: string) =>
  `is packed by ${by}, and text is read as it is; send it through a command first: ${unpack}`;
const inUTF16 = 'is in UTF-16, and text is read in UTF-8; send it through a command first: iconv -f UTF-16 -t UTF-8';
const table = (kind: string) =>
  `is ${kind}, which is not read; write JSONL to a file, and name that (with Python: datasets.load_dataset, to_json)`;

const FORMS: readonly Form[] = [
  { mark: '\xff\xfe', problem: inUTF16 },
  { mark: '\xfe\xff', problem: inUTF16 },
  { mark: '%PDF-', problem: 'is a PDF document, which is not read; send its text: pdftotext FILE -' },
  {
    mark: 'PK\x03\x04',
    problem:
      'is a ZIP archive, as DOCX, ODT and EPUB documents are, which is not read; send the text in it: unzip -p FILE, of a document pandoc FILE -t plain',
  },
  { mark: 'ustar', at: 257, problem: 'is a TAR archive, which is not read; send the texts in it: tar -xOf FILE' },
  { mark: '\x1f\x8b', problem: packed('gzip', 'gzip -dc') },
  { mark: 'BZh', problem: packed('bzip2', 'bzip2 -dc') },
  { mark: '\xfd7zXZ\0', problem: packed('xz', 'xz -dc') },
  { mark: '\x28\xb5\x2f\xfd', problem: packed('zstd', 'zstd -dc') },
  { mark: 'PAR1', problem: table('a Parquet file') },
  { mark: 'ARROW1', problem: table('an Arrow file') },
];

const RECORDS =
  'brings JSON records, which are read from files: as text, their syntax would be learned; write them to a file, and name that';
/** Of a first line that is looked into. */
const MOST_LINE_BYTES = 2 ** 20;

/** What is wrong with bytes that are to be text, as it follows their name: `is in UTF-16, and …`. Undefined for what is read. */
export function problemOfBytes(content: Uint8Array): string | undefined {
  const begins = ({ mark, at = 0 }: Form) => [...mark].every((unit, i) => content[at + i] === unit.charCodeAt(0));
  return FORMS.find(begins)?.problem;
}

/** As `problemOfBytes`, of what is to be learned. */
export const problemOfStream = (content: Uint8Array): string | undefined =>
  problemOfBytes(content) ?? (beginsWithRecord(content) ? RECORDS : undefined);

/** Whether its first line is a record of a known shape, or a list begins with one there. */
function beginsWithRecord(content: Uint8Array): boolean {
  const head = new TextDecoder().decode(content.subarray(0, MOST_LINE_BYTES));
  const line = head.replace(/^\s*(?:\[\s*\n)?\s*/, '').split('\n', 1)[0] ?? '';
  for (const one of [line, line.replace(/^\[|,?\s*$/g, '')]) {
    const value = parsed(one);
    const first: unknown = Array.isArray(value) ? value[0] : value;
    if (hasLabel(first) || recordShape(first) !== undefined) return true;
  }
  return false;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
