// Text to token ids and back: the interface, and the tokenizer that needs no file, one token per byte.
//
// Invariant: decode(encode(text)) is text. A stream decoder's pieces, joined, are what decode() of the same
// ids gives, and no piece ends inside a character.

import { HoldfastError } from '../util/errors.ts';

/** Text to token ids and back. */
export interface Tokenizer {
  /** Ids lie in 0 .. vocabulary - 1. */
  readonly vocabulary: number;
  /** Token ids of text, or of its bytes in UTF-8. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer>;
  /** Bytes that are not UTF-8 become U+FFFD. Errors: HoldfastError for an id outside the vocabulary. */
  decode(ids: Iterable<number>): string;
  /** For printing while generating. */
  stream(): StreamDecoder;
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
  /** Every byte. */
  readonly vocabulary = BYTES;

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
}

/**
 * Checks that a model speaks bytes, the one tokenizer that there is. Errors: HoldfastError: with another, a byte would
 * be taken for the id of some other token.
 */
export function checkVocabulary(vocabulary: number, model: string): void {
  if (vocabulary === BYTES) return;
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
