// The classes of labelled data, held against those of a model. What data calls them is a name each, or a number; what a model
// calls them is in its configuration (formats/families/labels.ts). Not how data is read.
//
// Invariant: a label has one class of the model or is refused; where data has none of a model's names, it is of another task.

import { classesOf, type Labels, labelsOf, unnamedLabels } from '../formats/families/labels.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { show } from '../util/json.ts';

/** A class as data has it: by its name, or by its number from 0 on. */
export type Label = string | number;

/** All that a data set has: names in their order, or so many numbers. */
export type DataClasses =
  | {
      readonly kind: 'named';
      readonly names: readonly string[];
      /** For messages: where each is found first. */
      readonly places?: ReadonlyMap<string, string>;
    }
  | { readonly kind: 'numbered'; readonly count: number };

/** A model's head says so much more than one line can show. */
const SHOWN = 8;
/** More classes are told together alone. */
const MOST_TOLD = 20;
/** Of one example, those that are likeliest. */
const LIKELIEST = 5;

/** In the order of their characters, as classes are numbered elsewhere. */
export const sortedNames = (names: Iterable<string>): string[] => [...new Set(names)].sort((a, b) => (a < b ? -1 : 1));

/** What a model is to call these classes. Errors: HoldfastError for fewer than two. */
export function labelsFor(classes: DataClasses, data: string): Labels {
  const names = classes.kind === 'named' ? classes.names : unnamedLabels(classes.count);
  if (names.length >= 2) return labelsOf(names);
  throw new HoldfastError(`${data}: all of one class; a classifier learns to tell two or more apart`);
}

/**
 * Whether the classes of data are those of a model. Not where it has none of their names: then they are of another task.
 * Errors: HoldfastError where some of them are the model's and some are not, and for numbers that it does not have.
 */
export function areOf(labels: Labels, classes: DataClasses, data: string): boolean {
  const own = classesOf(labels);
  if (classes.kind === 'numbered') {
    if (classes.count <= own) return true;
    throw new HoldfastError(
      `${data}: has ${classes.count} classes, the model tells ${own} apart; give each class a name to train a head for them, or use another model`,
    );
  }
  const stranger = classes.names.find((name) => !Object.hasOwn(labels.label2id, name));
  if (stranger === undefined) return true;
  if (classes.names.every((name) => !Object.hasOwn(labels.label2id, name))) return false;
  throw new HoldfastError(`${classes.places?.get(stranger) ?? data}: ${refusal(labels, stranger)}`);
}

/** The number of a label. Errors: HoldfastError, which begins with its place, for none of the model's. */
export function classOf(labels: Labels, label: Label, at: string): number {
  const found = typeof label === 'number' ? label : labels.label2id[label];
  if (found !== undefined && found < classesOf(labels)) return found;
  throw new HoldfastError(`${at}: ${refusal(labels, label)}`);
}

function refusal(labels: Labels, label: Label): string {
  return `the class ${shortened(show(label))} is none of the model's; it tells ${namesOf(labels)} apart`;
}

/** How many examples of a data set have each class, by its number. */
export function countsOf(labels: Labels, given: Iterable<number>): number[] {
  const counts = new Array<number>(classesOf(labels)).fill(0);
  for (const label of given) counts[label] = (counts[label] ?? 0) + 1;
  return counts;
}

/** For people: how many there are of each class, most first, as many classes as a line holds. */
export function describeCounts({ id2label }: Labels, counts: readonly number[]): string {
  const named = counts.map((count, label) => ({ count, name: id2label[label] ?? '' }));
  const all = named.toSorted((a, b) => b.count - a.count);
  const shown = all.slice(0, SHOWN).map(({ count, name }) => `${count.toLocaleString('en')} ${plain(name)}`);
  return shown.join(', ') + (all.length > SHOWN ? ` and ${all.length - SHOWN} classes more` : '');
}

/** Of one class: examples, and those told right. */
export interface ClassShare {
  readonly count: number;
  readonly right: number;
}

/** Of each class, by its number. `told`: of each example, whether it is told right. */
export function classSharesOf(labels: Labels, given: readonly number[], told: readonly boolean[]): ClassShare[] {
  const right = countsOf(
    labels,
    given.filter((_, i) => told[i]),
  );
  return countsOf(labels, given).map((count, label) => ({ count, right: right[label] ?? 0 }));
}

/** For people: of each class what share is told right, a line each, most examples first; none of more classes than can be looked over. */
export function describeShares({ id2label }: Labels, shares: readonly ClassShare[]): string[] {
  if (shares.length > MOST_TOLD) return [];
  const all = shares.map((share, label) => ({ ...share, name: plain(id2label[label] ?? '') }));
  const width = Math.max(...all.map(({ name }) => name.length));
  return all
    .toSorted((a, b) => b.count - a.count)
    .filter(({ count }) => count > 0)
    .map(({ name, count, right }) => {
      const share = `${((100 * right) / count).toFixed(2)} %`.padStart(8);
      return `  ${name.padEnd(width)} ${share} (${right.toLocaleString('en')} of ${count.toLocaleString('en')})`;
    });
}

/** For people: the classes that an example is likeliest of, as many as are looked at. `probabilities`: of each class, by its number. */
export function likeliestClasses({ id2label }: Labels, probabilities: ArrayLike<number>): string {
  const all = Array.from(probabilities, (probability, label) => ({ probability, name: id2label[label] ?? '' }));
  const shown = all.toSorted((a, b) => b.probability - a.probability).slice(0, LIKELIEST);
  return shown.map(({ probability, name }) => `${plain(name)} ${(100 * probability).toFixed(1)} %`).join(', ');
}

/** A name of several words, or with spaces around it, is quoted. */
const plain = (name: string): string => (/^\S+$/.test(name) ? shortened(name) : shortened(JSON.stringify(name)));

/** For people: as many as a line holds. */
export function namesOf({ id2label }: Labels): string {
  const names = Object.values(id2label);
  const shown = names.slice(0, SHOWN).map((name) => shortened(name));
  return shown.join(', ') + (names.length > SHOWN ? ` and ${names.length - SHOWN} more` : '');
}
