// What the package's doors offer: the reports in docs/api are what is exported, and no export is without a docstring.

import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { makeTypes, REPORTS } from '../../scripts/types.mjs';
import { EVERY_CASE } from '../host.ts';

const out = mkdtempSync(path.join(os.tmpdir(), 'holdfast-api-'));
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** Methods of a class, as they are declared. */
function methodsIn(declarations: string, name: string): string[] {
  const [, body = ''] = new RegExp(`^export declare class ${name} \\{\n([\\s\\S]*?)^\\}`, 'm').exec(declarations) ?? [];
  return [...body.matchAll(/^ {4}((?!get |private )[\w ]+(?:<\w+>)?\(.*);$/gm)]
    .map(([, method]) => method as string)
    .sort();
}

test('every export has a docstring, and docs/api says what is exported', () => {
  // Written anew, and compared: so a report can be written, and a difference is shown line by line.
  expect(makeTypes({ out, reports: path.join(out, 'reports'), write: true })).toEqual([]);
  for (const name of ['holdfast', 'headless', 'browser']) {
    const text = (folder: string) => readFileSync(path.join(folder, `${name}.api.md`), 'utf8');
    expect(text(REPORTS), 'run npm run api and look at what changed').toBe(text(path.join(out, 'reports')));
  }
  const declarations = readFileSync(path.join(out, 'index.d.ts'), 'utf8').replaceAll('\r\n', '\n');
  expect(declarations).toContain('export declare class Trainer');
  expect(declarations).not.toMatch(/from '\./);
  // Nothing that a method of a device is given can be wrong: what the engine asks of it is @internal.
  expect(methodsIn(declarations, 'Device')).toEqual(['check(): void', 'close(): void', 'idle(): Promise<void>']);
});

test.runIf(EVERY_CASE)('an export without a docstring is named, and that the report lacks it', () => {
  const change = (tree: string) =>
    appendFileSync(path.join(tree, 'index.d.ts'), '\nexport declare function unheardOf(): void;\n');
  expect(makeTypes({ out, change })).toEqual([
    'src/index.ts: Missing documentation for "unheardOf".',
    'docs/api/holdfast.api.md: what holdfast exports is no longer what it says; run npm run api and look at it',
  ]);
});
