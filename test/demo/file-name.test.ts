// Names of runs as names of the files that they are exported to.

import { expect, test } from 'vitest';
import { fileName } from '../../src/browser/run-files.ts';

test.each([
  ['GPT-2 1 × 16', 'GPT-2-1-16'],
  ['Ünï / \\ : name', 'Ünï-name'],
  ['моя модель', 'моя-модель'],
  ['भाषा', 'भाषा'],
  ['模型 2', '模型-2'],
  ['../../etc', '..-..-etc'],
  ['🙂', 'run'],
  ['..', 'run'],
])('%s', (name, file) => {
  expect(fileName(name)).toBe(file);
});
