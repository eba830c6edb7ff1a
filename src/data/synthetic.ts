// Data that means nothing, to try a model's size and speed with: tokens drawn alike from the whole vocabulary, without a
// file and without a tokenizer. The same for every seed.

import type { Host } from '../runtime/host.ts';
import { Random } from '../util/random.ts';
import { heldRun } from './token-run.ts';
import type { TokenizedText } from './tokenized-text.ts';

/** In place of a file's name. */
export const SYNTHETIC = 'synthetic';

export const isSynthetic = (data: readonly string[]): boolean => data.length === 1 && data[0] === SYNTHETIC;

const TRAINED = 2 ** 17;
const VALIDATED = 2 ** 14;

/** At least so many, for `least` tokens of a sequence. */
export async function syntheticTokens(host: Host, vocabulary: number, least: number): Promise<TokenizedText> {
  const random = new Random(0, 'synthetic tokens');
  const draw = (count: number) =>
    Int32Array.from({ length: Math.max(count, 2 * least) }, () => random.below(vocabulary));
  const [train, validation] = [draw(TRAINED), draw(VALIDATED)];
  const sum = await host.files.sha256();
  for (const part of [train, validation]) sum.update(new Uint8Array(part.buffer));
  const identity = { bytes: train.byteLength + validation.byteLength, sha256: sum.hex() };
  return { identity, train: heldRun(train), validation: heldRun(validation), stride: 1 };
}
