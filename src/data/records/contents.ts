// The texts in the fields of records, for a tokenizer that is made of them: without JSON's syntax around them and without what a chat
// template writes between them, which is the same in every record. How records become documents is read-records.ts.
//
// Invariant: memory is bounded by one record; what cannot be used is refused as where it is learned, by file, line and field.

import type { Files } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import type { CountedTexts } from '../train-bpe.ts';
import { recordsOf } from './lines.ts';
import type { RecordFile } from './record-files.ts';
import { type Example, exampleOf, type ShapeName, shapeAt } from './shapes.ts';

/** Fields of a message that hold what is said, or thought. */
const SAID = ['content', 'reasoning_content', 'thinking'] as const;

/** The texts of all records. Errors, while they are read: HoldfastError naming the place of what cannot be used, and for no records. */
export function recordContents(files: Pick<Files, 'open' | 'read'>, found: readonly RecordFile[]): CountedTexts {
  return {
    bytes: found.reduce((sum, { bytes }) => sum + bytes, 0),
    async *texts() {
      let done = 0;
      let count = 0;
      const onBytes = (bytes: Uint8Array) => {
        done += bytes.length;
      };
      for (const { path } of found) {
        let shape: ShapeName | undefined;
        for await (const record of recordsOf(files, path, { onBytes })) {
          shape ??= shapeAt(record);
          count++;
          for (const text of textsIn(exampleOf(record, shape, true))) yield { text, done };
        }
      }
      if (count > 0) return;
      throw new HoldfastError(
        `${shortened(found.map(({ path }) => path).join(', '))}: no records; name a file of records`,
      );
    },
  };
}

/** A completion goes on where its prompt ends. */
function textsIn(example: Example): string[] {
  if (example.kind === 'text') return [example.text];
  if (example.kind === 'completion') return [example.prompt + example.completion];
  return example.messages.flatMap((message) =>
    SAID.map((field) => message[field]).filter((said) => typeof said === 'string'),
  );
}
