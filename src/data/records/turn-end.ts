// The end of a turn among the tokens that end a text: a model that learned conversations ends its answers by it, and what
// writes with its files elsewhere (Hugging Face's `generate`, llama.cpp) ends a text by the ids that they name alone.
//
// Invariant: the ids that were named stay, in front; files that name the token are given back as they are.

import { namedIds } from '../../formats/token-ids.ts';
import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { jsonBeside, mainPath } from '../../formats/tokenizer-overrides.ts';
import { shortened } from '../../util/errors.ts';
import { isObject, parseJSON } from '../../util/json.ts';
import { ChatRenderer, type ChatTemplate } from './chat-template.ts';
import { endOfTurns } from './turns.ts';

/**
 * The files of a tokenizer that name what the template writes behind an answer in `eos_token_id`: in generation_config.json
 * where there is one, and in config.json. Where it is no added token they stay as they are: an ordinary one, a line's end
 * say, would end a text in the middle. tokenizer_config.json stays, too: what ends a document is the same as before. Errors:
 * HoldfastError for what is no template.
 */
export function withTurnEnd(files: TokenizerFiles, template: ChatTemplate): TokenizerFiles {
  const added = addedTokens(files);
  const end = added.get(endOfTurns(new ChatRenderer(template)) ?? '');
  const generation = jsonBeside(files, 'generation_config.json');
  const idsIn = (from: Partial<Parameters<typeof namedIds>[1]>) =>
    namedIds('eos_token_id', { generation: {}, model: undefined, ...from }).ids;
  const named = idsIn({ generation, model: files.modelIds });
  if (end === undefined || named.includes(end)) return files;
  const spelled = added.get(template.eos ?? '');
  const known = named.length > 0 || spelled === undefined ? named : [spelled];
  const withEnd = (own: readonly unknown[]) => ({ eos_token_id: [...(own.length > 0 ? own : known), end] });
  const contents = new Map(files.contents);
  if (contents.has('generation_config.json')) {
    const json = { ...generation, ...withEnd(idsIn({ generation })) };
    contents.set('generation_config.json', new TextEncoder().encode(`${JSON.stringify(json, undefined, 2)}\n`));
  }
  const { modelIds } = files;
  return { ...files, contents, modelIds: { ...modelIds, ...withEnd(idsIn({ model: modelIds })) } };
}

/** The ids of a tokenizer.json's added tokens, by their texts. */
function addedTokens(files: TokenizerFiles): Map<string, number> {
  const bytes = files.contents.get('tokenizer.json') ?? new Uint8Array();
  const json = parseJSON(bytes, shortened(mainPath(files)), 'get the file again');
  const added = isObject(json) ? json['added_tokens'] : undefined;
  const ids = new Map<string, number>();
  for (const token of Array.isArray(added) ? added : []) {
    const { content, id }: Readonly<Record<string, unknown>> = isObject(token) ? token : {};
    if (typeof content === 'string' && typeof id === 'number') ids.set(content, id);
  }
  return ids;
}
