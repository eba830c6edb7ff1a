// The figures of the reference cases in Node, for the tests in the browser to compare with: asked for from there,
// worked out here, in a process of its own with choices of its own.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { BROWSER } from '../../scripts/browsers.mjs';

export interface NodeFigures {
  /** One a case, as `holdfast parity --json` prints it; undefined where Node has not the browser's adapter. */
  readonly cases: readonly { case: string; metrics: Record<string, { value: number }> }[] | undefined;
  /** The kernel choices that gave them. */
  readonly choices: Record<string, string>;
}

export async function nodeFigures(): Promise<NodeFigures> {
  // The embedded adapter is the one that Chromium has here; Firefox has its own way to the system's.
  if (process.platform !== 'linux' || process.arch !== 'x64' || BROWSER !== 'chromium')
    return { cases: undefined, choices: {} };
  const root = path.resolve(import.meta.dirname, '../..');
  const cache = await mkdtemp(path.join(os.tmpdir(), 'holdfast-figures-'));
  try {
    const args = ['dist/holdfast.js', 'parity', 'test/fixtures/reference', '--json', '--adapter', 'software'];
    const env = { ...process.env, XDG_CACHE_HOME: cache };
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env, maxBuffer: 2 ** 26 });
    const cases = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const [entry] = Object.values<{ readonly choices: Record<string, string> }>(
      JSON.parse(await readFile(path.join(cache, 'holdfast', 'kernel-choices.json'), 'utf8')),
    );
    return { cases, choices: entry?.choices ?? {} };
  } finally {
    await rm(cache, { recursive: true, force: true });
  }
}
