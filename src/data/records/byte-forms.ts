// Forms that are no text in UTF-8, told by the first bytes, whatever a name says: with what to do about each, where it comes through a
// pipe and where it lies in a file.
//
// Invariant: no text is taken for another form. A mark that could be a text's first words counts only before bytes that no text has; a
// PDF's alone counts as it is: `%PDF-` with its version.

import { inCommand } from './gzip.ts';

/** A form, as what begins so is told of. */
export interface ByteForm {
  /** As it begins, from `at` on; each unit is a byte. */
  readonly mark: string;
  readonly at?: number;
  /** Whether a text may begin so. */
  readonly isWord?: boolean;
  /** A sentence without its subject. */
  readonly is: string;
  /** What to do about what comes through a pipe. */
  readonly send: string;
  /** What to do about a file, IN, where a command writes another, OUT. @default as what is sent */
  readonly write?: string;
}

const packed = (by: string, unpack: string) => ({
  is: `is packed by ${by}, and text is read as it is`,
  send: `send it through a command first: ${unpack}`,
  write: `write what is in it: ${unpack} < IN > OUT`,
});
const UTF16 = {
  is: 'is in UTF-16, and text is read in UTF-8',
  send: 'send it through a command first: iconv -f UTF-16 -t UTF-8',
  write: 'write that: iconv -f UTF-16 -t UTF-8 IN > OUT',
};
const PDF = {
  is: 'is a PDF document, which is not read',
  send: 'send its text: pdftotext FILE -',
  write: 'write its text: pdftotext IN OUT',
};
const table = (kind: string) => ({
  is: `is ${kind}, which is not read`,
  send: 'write JSONL to a file, and name that (with Python: datasets.load_dataset, to_json)',
});
const image = (kind: string) => ({
  is: `is a ${kind} image, and no text`,
  send: 'name a text; images are learned by a model that looks at them (ViT)',
});

const FORMS: readonly ByteForm[] = [
  { mark: '\xff\xfe', ...UTF16 },
  { mark: '\xfe\xff', ...UTF16 },
  { mark: '%PDF-1.', ...PDF },
  { mark: '%PDF-2.', ...PDF },
  {
    mark: 'PK\x03\x04',
    is: 'is a ZIP archive, as DOCX, ODT and EPUB documents are, which is not read',
    send: 'send the text in it: unzip -p FILE, of a document pandoc FILE -t plain',
    write: 'write the text in it: unzip -p IN > OUT, of a document pandoc -f docx (odt, epub) IN -t plain -o OUT',
  },
  {
    ...{ mark: 'ustar', at: 257, isWord: true, is: 'is a TAR archive, which is not read' },
    send: 'send the texts in it: tar -xOf FILE',
    write: 'write the texts in it: tar -xOf IN > OUT',
  },
  { mark: '\x1f\x8b', ...packed('gzip', 'gzip -dc') },
  { mark: 'BZh', isWord: true, ...packed('bzip2', 'bzip2 -dc') },
  { mark: '\xfd7zXZ\0', ...packed('xz', 'xz -dc') },
  { mark: '\x28\xb5\x2f\xfd', ...packed('zstd', 'zstd -dc') },
  { mark: 'PAR1', isWord: true, ...table('a Parquet file') },
  { mark: 'ARROW1', isWord: true, ...table('an Arrow file') },
  { mark: '\x89PNG\r\n\x1a\n', ...image('PNG') },
  { mark: '\xff\xd8\xff', ...image('JPEG') },
  { mark: 'GIF8', isWord: true, ...image('GIF') },
  { mark: 'WEBP', at: 8, isWord: true, ...image('WebP') },
];

/** What is looked at of a file. */
const LOOKED_AT = 2 ** 16;
/** Of its bytes, those that may be NUL in a text: a stray one is no binary file. */
const NUL_SHARE = 1e-3;
/** Whether no text has it: a control character but white space, backspace, escape and the end of a DOS file. */
const isControl = (byte: number): boolean =>
  byte < 0x20 && !(byte >= 0x08 && byte <= 0x0d) && byte !== 0x1b && byte !== 0x1a;

/** The form that bytes begin with; undefined for text, and for what is not known. */
export function formOf(content: Uint8Array): ByteForm | undefined {
  const begins = ({ mark, at = 0 }: ByteForm) => [...mark].every((unit, i) => content[at + i] === unit.charCodeAt(0));
  return FORMS.find((form) => begins(form) && !(form.isWord && isText(content.subarray(0, LOOKED_AT))));
}

/** Whether bytes are UTF-8 without what no text has. The last character may go on behind them. */
function isText(content: Uint8Array): boolean {
  return !content.some(isControl) && !new TextDecoder().decode(content, { stream: true }).includes('\ufffd');
}

/**
 * What is wrong with a file that is to be text, by its first bytes, as it follows its name: it is in another form, or has NUL bytes as
 * binary files have. Undefined for what is read. `read`: so many bytes from its beginning, or all that it has.
 */
export async function problemOfContent(
  path: string,
  read: (bytes: number) => Promise<Uint8Array>,
): Promise<string | undefined> {
  const content = await read(LOOKED_AT);
  const form = formOf(content);
  if (form) return `${form.is}; ${inFiles(form.write ?? form.send, path)}`;
  const nuls = content.reduce((count, byte) => count + Number(byte === 0), 0);
  if (nuls <= NUL_SHARE * content.length) return undefined;
  const all = content.length.toLocaleString('en');
  return `seems to be a binary file, and no text: of its first ${all} bytes ${nuls.toLocaleString('en')} are 0; name a text, or write one without them: ${inFiles("tr -d '\\0' < IN > OUT", path)}`;
}

/** A command that writes the text of a file in UTF-8, beside it. */
export const toUTF8 = (path: string, from: string): string => inFiles(`iconv -f ${from} -t UTF-8 IN > OUT`, path);

/** A command, with the names of its files. */
function inFiles(command: string, path: string): string {
  const name = inCommand(path);
  const out = name.replace(/(\.\w+)?$/, '-utf-8$1');
  return command.replace(/\b(?:IN|OUT)\b/g, (word) => `"${word === 'IN' ? name : out}"`);
}
