// `npm run docs`: one static site of the API page and the demo. Only with HOLDFAST_TESTS=all: it may install TypeDoc.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const root = path.resolve(import.meta.dirname, '../..');

test('the site has a page for every door, every export on it, and the demo', () => {
  const { status, stderr } = spawnSync(process.execPath, ['scripts/docs.mjs'], { cwd: root, encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  const page = (...names: string[]) => readFileSync(path.join(root, 'dist', 'docs', ...names), 'utf8');
  const report = readFileSync(path.join(root, 'docs/api/holdfast.api.md'), 'utf8');
  const names = [...report.matchAll(/^export (?:class|interface|function|type|const) (\w+)/gm)].map(([, name]) => name);
  expect(names.length).toBeGreaterThan(60);
  for (const name of names) expect(page('api', 'modules', 'holdfast.html')).toContain(`>${name}<`);
  expect(page('api', 'modules', 'browser.html')).toContain('openHoldfast');
  expect(page('api', 'modules', 'headless.html')).toContain('headlessHost');
  const links = [...page('index.html').matchAll(/href="([^"]+)"/g)].map(([, link]) => link as string);
  for (const link of links) expect(page(link)).toContain('<!');
});
