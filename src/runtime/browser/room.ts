// Room for a site's files: how much of the disk a browser grants it, in figures and in words, and the errors of files, of
// which the commonest is that the room is used up.

import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { errorName } from './opfs.ts';

/** The site's share of the disk, in bytes. */
export interface DiskRoom {
  /** Bytes that the site may keep. */
  readonly quota: number;
  /** Bytes in use. */
  readonly used: number;
  /** Whether the browser promised not to clear it when space is short. Only a page can ask it to. */
  readonly persisted: boolean;
}

export async function roomOnDisk(): Promise<DiskRoom> {
  const { quota = Number.POSITIVE_INFINITY, usage = 0 } = await navigator.storage.estimate();
  return { quota, used: usage, persisted: await navigator.storage.persisted() };
}

export async function describeRoom(): Promise<string> {
  const { quota, used } = await roomOnDisk();
  return `this site may keep ${formatBytes(quota)} (${quota} bytes) here and ${formatBytes(used)} are in use: ${formatBytes(Math.max(0, quota - used))} would fit`;
}

/** A file's error in words: what could not be done, and why. */
export async function storageError(what: string, error: unknown): Promise<HoldfastError> {
  const reasons: Record<string, string> = {
    NotFoundError: 'it does not exist',
    TypeMismatchError: 'it, or a part of its path, is a folder where a file should be, or the other way round',
    NoModificationAllowedError: 'another tab is using it',
  };
  const full = errorName(error) === 'QuotaExceededError';
  const reason = full ? `${await describeRoom()}; remove runs, or make space on the disk` : reasons[errorName(error)];
  return new HoldfastError(`${what}: ${reason ?? messageOf(error)}`);
}
