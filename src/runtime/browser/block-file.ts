// The disk tier's file in a browser: so many bytes under a name that no other tab has, read and written at any offset.
// What a tab that is gone left of them is removed when the next is opened.

import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { BlockFile } from '../host.ts';
import type { DiskLink } from './disk-link.ts';
import { errorName, openFolder } from './opfs.ts';
import { describeRoom, roomOnDisk, storageError } from './room.ts';

const TIER = /^holdfast-tier-.*\.bin$/;

/** Errors: HoldfastError where the site may not keep so many bytes. */
export async function openBlockFile(link: DiskLink, folder: string, bytes: number): Promise<BlockFile> {
  const parent = await openFolder(folder, true);
  // A file that a living worker has open refuses to be removed: what goes was left by one that is gone.
  for await (const name of parent.keys()) {
    if (TIER.test(name)) await parent.removeEntry(name).catch(() => {});
  }
  const { quota, used } = await roomOnDisk();
  if (quota - used < bytes) throw await tooLarge(bytes);
  const name = `holdfast-tier-${crypto.randomUUID()}.bin`;
  const path = `${folder}/${name}`;
  const remove = () => parent.removeEntry(name).catch(() => {});
  let file: number;
  try {
    file = await link.ask((disk) => disk.create(path, bytes));
  } catch (error) {
    await remove();
    throw errorName(error) === 'QuotaExceededError'
      ? await tooLarge(bytes)
      : await storageError(`cannot create ${path}`, error);
  }
  return {
    path,
    bytes,
    read: (offset, into) => link.read(file, offset, into),
    write: (offset, from) => link.write(file, offset, from),
    async remove() {
      await link.ask((disk) => disk.close(file, false));
      await remove();
    },
  };
}

async function tooLarge(bytes: number): Promise<HoldfastError> {
  return new HoldfastError(
    `${await describeRoom()}, the disk tier needs ${formatBytes(bytes)} (${bytes} bytes); remove runs, make space on the disk, ` +
      'set a lower disk limit, or use a smaller model',
  );
}
