// The check before `npm start` and `npm test` whether what was built is stale.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { root } from './install.ts';

/** Folders that nothing is built from. */
const OTHERS = ['docs', 'test'];

test('a change in any folder that something is built from makes it stale', () => {
  const { stdout } = spawnSync('git', ['ls-tree', '-d', '--name-only', 'HEAD'], { cwd: root, encoding: 'utf8' });
  const folders = stdout.split('\n').filter((name) => /^\w/.test(name) && !OTHERS.includes(name));
  const [, inputs = ''] =
    /const inputs = \[([^\]]*)\]/.exec(readFileSync(path.join(root, 'scripts/setup.mjs'), 'utf8')) ?? [];
  expect(folders).toContain('src');
  expect(folders.filter((name) => !inputs.includes(`'${name}'`))).toEqual([]);
});
