// Text to token ids and back: the interface, and the tokenizer that needs no file, one token per byte. Those that a
// tokenizer.json describes are in huggingface/; what finds out which one a model has is open-tokenizer.ts.
//
// Invariant: decode(encode(text)) is text, unless the tokenizer itself says otherwise (one that lowercases). A stream
// decoder's pieces, joined, are what decode() of the same ids gives, and no piece ends inside a character.

import * as v from 'valibot';
import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { effectiveTokenizer } from '../formats/tokenizer-overrides.ts';
import { bytes, having, iterable } from '../util/arguments.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, show } from '../util/json.ts';

/** Which tokenizer a model reads and writes with, as plain JSON: saved with its run. */
export type TokenizerIdentity =
  /** One token a byte of UTF-8. */
  | { readonly kind: 'byte' }
  /** Of a tokenizer.json. */
  | {
      readonly kind: 'huggingface';
      /** As it was named: the file, a folder or a zip. Checkpoints have a copy beside them. */
      readonly path: string;
      /** Of tokenizer.json, as 64 hexadecimal digits. */
      readonly sha256: string;
      /** What the files beside it say otherwise, and outweighs it. @default nothing, as in runs of earlier versions */
      readonly overrides?: string;
    };

/** The tokenizer of a run that names none. */
export const DEFAULT_TOKENIZER: TokenizerIdentity = { kind: 'byte' };

/** Tokens that stand for no text. */
export interface SpecialTokens {
  /** Before a text. */
  readonly bos?: number;
  /** Each of them ends a text. */
  readonly eos: readonly number[];
  /** Fills rows up. */
  readonly pad?: number;
}

/** What stands around a text where a model reads it as a whole, and what in it stands for no text. */
export interface TextMarks {
  /** Ids in front of it. */
  readonly before: readonly number[];
  /** Ids behind it. */
  readonly after: readonly number[];
  /** Ids of all special tokens. */
  readonly special: ReadonlySet<number>;
}

/** A place between two parts of a text. */
export interface Cut {
  /** Where the first part ends. */
  readonly end: number;
  /** Where the second begins: there, or behind a space that its first token brings along. */
  readonly begin: number;
}

/** Text to token ids and back. */
export interface Tokenizer {
  /** What `tokenizerOf` makes it from. */
  readonly identity: TokenizerIdentity;
  /** What it was made from, for checkpoints to carry along; none for bytes. */
  readonly files?: TokenizerFiles;
  /** Ids lie in 0 .. vocabulary - 1. */
  readonly vocabulary: number;
  /** Bytes of text in a token, where all have equally many. */
  readonly tokenBytes?: number;
  /** Tokens that stand for no text. The first that ends a text ends a document. */
  readonly specials: SpecialTokens;
  /** Whether its models see `specials.bos` before every text: `promptIds` puts it there, `encode` never does. */
  readonly addsBos: boolean;
  /** Of a model that reads a text from both sides: `encode` puts none of it there. @default it has none */
  readonly marks?: TextMarks;
  /** Token ids of text, or of its bytes in UTF-8. Special tokens that are spelled out in it are found. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer>;
  /**
   * Bytes that are not UTF-8 become U+FFFD. Special tokens are spelled out; ids that no token has are left out. Errors:
   * HoldfastError for what is no id.
   */
  decode(ids: Iterable<number>): string;
  /** For printing while generating. To continue a text, its ids go first. */
  stream(): StreamDecoder;
  /** One token by itself, to be looked at: never empty, no control characters. */
  show(id: number): string;
  /**
   * The first place from `from` on where a text may be cut, so that the ids of the parts, joined, are those of the whole.
   * Undefined: there is none in what is given. Absent: no place is known to be safe.
   */
  nextCut?(text: string, from: number): Cut | undefined;
}

/** Turns ids into text as they come. */
export interface StreamDecoder {
  /** The text that this id completes: empty in the middle of a character. */
  push(id: number): string;
  /** What is left of an unfinished character, as U+FFFD; the decoder can then be used anew. */
  end(): string;
}

/** Ids one behind the other. However many there are: they are no arguments of a call, of which an engine takes some 100,000. */
export function joinedIds(...parts: readonly ArrayLike<number>[]): Int32Array<ArrayBuffer> {
  const all = new Int32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Errors: HoldfastError for what is no tokenizer. */
export const checkTokenizer = (tokenizer: Pick<Tokenizer, 'encode' | 'specials'>): void =>
  void check(
    having<Tokenizer>('a tokenizer, as tokenizerFrom or new ByteTokenizer() gives', 'encode', 'specials'),
    tokenizer,
    'tokenizer',
  );

const encodable = v.union([v.string(), bytes], 'a text, or its bytes in a Uint8Array');

/** The ids of a text that is to be gone on with: BOS before it where the tokenizer adds it, and never twice. */
export function promptIds(tokenizer: Pick<Tokenizer, 'encode' | 'specials' | 'addsBos'>, text: string): Int32Array {
  checkTokenizer(tokenizer);
  const ids = tokenizer.encode(text);
  const { bos } = tokenizer.specials;
  // An empty prompt is its BOS alone, also where texts have none.
  const wanted = bos !== undefined && (tokenizer.addsBos || ids.length === 0);
  return wanted && ids[0] !== bos ? joinedIds([bos], ids) : ids;
}

const BYTES = 256;

/** Whether a model with a vocabulary of so many tokens, of which no tokenizer is known, is one of bytes. */
export const isOfBytes = (vocabulary: number): boolean => vocabulary === BYTES;

/** One token a byte of UTF-8. */
export class ByteTokenizer implements Tokenizer {
  /** See Tokenizer. */
  readonly identity = DEFAULT_TOKENIZER;
  /** Every byte. */
  readonly vocabulary = BYTES;
  /** See Tokenizer. */
  readonly tokenBytes = 1;
  /** There are none. */
  readonly specials: SpecialTokens = { eos: [] };
  /** See Tokenizer. */
  readonly addsBos = false;

  /** See Tokenizer. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer> {
    check(encodable, text, 'text');
    return Int32Array.from(typeof text === 'string' ? new TextEncoder().encode(text) : text);
  }

  /** See Tokenizer. */
  decode(ids: Iterable<number>): string {
    check(iterable, ids, 'ids');
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

/** What stands for the files in a run's settings. Errors: as effectiveTokenizer. */
export const identityOf = (files: TokenizerFiles): TokenizerIdentity =>
  namedIdentity(files, effectiveTokenizer(files).overrides);

/** As `identityOf`, of files whose overrides are known. */
export const namedIdentity = (
  { path, sha256 }: TokenizerFiles,
  overrides: string | undefined,
): Extract<TokenizerIdentity, { kind: 'huggingface' }> => ({
  kind: 'huggingface',
  path,
  sha256,
  ...(overrides !== undefined && { overrides }),
});

/** A byte order mark is text like any other: without `ignoreBOM` it would vanish. */
export const utf8 = () => new TextDecoder('utf-8', { ignoreBOM: true });

function toByte(id: number): number {
  if (Number.isInteger(id) && id >= 0 && id < 256) return id;
  throw new HoldfastError(
    `token ${show(id)} is not a byte (0 to 255): the model's vocabulary is larger than the byte tokenizer's, use its own`,
  );
}
