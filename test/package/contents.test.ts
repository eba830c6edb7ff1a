// What is packed, as it was built: its sizes are those of docs/package.md, and npm has nothing to say against its publication.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { root } from './install.ts';

interface Packed {
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string; readonly size: number }[];
}

/** Runs npm on the package as it was built. Nothing leaves this machine. */
function npm(...args: string[]): { stdout: string; stderr: string } {
  const run = spawnSync('npm', [...args, '--dry-run', '--ignore-scripts'], { cwd: root, encoding: 'utf8' });
  if (run.status === 0) return run;
  throw new Error(`npm ${args.join(' ')}: status ${run.status}\n${run.stdout}${run.stderr}`);
}

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

/** The files that a name of the table means: `*` stands for a part of a file's name. */
const named = (name: string) => new RegExp(`^${name.replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`);

test('docs/package.md gives the sizes of what is packed, and names every large file', () => {
  const [{ size, unpackedSize, files }] = JSON.parse(npm('pack', '--json').stdout) as [Packed];
  const text = readFileSync(path.join(root, 'docs/package.md'), 'utf8');
  const rows = [...text.matchAll(/^\| ([\d.]+ MB) \| (.*?) \|/gm)].map(([, given, names = '']) => {
    const patterns = [...names.matchAll(/`([^`]+)`/g)].map(([, name = '']) => named(name));
    return { names, given, found: files.filter(({ path }) => patterns.some((pattern) => pattern.test(path))) };
  });
  expect(rows.length).toBeGreaterThan(5);
  expect(rows.map(({ names, given }) => [names, given])).toEqual(
    rows.map(({ names, found }) => [names, megabytes(found.reduce((sum, { size }) => sum + size, 0))]),
  );
  const listed = new Set(rows.flatMap(({ found }) => found.map(({ path }) => path)));
  expect(files.filter(({ path, size }) => size >= 100_000 && !listed.has(path))).toEqual([]);
  expect(text).toContain(`${megabytes(size)} to download, ${megabytes(unpackedSize)} unpacked`);
});

test('npm would publish the package without a warning', () => {
  // Of the machine's own settings and of its login, not of the package.
  const isOfMachine = (line: string) =>
    /^npm warn (Unknown (user|env|global|builtin|cli) config |publish This command requires you to be logged in )/.test(
      line,
    );
  // An address where nothing is: no registry is asked whether there is such a version.
  const { stderr } = npm('publish', '--registry', 'http://127.0.0.1:9', '--fetch-retries', '0');
  const warnings = stderr.split('\n').filter((line) => /^npm warn/i.test(line) && !isOfMachine(line));
  expect(warnings).toEqual([]);
});
