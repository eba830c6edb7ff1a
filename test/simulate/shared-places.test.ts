// What activations that are moved wait for, and what waits for them, where they share memory.

import { expect, it } from 'vitest';
import { SharedPlaces } from '../../src/engine/simulate/shared-places.ts';
import { makeTensor } from '../../src/graph/program.ts';

const tensor = (name: string) => makeTensor(name, [8], 'activation');
const [x, y, z, apart] = [tensor('x'), tensor('y'), tensor('z'), tensor('apart')];
// x lies over the first half of y, z where x lies, `apart` beside them.
const places = new Map([
  [x, { arena: 0, offset: 0 }],
  [y, { arena: 0, offset: 16 }],
  [z, { arena: 0, offset: 0 }],
  [apart, { arena: 1, offset: 0 }],
]);
const make = () => new SharedPlaces<string>([{ places, arenas: [48, 32] }]);

it('what comes back needs the place of those before it, and is waited for', () => {
  const shared = make();
  shared.used([x], 'writes x');
  shared.used([apart], 'writes apart');
  expect(shared.ready([y])).toEqual(['writes x']);
  shared.arrives(y, 'brings y');
  expect(shared.ready([y, apart])).toEqual(['brings y']);
});

it('what is written where an activation leaves waits for its copy; one that is there already does not', () => {
  const shared = make();
  shared.used([x], 'writes x');
  expect(shared.writers(x)).toEqual(['writes x']);
  shared.leaves(x, 'takes x away');
  expect(shared.ready([z])).toEqual(['writes x', 'takes x away']);
  shared.used([z], 'writes z');
  expect(shared.ready([z])).toEqual([]);
});

it('a step knows nothing of the one before, and where nothing is moved there is nothing to know', () => {
  const shared = make();
  shared.used([x], 'writes x');
  shared.restart();
  expect(shared.ready([y])).toEqual([]);
  const none = new SharedPlaces<string>([]);
  none.used([x], 'writes x');
  expect(none.ready([y])).toEqual([]);
});
