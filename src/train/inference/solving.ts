// The accuracy of a model on a generated task: it writes answers to problems that it has never seen.

import type { Problem } from '../../data/tasks.ts';
import { promptIds, type Tokenizer } from '../../data/tokenizer.ts';
import { Random } from '../../util/random.ts';
import type { Generator } from './generator.ts';

const GREEDY = { temperature: 0, topP: 1 };

/** The share of problems whose answer, always taking the likeliest token, is right to the end of its line. */
export async function accuracyOn(
  problems: readonly Problem[],
  generator: Pick<Generator, 'generate'>,
  tokenizer: Pick<Tokenizer, 'encode' | 'specials' | 'addsBos'>,
): Promise<number> {
  let solved = 0;
  for (const { prompt, answer } of problems) {
    const wanted = tokenizer.encode(`${answer}\n`);
    let right = 0;
    // Nothing is drawn.
    const random = new Random(0, 'greedy');
    for await (const id of generator.generate(promptIds(tokenizer, prompt), wanted.length, GREEDY, random)) {
      if (id !== wanted[right]) break;
      right++;
    }
    if (right === wanted.length) solved++;
  }
  return solved / problems.length;
}
