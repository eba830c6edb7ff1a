// The special tokens of a model: what its tokenizer.json and the files beside it say of the beginning and the end of a text
// and of filling up; what they name by ids is formats/token-ids.ts's. Invariant: each is an id that the tokenizer has.

import { namedIds, type TokenIdField } from '../../formats/token-ids.ts';
import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { jsonBeside } from '../../formats/tokenizer-overrides.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';
import type { SpecialTokens } from '../tokenizer.ts';
import type { Part } from './part.ts';

export interface FoundSpecials {
  readonly specials: SpecialTokens;
  readonly addsBos: boolean;
  /** What the post-processor puts around a text. */
  readonly around: Around;
}

/** Ids before a text, and behind it. */
interface Around {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

const NOTHING: Around = { before: [], after: [] };

/** `idOf`: of a token, as it is spelled. `post`: the post-processor. */
export function specialsOf(
  files: TokenizerFiles,
  idOf: (token: string) => number | undefined,
  hasId: (id: number) => boolean,
  post: Part | undefined,
): FoundSpecials {
  const config = jsonBeside(files, 'tokenizer_config.json');
  const map = jsonBeside(files, 'special_tokens_map.json');
  const generation = jsonBeside(files, 'generation_config.json');
  const spelled = (name: string): number | undefined => {
    const token = tokenIn(config[name]) ?? tokenIn(map[name]);
    return token === undefined ? undefined : idOf(token);
  };
  const idsIn = (name: TokenIdField): number[] => {
    const { ids, file } = namedIds(name, { generation, model: files.modelIds });
    const wrong = ids.find((id) => !Number.isSafeInteger(id) || (id as number) < 0);
    if (wrong === undefined) return (ids as number[]).filter(hasId);
    throw new HoldfastError(
      `${shortened(files.path)}: ${file}: ${name} is ${show(wrong)}; it must be an id, or a list of ids`,
    );
  };
  const { before, after } = post ? templateOf(post, idOf) : NOTHING;
  const [first] = before;
  // What the tokenizer itself puts before a text outweighs an id: many a config.json has its family's, whatever its tokens.
  const own = spelled('bos_token') ?? (before.length === 1 ? first : undefined);
  const bos = own ?? idsIn('bos_token_id')[0];
  const eos = spelled('eos_token');
  const pad = spelled('pad_token') ?? idsIn('pad_token_id')[0];
  const named = config['add_bos_token'];
  return {
    specials: {
      ...(bos !== undefined && { bos }),
      eos: [...new Set([...idsIn('eos_token_id'), ...(eos === undefined ? [] : [eos])])],
      ...(pad !== undefined && { pad }),
    },
    // It outweighs the template, as where the template is made from it.
    addsBos: bos !== undefined && (typeof named === 'boolean' ? named : first === bos),
    around: { before, after },
  };
}

/** A token is given as its text, or as an object with it. */
function tokenIn(value: unknown): string | undefined {
  const content = isObject(value) ? value['content'] : value;
  return typeof content === 'string' ? content : undefined;
}

const TYPES = ['TemplateProcessing', 'ByteLevel', 'BertProcessing', 'RobertaProcessing', 'Sequence'];

/** The ids that the post-processor puts around a text. */
function templateOf(part: Part, idOf: (token: string) => number | undefined): Around {
  switch (part.type) {
    case 'Sequence': {
      // Each is put around what those before it made.
      const all = part.parts('processors').map((each) => templateOf(each, idOf));
      return {
        before: all.toReversed().flatMap(({ before }) => before),
        after: all.flatMap(({ after }) => after),
      };
    }
    case 'ByteLevel':
      return NOTHING;
    case 'BertProcessing':
    case 'RobertaProcessing': {
      const one = (field: string): number => {
        const [token] = part.list(field);
        return (typeof token === 'string' ? idOf(token) : undefined) ?? part.refuse(field, token, 'a token');
      };
      return { before: [one('cls')], after: [one('sep')] };
    }
    case 'TemplateProcessing': {
      const items = part.parts('single').map((item) => {
        if (item.value('Sequence') !== undefined) return undefined;
        const token = item.part('SpecialToken')?.text('id') ?? item.fail('is neither a Sequence nor a SpecialToken');
        return idOf(token) ?? part.refuse('single', token, 'tokens that there are', 'supported');
      });
      const text = items.indexOf(undefined);
      if (text < 0) return part.fail('has no Sequence in its single');
      const ids = (some: typeof items) => some.filter((id) => id !== undefined);
      return { before: ids(items.slice(0, text)), after: ids(items.slice(text + 1)) };
    }
    default:
      return part.refuseType(TYPES);
  }
}
