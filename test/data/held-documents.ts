// Documents as tests make and see them: all of their tokens at once.

import { Documents, DocumentWriter } from '../../src/data/documents.ts';
import { idOf, isMarked, MarkedTexts, MarkedTextsWriter } from '../../src/data/marked-texts.ts';
import { cachedRun } from '../../src/data/token-run.ts';

/** A document's tokens, and which of them are learned. */
export interface HeldDocument {
  readonly ids: number[];
  readonly learned: boolean[];
}

/** Documents in memory, and how many had nothing to learn. */
export function documentsOf(all: readonly HeldDocument[]): { documents: Documents; leftOut: number } {
  const texts = new MarkedTextsWriter(Number.POSITIVE_INFINITY);
  const writer = new DocumentWriter(texts);
  const added = all.filter(({ ids, learned }) => writer.add(Int32Array.from(ids), Uint8Array.from(learned, Number)));
  const run = cachedRun({ at: { held: texts.take() } }, texts.width, 0, texts.tokens);
  const found = MarkedTexts.of(run, texts.ends());
  if (!found) throw new Error('the texts are none');
  return { documents: new Documents(found, writer.firsts), leftOut: all.length - added.length };
}

/** Each document. */
export async function listed(documents: Documents): Promise<HeldDocument[]> {
  const ranges = Array.from({ length: documents.count }, (_, i) => documents.range(i));
  return (await documents.read(ranges)).map((marked) => ({
    ids: Array.from(marked, idOf),
    learned: Array.from(marked, isMarked),
  }));
}
