// Lines of a pipe, as a conversation gets them: whole, one by one as they come, and none that is endless.

import { PassThrough } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { readLines } from '../../src/runtime/headless/lines.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const { stdin } = process;
const type = (value: unknown) => Object.defineProperty(process, 'stdin', { value, configurable: true });
afterEach(() => void type(stdin));

/** What is read of these pieces. */
async function read(...pieces: (string | Uint8Array)[]): Promise<string[]> {
  async function* stream() {
    for (const piece of pieces) yield typeof piece === 'string' ? new TextEncoder().encode(piece) : piece;
  }
  type(stream());
  const lines: string[] = [];
  for await (const line of readLines('')) lines.push(line);
  return lines;
}

test('lines are as they are, wherever the pieces end', async () => {
  const text = 'one\n\ntwo é 日\r\nthree \r four\n';
  const lines = ['one', '', 'two é 日', 'three \r four'];
  expect(await read(text)).toEqual(lines);
  expect(await read(...Array.from(new TextEncoder().encode(text), (byte) => Uint8Array.of(byte)))).toEqual(lines);
  expect(await read('the last has ', 'no end')).toEqual(['the last has no end']);
  expect(await read()).toEqual([]);
  expect(await read('\ufeffmarked\n')).toEqual(['marked']);
});

test('each comes before the next is there', async () => {
  const input = new PassThrough();
  type(input);
  const lines = readLines('');
  for (const line of ['a', 'b']) {
    input.write(`${line}\n`);
    expect(await lines.next()).toEqual({ done: false, value: line });
  }
  input.end();
  expect(await lines.next()).toEqual({ done: true, value: undefined });
});

test('a line without an end is refused once it is longer than any message, and no more of it is read', async () => {
  let pieces = 0;
  async function* endless() {
    yield new TextEncoder().encode('hello\n');
    // Ends where a bound is missing.
    for (; pieces < 64; pieces++) yield new Uint8Array(2 ** 20).fill(0x61);
  }
  type(endless());
  const lines = readLines('');
  expect((await lines.next()).value).toBe('hello');
  await expect(lines.next()).rejects.toThrow(
    new HoldfastError(
      'standard input: a line of more than 16777216 characters; each line is one message, end it with a line feed',
    ),
  );
  expect(pieces).toBe(16);
});
