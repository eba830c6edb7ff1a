// Rules of the source that no linter knows: how a file begins, and how long it may be.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** What is shipped. */
const FOLDERS = ['src', 'workers', 'demo', 'assembly', 'config'];
const MOST_LINES = 400;

const files = FOLDERS.flatMap((folder) =>
  readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(folder, name)),
);
const linesOf = (file: string) => readFileSync(path.join(ROOT, file), 'utf8').trimEnd().split('\n');

describe('a source file', () => {
  it('begins with a comment that names what it is', () => {
    const firstLines = new Map(files.map((file) => [file, linesOf(file).find((line) => !line.startsWith('#!'))!]));
    const isNamed = (line: string) => /^\/\/ (?!(What|Where|Who|How|When|Whether|Why|It|This)\b)/.test(line);
    expect(files.length).toBeGreaterThan(400);
    expect([...firstLines].filter(([, line]) => !isNamed(line))).toEqual([]);
  });

  it(`has at most ${MOST_LINES} lines`, () => {
    expect(files.filter((file) => linesOf(file).length > MOST_LINES)).toEqual([]);
  });
});
