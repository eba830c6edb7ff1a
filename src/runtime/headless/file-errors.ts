// Errors of the file system, in words.

import { HoldfastError, messageOf } from '../../util/errors.ts';

/** The system's code for an error: 'ENOENT' and its like; '' for all else. */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'it does not exist',
  EEXIST: 'something else has that name',
  EACCES: 'permission denied',
  EPERM: 'the system does not permit it',
  EISDIR: 'it is a folder',
  ENOTDIR: 'a part of its path is not a folder',
  ENOTEMPTY: 'something lies in the folder that is there',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  ELOOP: 'it is a link that leads back to itself',
  ENAMETOOLONG: 'its name is too long',
  EMFILE: 'this process has too many files open',
  EIO: 'the disk reports an error',
};

/** `what` says what was tried, and with which path. `missing`: what ENOENT means there. */
export function fileError(what: string, error: unknown, missing?: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = codeOf(error);
  const reason = code === 'ENOENT' ? (missing ?? REASONS['ENOENT']) : REASONS[code];
  return new HoldfastError(`${what}: ${reason ?? messageOf(error)}`);
}
