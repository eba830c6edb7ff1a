// A thread that encodes texts with a tokenizer that it makes from its files. Loaded as a script of its own
// (workers/tokenizing.ts); what deals texts to such threads is encoding-threads.ts.

import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { type Encoded, type EncodingTask, encodeTask } from './encoding-task.ts';
import { HuggingFaceTokenizer } from './huggingface/tokenizer.ts';

/** The first message has the files, each of the others texts. */
export type EncodingWork =
  | { readonly files: TokenizerFiles; readonly alone: boolean }
  | { readonly id: number; readonly task: EncodingTask };

/** What became of the task with this number; without, it could not be done. */
export interface EncodingReply {
  readonly id: number;
  readonly encoded?: Encoded;
}

/** What answers the messages to a thread. */
export function encodingWorker(): (work: EncodingWork) => EncodingReply | undefined {
  let tokenizer: HuggingFaceTokenizer | undefined;
  return (work) => {
    if ('files' in work) {
      tokenizer = new HuggingFaceTokenizer(work.files, work.alone);
      return undefined;
    }
    const { id, task } = work;
    try {
      return { id, ...(tokenizer && { encoded: encodeTask(tokenizer, task) }) };
    } catch {
      return { id };
    }
  };
}
