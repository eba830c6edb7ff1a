// The stop between two steps of a run: what is let through while it is paused.

import { expect, test } from 'vitest';
import { Gate } from '../../src/browser/gate.ts';

/** Whether the loop comes past the gate, given all that is due before. */
async function lets(gate: Gate): Promise<boolean> {
  let past = false;
  void gate.run().then(() => {
    past = true;
  });
  await new Promise((resolve) => setTimeout(resolve));
  return past;
}

test('paused, as many steps are let through as were asked for', async () => {
  const gate = new Gate();
  gate.pause();
  const asked = [gate.step(), gate.step()];
  expect(await lets(gate)).toBe(true);
  expect(await lets(gate)).toBe(true);
  expect(await lets(gate)).toBe(false);
  await Promise.all(asked);
});

test('steps that were asked for before it went on are over: none is taken in the next pause', async () => {
  const gate = new Gate();
  gate.pause();
  const asked = [gate.step(), gate.step(), gate.step()];
  gate.unpause();
  await Promise.all(asked);
  expect(await lets(gate)).toBe(true);
  gate.pause();
  expect(await lets(gate)).toBe(false);
});
