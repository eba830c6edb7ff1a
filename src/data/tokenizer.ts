// Text to token ids and back: the interface, the one door to a tokenizer (tokenizerOf), and the one that needs no file, one
// token per byte.
//
// Invariant: decode(encode(text)) is text. A stream decoder's pieces, joined, are what decode() of the same
// ids gives, and no piece ends inside a character.

import { HoldfastError } from '../util/errors.ts';

/** Which tokenizer a model reads and writes with, as plain JSON: saved with its run. */
export interface TokenizerIdentity {
  /** `byte`: one token a byte of UTF-8. */
  readonly kind: 'byte';
}

/** Of a run that names none. */
export const DEFAULT_TOKENIZER: TokenizerIdentity = { kind: 'byte' };

/** Text to token ids and back. */
export interface Tokenizer {
  /** What `tokenizerOf` makes it from. */
  readonly identity: TokenizerIdentity;
  /** Ids lie in 0 .. vocabulary - 1. */
  readonly vocabulary: number;
  /** Bytes of text in a token, where all have equally many. */
  readonly tokenBytes?: number;
  /** Tokens in front of a document and behind it, where there are such. */
  readonly specials?: { readonly bos?: number; readonly eos?: number };
  /** Token ids of text, or of its bytes in UTF-8. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer>;
  /** Bytes that are not UTF-8 become U+FFFD. Errors: HoldfastError for an id outside the vocabulary. */
  decode(ids: Iterable<number>): string;
  /** For printing while generating. */
  stream(): StreamDecoder;
  /** One token by itself, to be looked at: never empty, no control characters. */
  show(id: number): string;
}

/** Turns ids into text as they come. */
export interface StreamDecoder {
  /** The text that this id completes: empty in the middle of a character. */
  push(id: number): string;
  /** What is left of an unfinished character, as U+FFFD; the decoder can then be used anew. */
  end(): string;
}

const BYTES = 256;

/** One token a byte of UTF-8. */
export class ByteTokenizer implements Tokenizer {
  /** See Tokenizer. */
  readonly identity = DEFAULT_TOKENIZER;
  /** Every byte. */
  readonly vocabulary = BYTES;
  /** See Tokenizer. */
  readonly tokenBytes = 1;

  /** See Tokenizer. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer> {
    return Int32Array.from(typeof text === 'string' ? new TextEncoder().encode(text) : text);
  }

  /** See Tokenizer. */
  decode(ids: Iterable<number>): string {
    return utf8().decode(Uint8Array.from(ids, toByte));
  }

  /** See Tokenizer. */
  stream(): StreamDecoder {
    const decoder = utf8();
    return {
      push: (id) => decoder.decode(Uint8Array.of(toByte(id)), { stream: true }),
      end: () => decoder.decode(),
    };
  }

  /** See Tokenizer. */
  show(id: number): string {
    const byte = toByte(id);
    if (byte >= 0x20 && byte < 0x7f) return String.fromCharCode(byte);
    if (byte === 0x0a) return '\\n';
    return `0x${byte.toString(16).padStart(2, '0')}`;
  }
}

const TOKENIZERS: { readonly [K in TokenizerIdentity['kind']]: () => Tokenizer } = { byte: () => new ByteTokenizer() };

/** The kinds of tokenizers that there are. */
export const TOKENIZER_KINDS = Object.keys(TOKENIZERS) as TokenizerIdentity['kind'][];

/**
 * The tokenizer of a model, which has a vocabulary of so many tokens. Errors: HoldfastError where it is not the tokenizer's:
 * a byte would be taken for the id of some other token.
 */
export function tokenizerOf(
  { kind }: TokenizerIdentity | undefined = DEFAULT_TOKENIZER,
  vocabulary: number,
  model: string,
): Tokenizer {
  const tokenizer = TOKENIZERS[kind]();
  if (vocabulary === tokenizer.vocabulary) return tokenizer;
  throw new HoldfastError(
    `${model}: its vocabulary has ${vocabulary} tokens, of a tokenizer that is not there; only models of the ${BYTES} bytes ` +
      `read and write text: use one with vocab_size ${BYTES}`,
  );
}

/** A byte order mark is text like any other: without `ignoreBOM` it would vanish. */
const utf8 = () => new TextDecoder('utf-8', { ignoreBOM: true });

function toByte(id: number): number {
  if (Number.isInteger(id) && id >= 0 && id < 256) return id;
  throw new HoldfastError(
    `token ${id} is not a byte (0 to 255): the model's vocabulary is larger than the byte tokenizer's, use its own`,
  );
}
