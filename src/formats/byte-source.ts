// Bytes that lie somewhere and are read by ranges: a file, or what a person chose on a page. Not a stream: any range may be
// read, any number of times.

import type { Files } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';

/** As many bytes as `size` says. Errors: HoldfastError. */
export interface ByteSource {
  readonly size: number;
  read(offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>>;
}

export const sourceAt = (files: Pick<Files, 'readRange'>, path: string, size: number): ByteSource => ({
  size,
  read: (offset, bytes) => files.readRange(path, offset, bytes),
});

/** `name` is for messages. */
export const blobSource = (blob: Blob, name: string): ByteSource => ({
  size: blob.size,
  async read(offset, bytes) {
    try {
      return new Uint8Array(await blob.slice(offset, offset + bytes).arrayBuffer());
    } catch (error) {
      throw new HoldfastError(`cannot read ${name} (${messageOf(error)}); choose it again`);
    }
  },
});
