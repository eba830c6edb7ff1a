// Streams that are read whole, of a size that is not known before: pipes and standard input. Bytes are counted as they come.

import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { joinedBytes } from '../../util/joined-bytes.ts';

/** All bytes of a stream, at most so many; `name` and `fix` are for messages. Errors: HoldfastError as soon as there are more. */
export async function allOf(
  stream: AsyncIterable<Uint8Array>,
  name: string,
  most = Number.POSITIVE_INFINITY,
  fix?: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of stream) {
    bytes += piece.length;
    if (bytes > most)
      throw new HoldfastError(
        `cannot read ${name}: it has more than ${formatBytes(most)}${fix === undefined ? '' : `; ${fix}`}`,
      );
    pieces.push(piece);
  }
  return joinedBytes(pieces);
}
