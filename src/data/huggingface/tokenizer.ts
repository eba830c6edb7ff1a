// A tokenizer that a tokenizer.json describes, as Hugging Face's libraries write it: GPT-2's, Llama's, Qwen's, BERT's and
// those that are trained here (bpe.ts). Its parts are in this folder; this file puts them together.
//
// Invariant: its ids are those of Hugging Face's own library. What would be others is refused by name when it is made.

import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { effectiveTokenizer, mainPath } from '../../formats/tokenizer-overrides.ts';
import { byteCharacters } from '../../util/byte-characters.ts';
import { HoldfastError } from '../../util/errors.ts';
import {
  type Cut,
  namedIdentity,
  type SpecialTokens,
  type StreamDecoder,
  type TextMarks,
  type Tokenizer,
  utf8,
} from '../tokenizer.ts';
import { type AddedToken, addedTokensIn, TokenFinder } from './added-tokens.ts';
import { type CutRules, cutRulesOf, nextCut } from './cuts.ts';
import { type Decoder, decoderOf, TextStream } from './decoder.ts';
import { type TokenModel, tokenModelOf } from './model.ts';
import { type Normalizer, normalizerOf } from './normalizer.ts';
import { Part } from './part.ts';
import { type PreTokenizer, preTokenizerOf, type Step } from './pre-tokenizer.ts';
import { specialsOf } from './specials.ts';

/** Pieces whose ids are remembered, and the longest of them. */
const MOST_REMEMBERED = 2 ** 17;
const LONGEST_REMEMBERED = 64;

export class HuggingFaceTokenizer implements Tokenizer {
  readonly identity;
  readonly files: TokenizerFiles;
  readonly vocabulary: number;
  readonly specials: SpecialTokens;
  readonly addsBos: boolean;
  readonly marks: TextMarks;
  readonly #normalizer: Normalizer;
  readonly #steps: readonly Step[];
  /** Whether a piece goes to the model as the characters of its bytes. */
  readonly #byteLevel: boolean;
  readonly #model: TokenModel;
  readonly #decoder: Decoder;
  readonly #tokens: ReadonlyMap<number, { readonly text: string; readonly added: boolean }>;
  readonly #raw: TokenFinder;
  readonly #normalized: TokenFinder;
  readonly #cuts: CutRules | undefined;
  /** Whether a text goes to the model as it is, unless it is cut before. */
  readonly #byWord: boolean;
  readonly #remembered = new Map<string, readonly number[]>();

  /**
   * `alone`: whatever lies beside the tokenizer.json, as runs of earlier versions were made. Errors: HoldfastError naming what is
   * damaged, or would give other ids than elsewhere.
   */
  constructor(files: TokenizerFiles, alone = false) {
    const file = mainPath(files);
    const { json, overrides } = effectiveTokenizer(files, alone);
    const root = new Part(json, file, '');
    for (const field of ['version', 'truncation', 'padding']) root.value(field);
    this.files = files;
    this.identity = namedIdentity(files, overrides);
    this.#normalizer = normalizerOf(root.part('normalizer'));
    const split: PreTokenizer = preTokenizerOf(root.part('pre_tokenizer'), this.#normalizer);
    this.#byteLevel = split.byteLevel;
    this.#steps = split.byteLevel ? split.steps.slice(0, -1) : split.steps;
    const model = root.part('model') ?? root.refuse('model', undefined, 'an object');
    this.#model = tokenModelOf(model, split.byteLevel);
    this.#decoder = decoderOf(root.part('decoder'));
    const { vocabulary } = this.#model;
    const added = addedTokensIn(root.list('added_tokens', []), vocabulary, file);
    this.#tokens = new Map<number, { text: string; added: boolean }>([
      ...[...vocabulary].map(([text, id]) => [id, { text, added: false }] as const),
      ...added.map(({ id, content }) => [id, { text: content, added: true }] as const),
    ]);
    this.vocabulary = [...this.#tokens.keys()].reduce((most, id) => Math.max(most, id), 0) + 1;
    const ids = new Map([...vocabulary, ...added.map(({ id, content }) => [content, id] as const)]);
    const found = specialsOf(
      files,
      (token) => ids.get(token),
      (id) => this.#tokens.has(id),
      root.part('post_processor'),
    );
    root.done();
    this.specials = found.specials;
    this.addsBos = found.addsBos;
    this.marks = { ...found.around, special: new Set(added.flatMap(({ id, special }) => (special ? [id] : []))) };
    const late = root.value('normalizer') !== undefined;
    const isLate = ({ normalized }: AddedToken) => late && normalized;
    this.#raw = new TokenFinder(
      added.filter((token) => !isLate(token)),
      ({ content }) => content,
    );
    this.#normalized = new TokenFinder(added.filter(isLate), ({ content }) => this.#normalizer.apply(content));
    this.#byWord = !split.splits;
    this.#cuts = cutRulesOf(this.#normalizer, split, vocabulary.keys(), added);
  }

  /** See Tokenizer. */
  encode(text: string | Uint8Array): Int32Array<ArrayBuffer> {
    const whole = typeof text === 'string' ? text.replace(/\p{Cs}/gu, '\ufffd') : utf8().decode(text);
    const ids: number[] = [];
    let first = true;
    for (const section of this.#raw.split(whole)) {
      if (section.token) ids.push(section.token.id);
      else this.#encodeSection(section.text, first, ids);
      first = false;
    }
    return Int32Array.from(ids);
  }

  /** See Tokenizer. */
  decode(ids: Iterable<number>): string {
    const stream = this.stream();
    let text = '';
    for (const id of ids) text += stream.push(id);
    return text + stream.end();
  }

  /** See Tokenizer. */
  stream(): StreamDecoder {
    const stream = new TextStream();
    return {
      push: (id) => {
        const token = this.#token(id);
        return token ? stream.push((first) => this.#decoder.bytes(token.text, token.added, first)) : '';
      },
      end: () => stream.end(),
    };
  }

  /** See Tokenizer. */
  show(id: number): string {
    const token = this.#token(id);
    const bytes = token && this.#decoder.bytes(token.text, token.added, false);
    if (!bytes || bytes.length === 0) return `<${id}>`;
    const hexadecimal = (values: Uint8Array) => Array.from(values, (byte) => `0x${byte.toString(16).padStart(2, '0')}`);
    try {
      const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
      return text.replaceAll('\n', '\\n').replace(/\p{C}/gu, (c) => hexadecimal(new TextEncoder().encode(c)).join(' '));
    } catch {
      return hexadecimal(bytes).join(' ');
    }
  }

  /** See Tokenizer. */
  nextCut(text: string, from: number): Cut | undefined {
    return this.#cuts && nextCut(this.#cuts, text, from);
  }

  #token(id: number): { readonly text: string; readonly added: boolean } | undefined {
    if (!Number.isSafeInteger(id) || id < 0)
      throw new HoldfastError(`token ${id} is no id: ids are whole numbers from 0 on`);
    return this.#tokens.get(id);
  }

  #encodeSection(text: string, first: boolean, ids: number[]): void {
    if (!this.#byWord || !this.#cuts) {
      this.#encodePart(text, first, ids);
      return;
    }
    // Nothing else cuts this text into pieces that come again, or that are short.
    let begin = 0;
    for (let cut = nextCut(this.#cuts, text, 1); cut; cut = nextCut(this.#cuts, text, cut.begin + 1)) {
      for (const id of this.#idsOfWord(text.slice(begin, cut.end), first || begin > 0)) ids.push(id);
      begin = cut.begin;
    }
    for (const id of this.#idsOfWord(text.slice(begin), first || begin > 0)) ids.push(id);
  }

  #idsOfWord(word: string, first: boolean): readonly number[] {
    return this.#remember(`${first ? 1 : 0}${word}`, () => {
      const ids: number[] = [];
      this.#encodePart(word, first, ids);
      return ids;
    });
  }

  #encodePart(text: string, first: boolean, ids: number[]): void {
    let isFirst = first;
    for (const section of this.#normalized.split(this.#normalizer.apply(text))) {
      if (section.token) ids.push(section.token.id);
      else this.#encodePieces(section.text, isFirst, ids);
      isFirst = false;
    }
  }

  #encodePieces(text: string, first: boolean, ids: number[]): void {
    let pieces: readonly string[] = [text];
    for (const step of this.#steps) {
      // By the time of a second step, what is not at the beginning was cut off.
      let isFirst = first;
      const found: string[] = [];
      for (const piece of pieces) {
        for (const part of step(piece, isFirst)) found.push(part);
        isFirst = false;
      }
      pieces = found;
    }
    for (const piece of pieces) {
      const encode = () => this.#model.encode(this.#byteLevel ? byteCharacters(piece) : piece);
      for (const id of this.#byWord ? encode() : this.#remember(piece, encode)) ids.push(id);
    }
  }

  #remember(piece: string, encode: () => readonly number[]): readonly number[] {
    const known = this.#remembered.get(piece);
    if (known) return known;
    const ids = encode();
    if (piece.length > LONGEST_REMEMBERED) return ids;
    if (this.#remembered.size >= MOST_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(piece, ids);
    return ids;
  }
}
