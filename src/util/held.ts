// Memory for what is held whole: zeros, or an error that names what is too large for it. Not for what has a budget
// (memory/tiers), nor for sizes that a file claims (those are checked before).

import { formatBytes } from './bytes.ts';
import { HoldfastError } from './errors.ts';

/**
 * So many bytes, all 0. Errors: HoldfastError naming `what` and `fix` where the runtime has no room for them: Node 20 has 4 GiB in
 * one piece.
 */
export function heldBytes(bytes: number, what: string, fix: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new HoldfastError(`${what} has ${formatBytes(bytes)}, which this runtime cannot hold in memory; ${fix}`);
  }
}
