// The tokenizer of a model, made from its files, or of bytes where it has none: the one door to a tokenizer. The code of
// those that a tokenizer.json describes is loaded when there is one.

import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { mapByName } from '../util/arguments.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { check, object, text } from '../util/json.ts';
import type { HuggingFaceTokenizer } from './huggingface/tokenizer.ts';
import { ByteTokenizer, isOfBytes, type Tokenizer, type TokenizerIdentity } from './tokenizer.ts';

/**
 * The tokenizer of a model, which has a vocabulary of so many tokens, from its files; where none is named, what they
 * describe, or bytes where there are none; bytes, too, where the vocabulary is of no tokens: nothing is read in it then,
 * and nothing written. Errors: HoldfastError where they are
 * not those of the identity, or cannot be used as they are, and where the vocabulary is not the tokenizer's: a byte would be
 * taken for the id of some other token.
 */
export async function tokenizerOf(
  named: TokenizerIdentity | undefined,
  files: TokenizerFiles | undefined,
  vocabulary: number,
  model: string,
): Promise<Tokenizer> {
  const isByte = named ? named.kind === 'byte' : !files || vocabulary === 0;
  if (isByte) {
    const tokenizer = new ByteTokenizer();
    if (vocabulary === 0 || isOfBytes(vocabulary)) return tokenizer;
    const bytes = tokenizer.vocabulary;
    throw new HoldfastError(
      `${model}: its vocabulary has ${vocabulary} tokens, of a tokenizer that is not there; without a tokenizer.json, only ` +
        `models of the ${bytes} bytes read and write text: name its tokenizer, or use one with vocab_size ${bytes}`,
    );
  }
  const identity = named?.kind === 'huggingface' ? named : undefined;
  if (!files)
    throw new HoldfastError(`${model}: its tokenizer.json is not there, nor in ${shortened(identity?.path ?? '')}`);
  if (identity && files.sha256 !== identity.sha256) {
    throw new HoldfastError(
      `${shortened(files.path)}: this tokenizer.json (SHA-256 ${files.sha256.slice(0, 12)}...) is not the one that ${model} ` +
        `was made with (${identity.sha256.slice(0, 12)}...); its tokens are others, use that one`,
    );
  }
  const tokenizer = await tokenizerFrom(files, identity && identity.overrides === undefined);
  if (identity && tokenizer.identity.overrides !== identity.overrides) {
    throw new HoldfastError(
      `${shortened(files.path)}: what lies beside it says ${shortened(tokenizer.identity.overrides ?? 'nothing else than it')}, ` +
        `and with ${model} it was ${shortened(identity.overrides ?? 'nothing')}; use the tokenizer_config.json of then`,
    );
  }
  if (tokenizer.vocabulary <= vocabulary) return tokenizer;
  throw new HoldfastError(
    `${shortened(files.path)}: its tokens go up to ${tokenizer.vocabulary - 1}, the vocabulary of ${model} ends at ` +
      `${vocabulary - 1}; use the model's own tokenizer`,
  );
}

const tokenizerFiles = object({ path: text, contents: mapByName });

/** What the files describe; `alone`: see HuggingFaceTokenizer. Errors: HoldfastError naming what is damaged, or would be read otherwise than elsewhere. */
export async function tokenizerFrom(files: TokenizerFiles, alone?: boolean): Promise<HuggingFaceTokenizer> {
  check(tokenizerFiles, files, 'files');
  const { HuggingFaceTokenizer } = await import('./huggingface/tokenizer.ts');
  return new HuggingFaceTokenizer(files, alone);
}
