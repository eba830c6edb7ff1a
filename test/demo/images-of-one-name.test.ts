// Images of one name that are brought to a page together, of two folders with one name: none takes another's place.

import { expect, test } from 'vitest';
import { keepImages } from '../../src/browser/run-files.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const given = (...paths: string[]) => paths.map((path) => ({ path, file: new File([path], 'image.png') }));

test('two of one name are refused before any is kept, and told by that name', async () => {
  const files = new MemoryFiles();
  const host = memoryHost(files) as unknown as BrowserHost;
  const twice = given('cats/1.png', 'dogs/1.png', 'cats/1.png');
  await expect(keepImages(host, 'run', twice)).rejects.toThrow(
    'two of the images are called cats/1.png; bring one of them, or give one another name',
  );
  expect(files.contents.size).toBe(0);
  await keepImages(host, 'run', given('cats/1.png', 'dogs/1.png'));
  expect([...files.contents.keys()].sort()).toEqual(['run/images/cats/1.png', 'run/images/dogs/1.png']);
});
