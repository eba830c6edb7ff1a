// The tokens of a model as llama.cpp has them, and the metadata that says so. Made from a tokenizer.json (huggingface.ts), or the
// 256 bytes that models without one are trained on.
//
// Invariant: token i of the list is row i of the embedding, and no two are the same text: llama.cpp refuses both otherwise.

import { BYTE_CHARACTERS } from '../../../util/byte-characters.ts';
import { HoldfastError } from '../../../util/errors.ts';
import { bool, type Metadata, type MetadataValue, string, u32 } from '../header.ts';

/** llama.cpp's kinds of tokens. */
export const TOKEN = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

export interface Vocabulary {
  /** "gpt2": byte-level merges; "llama": SentencePiece's, by scores. */
  readonly model: 'gpt2' | 'llama';
  /** How a text is cut before it is merged. */
  readonly pre: string;
  /** By their ids; undefined where an id has none. */
  readonly tokens: readonly ({ readonly text: string; readonly kind: number } | undefined)[];
  /** "left right", the first first. Of "gpt2". */
  readonly merges?: readonly string[];
  /** What two tokens come to is better the higher. Of "llama". */
  readonly scores?: readonly number[];
  /** Whether a text is begun with a space. Of "llama". */
  readonly addSpacePrefix?: boolean;
  readonly specials: Specials;
  /** In Jinja. */
  readonly chatTemplate?: string;
}

export interface Specials {
  readonly bos?: number | undefined;
  readonly eos?: number | undefined;
  /** Ends a turn of a chat. */
  readonly eot?: number | undefined;
  readonly pad?: number | undefined;
  readonly unk?: number | undefined;
  readonly addBos: boolean;
  readonly addEos: boolean;
}

/**
 * The bytes, each as the character that stands for it. Byte 0, which no text has, ends one: without a name for it llama.cpp would
 * take byte 11. Nothing is merged, so any way to cut does; Qwen 2's leaves spaces before punctuation alone.
 */
export const BYTE_VOCABULARY: Vocabulary = {
  model: 'gpt2',
  pre: 'qwen2',
  tokens: BYTE_CHARACTERS.map((text) => ({ text, kind: TOKEN.normal })),
  merges: [],
  specials: { bos: 0, eos: 0, addBos: false, addEos: false },
};

/** `rows`: of the embedding. Errors: HoldfastError where there are fewer rows than tokens, or one token twice. */
export function vocabularyMetadata(vocabulary: Vocabulary, rows: number, from: string): Metadata {
  const { model, pre, merges, scores, addSpacePrefix, specials, chatTemplate } = vocabulary;
  const last = vocabulary.tokens.findLastIndex((token) => token !== undefined);
  if (last >= rows) {
    throw new HoldfastError(
      `${from}: token ${last} has no row in the model's embedding of ${rows}; use its own tokenizer`,
    );
  }
  const tokens = complete(vocabulary.tokens, rows, from);
  const entries: Record<string, MetadataValue | undefined> = {
    model: string(model),
    pre: string(pre),
    tokens: { type: 'strings', value: tokens.map(({ text }) => text) },
    scores: scores && { type: 'f32s', value: tokens.map((_, id) => scores[id] ?? lowest(scores)) },
    token_type: { type: 'i32s', value: tokens.map(({ kind }) => kind) },
    merges: merges && { type: 'strings', value: merges },
    bos_token_id: id(specials.bos),
    eos_token_id: id(specials.eos),
    eot_token_id: id(specials.eot),
    unknown_token_id: id(specials.unk),
    padding_token_id: id(specials.pad),
    add_bos_token: bool(specials.addBos),
    add_eos_token: bool(specials.addEos),
    add_space_prefix: addSpacePrefix === undefined ? undefined : bool(addSpacePrefix),
  };
  const metadata = new Map<string, MetadataValue>();
  for (const [key, value] of Object.entries(entries)) if (value) metadata.set(`tokenizer.ggml.${key}`, value);
  if (chatTemplate !== undefined) metadata.set('tokenizer.chat_template', string(chatTemplate));
  return metadata;
}

const id = (value: number | undefined): MetadataValue | undefined => (value === undefined ? undefined : u32(value));

const lowest = (scores: readonly number[]): number => scores.reduce((least, score) => Math.min(least, score), 0);

/** A text for every row: those without a token are filled up. */
function complete(tokens: Vocabulary['tokens'], rows: number, from: string): { text: string; kind: number }[] {
  const texts = new Set<string>();
  for (const token of tokens) {
    if (!token) continue;
    if (token.text === '' || texts.has(token.text)) {
      throw new HoldfastError(
        `${from}: ${token.text === '' ? 'a token has no text' : `two tokens are ${JSON.stringify(token.text)}`}; llama.cpp needs a text of its own for each`,
      );
    }
    texts.add(token.text);
  }
  return Array.from({ length: rows }, (_, row) => {
    const token = tokens[row];
    if (token) return token;
    let text = `[PAD${row}]`;
    while (texts.has(text)) text = `[${text}]`;
    return { text, kind: TOKEN.unused };
  });
}
