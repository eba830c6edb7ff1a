// The walk of dropped folders, over entries that behave as browsers' do: some at a time, and each may fail.

import { expect, test } from 'vitest';
import { droppedFiles } from '../../demo/drop.ts';

const MOST_AT_ONCE = 100;

const named = (fullPath: string) => ({ fullPath, name: fullPath.replace(/^.*\//, '') });
const fileAt = (path: string, error?: DOMException) =>
  ({
    ...{ ...named(path), isFile: true, isDirectory: false },
    file: (resolve: (file: File) => void, reject: (error: DOMException) => void) =>
      error ? reject(error) : resolve(new File([path], named(path).name)),
  }) as unknown as FileSystemEntry;
const folderAt = (path: string, children: readonly FileSystemEntry[], error?: DOMException) =>
  ({
    ...{ ...named(path), isFile: false, isDirectory: true },
    createReader() {
      let at = 0;
      return {
        readEntries(resolve: (entries: FileSystemEntry[]) => void, reject: (error: DOMException) => void) {
          if (error) return reject(error);
          resolve(children.slice(at, at + MOST_AT_ONCE));
          at += MOST_AT_ONCE;
        },
      };
    },
  }) as unknown as FileSystemEntry;

test('all files of folders in folders, however many, with their paths, and those that lie beside', async () => {
  const many = Array.from({ length: 2 * MOST_AT_ONCE + 1 }, (_, i) => fileAt(`/pets/cat/${i}.png`));
  const pets = folderAt('/pets', [folderAt('/pets/cat', many), folderAt('/pets/none', []), fileAt('/pets/a.txt')]);
  const found = await droppedFiles([pets, null, fileAt('/beside.txt')], []);
  const wanted = [...many.map(({ fullPath }) => fullPath.slice(1)), 'pets/a.txt', 'beside.txt'];
  expect(found.map(({ path }) => path).sort()).toEqual(wanted.sort());
  for (const { path, file } of found) expect(await file.text()).toBe(`/${path}`);
});

test('without a folder, the files as they were given; an entry that cannot be read is its error', async () => {
  const given = [{ path: 'a.txt', file: new File(['a'], 'a.txt') }];
  expect(await droppedFiles([fileAt('/a.txt')], given)).toEqual(given);
  const gone = new DOMException('it is gone', 'NotFoundError');
  const around = (entry: FileSystemEntry) => droppedFiles([folderAt('/x', [fileAt('/x/a'), entry])], given);
  await expect(around(fileAt('/x/b', gone))).rejects.toBe(gone);
  await expect(around(folderAt('/x/b', [], gone))).rejects.toBe(gone);
});
