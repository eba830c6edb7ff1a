// The tokens that begin and end a text, out of what lies beside a tokenizer.json: the tokenizer's own configuration first, then what
// generation goes by.
//
// Invariant: each is a token that there is.

import { isObject } from '../../../util/json.ts';
import { type ModelTokenIds, namedIds, type TokenIdField } from '../../token-ids.ts';
import type { Specials } from './vocabulary.ts';

type Json = Readonly<Record<string, unknown>>;

/** Tokens that end a turn in the chat templates that there are. */
const ENDS_OF_TURNS = ['<|eot_id|>', '<|im_end|>', '<end_of_turn>', '<|end|>', '<|endofturn|>'];

export interface SpecialSources {
  /** tokenizer.json. */
  readonly tokenizer: Json;
  /** tokenizer_config.json and special_tokens_map.json, the first first. */
  readonly configs: readonly Json[];
  /** generation_config.json, and what config.json says of special tokens. */
  readonly ids: { readonly generation: Json; readonly model: ModelTokenIds | undefined };
  readonly chatTemplate: string | undefined;
  /** What the chat template writes behind an answer, where that is known. */
  readonly turnEnd: string | undefined;
}

/** `idOf`: of a token, as it is spelled. */
export function ggufSpecials(
  { tokenizer, configs, ids, chatTemplate, turnEnd = '' }: SpecialSources,
  idOf: (token: string) => number | undefined,
  hasId: (id: number) => boolean,
): Specials {
  const spelled = (name: string): number[] =>
    configs.flatMap((config) => {
      const value = config[name];
      const text = isObject(value) ? value['content'] : value;
      const id = typeof text === 'string' ? idOf(text) : undefined;
      return id === undefined ? [] : [id];
    });
  const numbered = (name: TokenIdField): number[] =>
    namedIds(name, ids).ids.filter((id): id is number => typeof id === 'number' && hasId(id));
  const { before, after } = templateOf(tokenizer['post_processor'], idOf);
  const bos = spelled('bos_token')[0] ?? before ?? numbered('bos_token_id')[0];
  const ends = [...spelled('eos_token'), ...numbered('eos_token_id')];
  const [eos = after] = ends;
  const named = (field: string): boolean | undefined =>
    configs.map((config) => config[field]).find((value) => typeof value === 'boolean');
  return {
    bos,
    eos,
    eot: [turnEnd, ...ENDS_OF_TURNS].map(idOf).find((id) => id !== undefined && ends.includes(id)),
    pad: spelled('pad_token')[0] ?? numbered('pad_token_id')[0],
    unk: spelled('unk_token')[0],
    // A model whose chats begin with it is given it by what makes chats without that template, too.
    addBos:
      bos !== undefined && (named('add_bos_token') ?? (before === bos || chatTemplate?.includes('bos_token') === true)),
    addEos: eos !== undefined && (named('add_eos_token') ?? after === eos),
  };
}

/** What the post-processor puts around a text. */
function templateOf(
  processor: unknown,
  idOf: (token: string) => number | undefined,
): { before?: number | undefined; after?: number | undefined } {
  if (!isObject(processor)) return {};
  const { type, processors, single } = processor;
  if (type === 'Sequence' && Array.isArray(processors)) {
    return Object.assign({}, ...processors.map((each) => templateOf(each, idOf)));
  }
  if (type !== 'TemplateProcessing' || !Array.isArray(single)) return {};
  const tokenAt = (item: unknown): number | undefined => {
    const token = isObject(item) && isObject(item['SpecialToken']) ? item['SpecialToken']['id'] : undefined;
    return typeof token === 'string' ? idOf(token) : undefined;
  };
  return { before: tokenAt(single[0]), after: tokenAt(single.at(-1)) };
}
