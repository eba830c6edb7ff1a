// The README's library example, run as it stands there, under the runtime and on the adapter under test.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { THOROUGH } from '../host.ts';

const root = path.resolve(import.meta.dirname, '../..');

test.runIf(THOROUGH)('the library example learns', () => {
  const readme = readFileSync(path.join(root, 'README.md'), 'utf8');
  const [, example = ''] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];
  const dist = (name: string) => pathToFileURL(path.join(root, 'dist', name)).href;
  const code = example
    .replace("'holdfast/headless'", `'${dist('headless.js')}'`)
    .replace("'holdfast'", `'${dist('index.js')}'`);
  // Inside the package: a runtime looks for dependencies from the file that it was asked to run.
  const folder = mkdtempSync(path.join(root, 'dist', 'readme-'));
  try {
    const file = path.join(folder, 'example.mjs');
    writeFileSync(file, code);
    const runtime = 'Deno' in globalThis ? ['run', '-A', '--unstable-webgpu'] : [];
    const { status, stdout, stderr } = spawnSync(process.execPath, [...runtime, file], { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    const losses = [...stdout.matchAll(/^\d+ ([\d.]+)$/gm)].map(([, loss]) => Number(loss));
    expect(losses).toHaveLength(6);
    expect(losses[0]).toBeGreaterThan(5);
    expect(Number(/validation ([\d.]+)/.exec(stdout)?.[1])).toBeLessThan(1.5);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
