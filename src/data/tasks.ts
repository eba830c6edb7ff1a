// Generated tasks: text of solved problems to learn from, and problems that are nowhere in it. Pure and seeded. What a
// model solves of those it has not remembered, it has learned.
//
// Invariant: whether a problem is held back is a property of the problem, not of the seed: no text of any seed has it.

import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';

/** `answer` ends with the line: what follows `prompt` up to the next newline. */
export interface Problem {
  readonly prompt: string;
  readonly answer: string;
}

/** Text that is made up, and problems to see what was learned from it. */
export interface Task {
  /** One sentence for a person. */
  readonly description: string;
  /** Of every line, its end included. */
  readonly lineBytes: number;
  /** Solved problems, one a line. */
  text(seed: number): string;
  /** So many, all different. */
  unseen(seed: number, count: number): Problem[];
}

/** A problem at random; those of one `kind` differ in nothing that has to be learned, and are held back together. */
type Draw = (random: Random) => Problem & { readonly kind: string };

const TEXT_BYTES = 300_000;
/** One kind of problem in so many is held back. */
const HELD_BACK = 8;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

const isHeldBack = (kind: string): boolean => new Random(0, kind).below(HELD_BACK) === 0;

const some = (random: Random, count: number, from: string): string[] =>
  Array.from({ length: count }, () => at(from, random.below(from.length)));

function task(description: string, draw: Draw): Task {
  const example = draw(new Random(0, 'example'));
  return {
    description,
    lineBytes: `${example.prompt}${example.answer}\n`.length,
    text(seed) {
      const random = new Random(seed, 'text');
      const lines: string[] = [];
      for (let bytes = 0; bytes < TEXT_BYTES; ) {
        const { prompt, answer, kind } = draw(random);
        if (isHeldBack(kind)) continue;
        const line = `${prompt}${answer}\n`;
        lines.push(line);
        bytes += line.length;
      }
      return lines.join('');
    },
    unseen(seed, count) {
      const random = new Random(seed, 'unseen');
      const found = new Map<string, Problem>();
      while (found.size < count) {
        const { prompt, answer, kind } = draw(random);
        if (isHeldBack(kind)) found.set(prompt, { prompt, answer });
      }
      return [...found.values()];
    },
  };
}

/** The tasks that there are, by name. */
export const TASKS = {
  addition: task(
    'Adds two numbers of two digits. The sum is written from its last digit to its first, so that each carry is known before it is needed: 37+58=590 says 095.',
    (random) => {
      const [a, b] = [random.below(100), random.below(100)];
      const two = (n: number) => String(n).padStart(2, '0');
      const sum = String(a + b).padStart(3, '0');
      const kind = `${Math.min(a, b)}+${Math.max(a, b)}`;
      return { prompt: `${two(a)}+${two(b)}=`, answer: [...sum].reverse().join(''), kind };
    },
  ),
  sorting: task('Sorts five digits: sort 73913: 13379.', (random) => {
    const digits = some(random, 5, '0123456789');
    const answer = digits.toSorted().join('');
    return { prompt: `sort ${digits.join('')}: `, answer, kind: answer };
  }),
  reversing: task('Writes five letters backwards: reverse gkeqa: aqekg.', (random) => {
    const letters = some(random, 5, LETTERS);
    const answer = letters.toReversed().join('');
    return { prompt: `reverse ${letters.join('')}: `, answer, kind: answer };
  }),
} as const satisfies Record<string, Task>;

/** Tasks that text is generated for. */
export type TaskName = keyof typeof TASKS;

/** Errors: HoldfastError for a name that is none. */
export function taskOf(name: string): Task {
  if (Object.hasOwn(TASKS, name)) return TASKS[name as TaskName];
  throw new HoldfastError(`task "${name}": choose one of ${Object.keys(TASKS).join(', ')}`);
}
