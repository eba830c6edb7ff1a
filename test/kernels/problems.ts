// Problems that several kernels are tested with. Sizes are odd on purpose (1, 37, 65, 129, ...).

import { EVERY_CASE } from '../host.ts';

/**
 * One more than a grid of one row can hold: 65,535 workgroups, of 64 invocations or of one row each. Few
 * kernels get one, for they take seconds, and in `npm test` one alone; kernels.test.ts folds the grids of all by hand.
 */
export const FOLDED_ITEMS = 65_535 * 64 + 1;
export const FOLDED_ROWS = 65_536;

/** Problems of `npm run test:all`. */
export const inEveryCase = <P>(...problems: readonly P[]): readonly P[] => (EVERY_CASE ? problems : []);

// One multiple of 4 in each list of sizes: four floats are loaded at a time then.
export const elementwise = [1, 37, 65, 129, 260, 4099].map((size) => ({ size }));
