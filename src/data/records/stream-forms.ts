// Problems of what comes through a pipe or standard input, told by its first bytes, as it has no name: it is not text in UTF-8
// (byte-forms.ts), or records, which are read from files. What other bytes there are is read as it comes.

import { formOf } from './byte-forms.ts';
import { hasLabel } from './labelled-fields.ts';
import { recordShape } from './shapes.ts';

const RECORDS =
  'brings JSON records, which are read from files: as text, their syntax would be learned; write them to a file, and name that';
/** Of a first line that is looked into. */
const MOST_LINE_BYTES = 2 ** 20;

/** What is wrong with bytes that are to be text, as it follows their name: `is in UTF-16, and …`. Undefined for what is read. */
export function problemOfBytes(content: Uint8Array): string | undefined {
  const form = formOf(content);
  return form && `${form.is}; ${form.send}`;
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
