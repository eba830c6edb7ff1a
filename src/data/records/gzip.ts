// Files packed by gzip, unpacked as they are read.
//
// Invariant: a piece is read where all that came of those before it is used up. Streams do not see to that by themselves: Node's holds
// back nothing before some thousand pieces wait.

import { HoldfastError, messageOf } from '../../util/errors.ts';

/** Told by its name. */
export const isPacked = (path: string): boolean => /\.gz$/i.test(path);

/** A path as it can be part of a command in quotes. */
export const inCommand = (path: string): string => (/^[\w./ -]+$/.test(path) ? path : 'FILE');

/** What to do about a packed file. */
export const unpackingOf = (path: string, by: string): string => `unpack it: ${by} "${inCommand(path)}"`;

/** What pieces of a file hold. Errors: HoldfastError where it is damaged, and those of the pieces. */
export async function* unpacked(
  pieces: AsyncGenerator<Uint8Array<ArrayBuffer>>,
  path: string,
): AsyncGenerator<Uint8Array> {
  const { readable, writable } = new DecompressionStream('gzip');
  const reader = readable.getReader();
  const writer = writable.getWriter();
  /** That the last piece is taken. */
  let taken: Promise<void> = Promise.resolve();
  let ended = false;
  const giveNext = async () => {
    const { done, value } = await pieces.next();
    ended = done === true;
    // What is wrong with it is told where it is read.
    await (done ? writer.close() : writer.write(value)).catch(() => {});
  };
  const next = async () => {
    const part = reader.read();
    const isThere = part.then(
      () => true,
      () => true,
    );
    while (!ended && !(await Promise.race([isThere, taken.then(() => false)]))) {
      taken = giveNext();
      taken.catch(() => {});
    }
    return part.catch((error) => {
      throw new HoldfastError(
        `${path}: is damaged, or no gzip file (${messageOf(error)}); ${unpackingOf(path, 'gzip -dk')}`,
      );
    });
  };
  try {
    for (let part = await next(); !part.done; part = await next()) yield part.value;
  } finally {
    await Promise.all([reader.cancel(), writer.abort()].map((end) => end.catch(() => {})));
    await pieces.return(undefined);
  }
}
