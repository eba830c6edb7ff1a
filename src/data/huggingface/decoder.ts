// The decoder of a tokenizer.json: ids to text. All of ours: each token is bytes of UTF-8, once it is known whether it is
// the first, so that a stream of tokens is a stream of bytes, whose characters come as soon as they are whole.
//
// Invariant: bytes that are no UTF-8 become U+FFFD as WHATWG's decoder says, also where they were byte tokens.

import { characterBytes } from '../../util/byte-characters.ts';
import { utf8 } from '../tokenizer.ts';
import type { Part } from './part.ts';

/** What a token is in text. */
export interface Decoder {
  /** `special`: it was added to the model's own. */
  bytes(token: string, special: boolean, first: boolean): Uint8Array<ArrayBuffer>;
}

const encoder = new TextEncoder();

/** What happens to a token, one after the other. */
type Step = (token: string, first: boolean) => string;

export function decoderOf(part: Part | undefined): Decoder {
  if (!part) return { bytes: (token, _, first) => encoder.encode(first ? token : ` ${token}`) };
  const found: Found = { steps: [], byteLevel: false, byteFallback: false, strips: false };
  read(part, found);
  const { steps, byteLevel, byteFallback, strips } = found;
  return {
    bytes(token, special, first) {
      if (byteLevel) return (special ? undefined : characterBytes(token)) ?? encoder.encode(token);
      const byte = byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1] : undefined;
      const text = byte === undefined ? steps.reduce((found, step) => step(found, first), token) : undefined;
      const bytes = text === undefined ? Uint8Array.of(Number.parseInt(byte ?? '', 16)) : encoder.encode(text);
      return strips && first && bytes[0] === 0x20 ? bytes.slice(1) : bytes;
    },
  };
}

interface Found {
  readonly steps: Step[];
  byteLevel: boolean;
  byteFallback: boolean;
  strips: boolean;
}

const TYPES = ['ByteLevel', 'Sequence', 'Replace', 'ByteFallback', 'Fuse', 'Strip', 'Metaspace', 'WordPiece'];

function read(part: Part, found: Found): void {
  switch (part.type) {
    case 'Sequence':
      for (const each of part.parts('decoders')) read(each, found);
      break;
    case 'ByteLevel':
      for (const field of ['add_prefix_space', 'trim_offsets', 'use_regex']) part.value(field);
      found.byteLevel = true;
      break;
    case 'ByteFallback':
      found.byteFallback = true;
      break;
    case 'Fuse':
      break;
    case 'Strip':
      // Of the whole text, which Fuse has made: the space that the normalizer put there.
      if (part.text('content') !== ' ') part.refuse('content', part.value('content'), '" "', 'supported');
      if (part.count('start') !== 1 || part.count('stop') !== 0)
        part.fail('strips something else than one space before the text');
      found.strips = true;
      break;
    case 'Replace': {
      const literal = part.part('pattern')?.value('String');
      if (typeof literal !== 'string') part.refuse('pattern', part.value('pattern'), 'a String', 'supported');
      const content = part.text('content');
      found.steps.push((token) => token.replaceAll(literal, () => content));
      break;
    }
    case 'Metaspace': {
      const symbol = part.text('replacement', '\u2581');
      const always = part.flag('add_prefix_space', true);
      part.value('str_rep');
      part.value('split');
      found.strips = part.text('prepend_scheme', always ? 'always' : 'never') !== 'never';
      found.steps.push((token) => token.replaceAll(symbol, ' '));
      break;
    }
    case 'WordPiece': {
      const prefix = part.text('prefix', '##');
      const clean = part.flag('cleanup', true);
      const joined: Step = (token, first) =>
        first ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      found.steps.push(joined, ...(clean ? [cleaned] : []));
      break;
    }
    default:
      part.refuseType(TYPES);
  }
  part.done();
}

/** As the original cleans up, token by token. */
function cleaned(token: string): string {
  const signs = token
    .replace(/ ([.?!,])/g, '$1')
    .replaceAll(" ' ", "'")
    .replaceAll(" n't", "n't")
    .replaceAll(" 'm", "'m");
  return signs.replaceAll(" 's", "'s").replaceAll(" 've", "'ve").replaceAll(" 're", "'re");
}

/** Characters as they become whole, out of the bytes of tokens. */
export class TextStream {
  readonly #decoder = utf8();
  #first = true;

  /** `bytes` says what the token is at this place. */
  push(bytes: (first: boolean) => Uint8Array<ArrayBuffer>): string {
    const found = bytes(this.#first);
    this.#first = false;
    return this.#decoder.decode(found, { stream: true });
  }

  end(): string {
    this.#first = true;
    return this.#decoder.decode();
  }
}
