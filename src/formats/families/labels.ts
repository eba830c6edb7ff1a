// The classes of a classifier, as Hugging Face's configurations name them: `id2label` and `label2id`. Not the classes of a
// data set (data/classes.ts), which are held against these.

import { show } from '../../util/json.ts';
import type { Fields } from './fields.ts';

/** Names of classes by their numbers from 0 on, and the other way round. */
export interface Labels {
  id2label: Readonly<Record<string, string>>;
  label2id: Readonly<Record<string, number>>;
}

/** The labels with these names, in their order. */
export const labelsOf = (names: readonly string[]): Labels => ({
  id2label: Object.fromEntries(names.map((name, i) => [String(i), name])),
  label2id: Object.fromEntries(names.map((name, i) => [name, i])),
});

/** So many without names of their own, called as Hugging Face does. */
export const unnamedLabels = (count: number): string[] => Array.from({ length: count }, (_, i) => `LABEL_${i}`);

/** How many there are. */
export const classesOf = ({ id2label }: Labels): number => Object.keys(id2label).length;

/** That are told apart. */
export const MOST_CLASSES = 2 ** 16;

/** What Hugging Face computes with one output is a regression, and with this word one class of several. */
const PROBLEM = 'single_label_classification';

/**
 * Where only their number is there, or nothing: two. Errors: HoldfastError for names that are not numbered from 0 on, for
 * more classes than are told apart, and for a problem other than one class of several.
 */
export function parseLabels(fields: Fields): Labels {
  const labels = namedLabels(fields);
  fields.only('problem_type', [PROBLEM], PROBLEM);
  const count = classesOf(labels);
  if (count < 2)
    fields.refuse(
      `${fields.has('id2label') ? 'id2label' : 'num_labels'} is of ${count} class, which makes it a regression; supported: 2 classes or more`,
    );
  return labels;
}

function namedLabels(fields: Fields): Labels {
  const named = fields.object('id2label');
  const entries = Object.entries(named ?? {});
  const count = named ? entries.length : fields.count('num_labels', 2);
  // Of an earlier head, where there are names beside it: Transformers goes by those.
  if (!named) fields.neutral('_num_labels', [count]);
  if (count > MOST_CLASSES)
    fields.refuse(`${named ? 'id2label' : 'num_labels'} is of ${count} classes; supported: ${MOST_CLASSES} at most`);
  if (!named) return labelsOf(unnamedLabels(count));
  const names = entries.map((_, i) => {
    const name = named[String(i)];
    return typeof name === 'string'
      ? name
      : fields.refuse(
          `id2label has ${show(name)} for class ${i}; give a name for each number from 0 to ${entries.length - 1}`,
        );
  });
  if (names.length === 0) fields.refuse('id2label is empty; give the name of each class');
  const labels = labelsOf(names);
  const back = fields.object('label2id');
  if (!back) return labels;
  // Of classes with one name (ImageNet has two cranes), either may be the one.
  const label2id = Object.fromEntries(Object.keys(labels.label2id).map((name) => [name, Number(back[name])]));
  if (Object.entries(label2id).some(([name, i]) => names[i] !== name))
    fields.refuse('label2id does not say what id2label says; remove it');
  return { ...labels, label2id };
}
