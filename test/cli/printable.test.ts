// What a model writes, on a terminal: no control character of it arrives there; in a pipe all of it does.

import { expect, it } from 'vitest';
import { chat } from '../../src/cli/chat.ts';
import { printable } from '../../src/cli/printable.ts';
import type { Host } from '../../src/runtime/host.ts';
import type { Conversation } from '../../src/train/inference/conversation.ts';
import { testHost } from '../host.ts';

const HOSTILE = 'a\x1b[2J\x07b\tc\r\n\x9b5nd\x7f';

it('is free of control characters but line feeds', () => {
  expect(printable(HOSTILE)).toBe('a\ufffd[2J\ufffdb    c\ufffd\n\ufffd5nd\ufffd');
  expect(printable('naïve 文 🙂\n')).toBe('naïve 文 🙂\n');
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
