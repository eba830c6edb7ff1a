// Generated tasks: their answers are right, their text is the same for the same seed, and what is held back is in none.

import { describe, expect, test } from 'vitest';
import { TASKS, type TaskName, taskOf } from '../../src/data/tasks.ts';
import { HoldfastError } from '../../src/util/errors.ts';

/** What a person would write behind the prompt. */
const SOLVE: Record<TaskName, (prompt: string) => string> = {
  addition(prompt) {
    const [, a, b] = /^(\d\d)\+(\d\d)=$/.exec(prompt) ?? [];
    return [...String(Number(a) + Number(b)).padStart(3, '0')].reverse().join('');
  },
  sorting: (prompt) => [...(/^sort (\d{5}): $/.exec(prompt)?.[1] ?? '')].sort().join(''),
  reversing: (prompt) => [...(/^reverse ([a-z]{5}): $/.exec(prompt)?.[1] ?? '')].reverse().join(''),
};

/** Keys of problems, the same for those of one kind: sums in either order, letters to be sorted in any. */
const KIND: Record<TaskName, (prompt: string) => string> = {
  addition: (prompt) => prompt.slice(0, -1).split('+').sort().join(),
  sorting: SOLVE.sorting,
  reversing: SOLVE.reversing,
};

describe.each(Object.keys(TASKS) as TaskName[])('%s', (name) => {
  const { text, unseen } = TASKS[name];
  const lines = text(1).split('\n').slice(0, -1);
  const promptOf = (line: string) => line.slice(0, line.search(/[=:]/) + (name === 'addition' ? 1 : 2));

  test('a few hundred kilobytes of lines of one length, each with the right answer', () => {
    expect(text(1)).toHaveLength(lines.length * ((lines[0]?.length ?? 0) + 1));
    expect(text(1).length).toBeGreaterThan(290_000);
    expect(new Set(lines.map(({ length }) => length)).size).toBe(1);
    for (const line of lines) expect(promptOf(line) + SOLVE[name](promptOf(line))).toBe(line);
  });

  test('unseen problems are well-formed, different, and of a kind that no text has', () => {
    const problems = unseen(7, 64);
    expect(new Set(problems.map(({ prompt }) => prompt)).size).toBe(64);
    for (const { prompt, answer } of problems) expect(answer).toBe(SOLVE[name](prompt));
    for (const seed of [1, 2]) {
      const kinds = new Set(text(seed).split('\n').slice(0, -1).map(promptOf).map(KIND[name]));
      for (const { prompt } of problems) expect(kinds.has(KIND[name](prompt)), prompt).toBe(false);
    }
  });

  test('a seed gives the same again, and another something else', () => {
    expect(text(1)).toBe(lines.map((line) => `${line}\n`).join(''));
    expect(text(2)).not.toBe(text(1));
    expect(unseen(1, 8)).toEqual(unseen(1, 8));
    expect(unseen(2, 8)).not.toEqual(unseen(1, 8));
  });
});

test('a name that is no task is refused with those that are', () => {
  const refused = new HoldfastError('task "toString": choose one of addition, sorting, reversing');
  expect(() => taskOf('toString')).toThrow(refused);
});
