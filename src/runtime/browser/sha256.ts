// SHA-256 in pieces where WebCrypto has none: in WebAssembly. Each hash is an instance with a memory of its own, which takes
// longer to make than most files to hash; one that is done is taken for the next.
//
// Invariant: an instance is in one hash at a time, and no bytes go into one that is done.

import { createSHA256, type IHasher } from 'hash-wasm';
import { assert } from '../../util/errors.ts';
import type { Sha256 } from '../host.ts';

/** Those of hashes that are done. One that is left before its end goes with what left it. */
const idle: IHasher[] = [];

/** A hash of no bytes yet. */
export async function sha256(): Promise<Sha256> {
  const hash = (idle.pop() ?? (await createSHA256())).init();
  let found: string | undefined;
  return {
    update: (bytes) => {
      assert(found === undefined, 'a hash that is done gets no more bytes');
      hash.update(bytes);
    },
    hex: () => {
      if (found === undefined) {
        found = hash.digest('hex');
        idle.push(hash);
      }
      return found;
    },
  };
}
