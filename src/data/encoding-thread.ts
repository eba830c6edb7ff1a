// A thread that encodes texts with a tokenizer that it makes from its files. Loaded as a script of its own
// (workers/tokenizing.ts); what deals texts to such threads is encoding-threads.ts.

import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { HuggingFaceTokenizer } from './huggingface/tokenizer.ts';

/** The first message has the files, each of the others a text. */
export type EncodingWork = { readonly files: TokenizerFiles } | { readonly id: number; readonly text: string };

/** The ids of the text with this number; without, it could not be encoded. */
export interface EncodingReply {
  readonly id: number;
  readonly ids?: Int32Array<ArrayBuffer>;
}

/** What answers the messages to a thread. */
export function encodingWorker(): (work: EncodingWork) => EncodingReply | undefined {
  let tokenizer: HuggingFaceTokenizer | undefined;
  return (work) => {
    if ('files' in work) {
      tokenizer = new HuggingFaceTokenizer(work.files);
      return undefined;
    }
    const { id, text } = work;
    try {
      const ids = tokenizer?.encode(text);
      return { id, ...(ids && { ids }) };
    } catch {
      return { id };
    }
  };
}
