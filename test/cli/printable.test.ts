// What a model writes and what files bring, on a terminal: no control character of it arrives there; in a pipe all of it does.

import process from 'node:process';
import { expect, it, vi } from 'vitest';
import { chat } from '../../src/cli/chat.ts';
import { terminal } from '../../src/runtime/headless/terminal.ts';
import type { Host } from '../../src/runtime/host.ts';
import type { Conversation } from '../../src/train/inference/conversation.ts';
import { forTerminal, printable } from '../../src/util/printable.ts';
import { testHost } from '../host.ts';

const HOSTILE = 'a\x1b[2J\x07b\tc\r\n\x9b5nd\x7f';

it('is free of control characters but line feeds', () => {
  expect(printable(HOSTILE)).toBe('a\ufffd[2J\ufffdb    c\ufffd\n\ufffd5nd\ufffd');
  expect(printable('naïve 文 🙂\n')).toBe('naïve 文 🙂\n');
  // Overrides of direction and isolates; marks of it stay, which right-to-left text is written with.
  expect(printable('a\u202eb\u2066c\u2069\u200f')).toBe('a\ufffdb\ufffdc\ufffd\u200f');
});

it('on a terminal, tabs and what a progress display writes stay', () => {
  for (const own of ['\r\x1b[K', '\rcase: step 1 of 2\x1b[K', '\r\x1b[Kstep 1/2\n', 'a\tb\n', ''])
    expect(forTerminal(own)).toBe(own);
  expect(forTerminal('\r\x1b[K\x1b[2J\x1b[31ma\rb\x1b')).toBe('\r\x1b[K\ufffd[2J\ufffd[31ma\ufffdb\ufffd');
});

it.each(['stdout', 'stderr'] as const)('whatever writes to %s, no text of a file steers a terminal', (name) => {
  const stream = process[name];
  const before = Object.getOwnPropertyDescriptor(stream, 'isTTY');
  const wrote = vi.spyOn(stream, 'write').mockReturnValue(true);
  const written = (isTTY: boolean) => {
    Object.defineProperty(stream, 'isTTY', { value: isTTY, configurable: true });
    wrote.mockClear();
    (name === 'stdout' ? terminal.write : terminal.warn)(`${HOSTILE}\n`);
    return wrote.mock.calls;
  };
  try {
    expect(written(true)).toEqual([['a\ufffd[2J\ufffdb\tc\ufffd\n\ufffd5nd\ufffd\n']]);
    expect(written(false)).toEqual([[`${HOSTILE}\n`]]);
  } finally {
    wrote.mockRestore();
    if (before) Object.defineProperty(stream, 'isTTY', before);
    else Reflect.deleteProperty(stream, 'isTTY');
  }
});

it.each([
  [true, printable(HOSTILE)],
  [false, HOSTILE],
])('a chat, on a terminal: %s', async (interactive, expected) => {
  let written = '';
  const write = (text: string) => {
    written += text;
  };
  async function* lines() {
    yield 'hello';
  }
  async function* answer() {
    yield* HOSTILE;
  }
  const host: Host = { ...testHost, terminal: { ...testHost.terminal, interactive, write }, readLines: () => lines() };
  await chat(host, { leftOut: 0, answer } as unknown as Conversation, {} as never);
  expect(written).toBe(`${expected}\n`);
});
