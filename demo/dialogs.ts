// Questions to the person: a title, some fields, yes or no. The browser's own dialog keeps the keyboard inside and gives
// the focus back.

import { at } from './at.ts';
import { byId, choice, make } from './page.ts';

export interface Field {
  readonly label: string;
  readonly value: string;
  readonly type?: 'text' | 'number';
  /** What may be chosen, and what it is called; `value` is one of them. */
  readonly options?: Readonly<Record<string, string>>;
}

/** Nothing replaces a question that is being read: the answer would be to another one. */
let asking = false;

/** The values of the fields, in order; undefined when the person thinks better of it, or is asked something else already. */
export async function ask(
  title: string,
  text: string,
  fields: readonly Field[],
  yes: string,
): Promise<string[] | undefined> {
  if (asking) return undefined;
  asking = true;
  const dialog = byId('dialog', HTMLDialogElement);
  const inputs = fields.map(({ value, type = 'text', options }) => {
    if (options) {
      const select = choice(options);
      select.value = value;
      return select;
    }
    return make('input', {
      type,
      value,
      required: true,
      autocomplete: 'off',
      ...(type === 'number' ? { step: 'any', min: '0' } : { pattern: '.*\\S.*', title: 'More than spaces' }),
    });
  });
  const no = make('button', { type: 'button' }, 'Cancel');
  const form = make(
    'form',
    { method: 'dialog' },
    make('h2', { id: 'dialog-title' }, title),
    ...(text ? [make('p', { className: 'hint' }, text)] : []),
    ...fields.map(({ label }, i) => make('label', {}, label, at(inputs, i))),
    make('div', { className: 'row' }, make('button', { className: 'primary', value: 'yes' }, yes), no),
  );
  dialog.replaceChildren(form);
  no.addEventListener('click', () => dialog.close());
  dialog.returnValue = '';
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener('close', resolve, { once: true }));
  asking = false;
  return dialog.returnValue === 'yes' ? inputs.map(({ value }) => value) : undefined;
}
