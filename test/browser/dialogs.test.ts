// Questions of the demo page, in a page: one at a time, and an answer is to the question that was read.

import { afterEach, beforeEach, expect, test } from 'vitest';
import { ask } from '../../demo/dialogs.ts';

let dialog: HTMLDialogElement;

beforeEach(() => {
  dialog = document.createElement('dialog');
  dialog.id = 'dialog';
  document.body.append(dialog);
});
afterEach(() => dialog.remove());

const press = (name: string) => [...dialog.querySelectorAll('button')].find((b) => b.textContent === name)?.click();

test('a question that comes while another is read is not asked, and the answer is to the first', async () => {
  const first = ask('Remove “b”?', '', [], 'Remove');
  const second = ask('Export “a”', '', [{ label: 'As', value: 'zip' }], 'Export');
  expect(dialog.querySelector('h2')?.textContent).toBe('Remove “b”?');
  expect(await second).toBe(undefined);
  press('Cancel');
  expect(await first).toBe(undefined);

  const third = ask('Export “a”', '', [{ label: 'As', value: 'zip' }], 'Export');
  press('Export');
  // The close of a dialog is told later than it is closed.
  expect(await ask('Remove “b”?', '', [], 'Remove')).toBe(undefined);
  expect(await third).toEqual(['zip']);
});

test('a name of spaces alone is not taken', async () => {
  const answer = ask('Rename', '', [{ label: 'Name', value: 'a' }], 'Rename');
  const field = dialog.querySelector('input') as HTMLInputElement;
  field.value = '  ';
  press('Rename');
  expect([dialog.open, field.validity.patternMismatch]).toEqual([true, true]);
  field.value = ' b';
  press('Rename');
  expect(await answer).toEqual([' b']);
});
