// A conversation over standard input, under the runtime that runs the tests: lines are answered one by one, until they end.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { holdfast } from './cli.ts';

let folder: string;
const at = (name: string) => path.join(folder, name);

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'holdfast-chat-'));
  writeFileSync(at('text.txt'), 'a rope that holds fast, holds; '.repeat(60));
  const shape = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '128', '--batch', '2'];
  const few = ['--steps', '1', '--sample-tokens', '0', '--eval-windows', '1', '--data', at('text.txt')];
  const { status, stderr } = await holdfast(['train', ...shape, ...few, '--out', at('run')]);
  expect(status, stderr).toBe(0);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('each line has an answer, and the end of them ends it', async () => {
  const chat = async (input: string) => {
    const args = ['generate', at('run'), '--chat', '--chat-template', 'chatml', '--tokens', '4', '--temperature', '0'];
    const { status, stdout, stderr } = await holdfast(args, { input });
    expect([status, stderr]).toEqual([0, '']);
    return stdout;
  };
  expect(await chat('')).toBe('');
  const one = await chat('a\n');
  expect(one.length).toBeGreaterThan(1);
  const two = await chat('a\n\nb');
  expect(two.startsWith(one)).toBe(true);
  expect(two.length).toBeGreaterThan(one.length);
});
