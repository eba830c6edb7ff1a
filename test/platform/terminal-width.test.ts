// The width of the terminal: as it says, and that of a common one where it says none.

import process from 'node:process';
import { expect, onTestFinished, test } from 'vitest';
import { terminal } from '../../src/runtime/headless/terminal.ts';

test.each([
  [132, 132],
  [1, 1],
  // Of a serial line, or a container's that was not told its size.
  [0, 80],
  [undefined, 80],
])('a terminal that says %s has %d columns', (value, columns) => {
  const before = Object.getOwnPropertyDescriptor(process.stdout, 'columns');
  onTestFinished(() => {
    if (before) Object.defineProperty(process.stdout, 'columns', before);
    else Reflect.deleteProperty(process.stdout, 'columns');
  });
  Object.defineProperty(process.stdout, 'columns', { value, configurable: true, writable: true });
  expect(terminal.columns).toBe(columns);
});
