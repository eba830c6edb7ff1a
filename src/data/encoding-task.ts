// Texts that are encoded at once, here or in a thread: as they are, or as documents.

import { type DocumentText, type DocumentTokenizer, encodeDocument } from './documents.ts';

/** Some texts. */
export type EncodingTask =
  | { readonly texts: readonly string[] }
  /** Documents: the tokens that are learned are marked. */
  | { readonly documents: readonly DocumentText[] };

/** What a task becomes: the tokens of each text, in order. */
export interface Encoded {
  readonly ids: readonly Int32Array<ArrayBufferLike>[];
  /** Of documents, for each token 1 where it is learned. */
  readonly learned: readonly Uint8Array<ArrayBufferLike>[];
}

/** What the tokenizer makes of them. */
export function encodeTask(tokenizer: DocumentTokenizer, task: EncodingTask): Encoded {
  if ('texts' in task) return { ids: task.texts.map((text) => tokenizer.encode(text)), learned: [] };
  const encoded = task.documents.map((document) => encodeDocument(tokenizer, document));
  return { ids: encoded.map(({ ids }) => ids), learned: encoded.map(({ learned }) => learned) };
}
