// The one table of kernels with their problems and bounds, out of the files of cases/: kernel tests, gradient checks and the check
// of shader fragments read it.

import type { KernelCase } from './inputs.ts';

// biome-ignore lint/suspicious/noExplicitAny: a table of kernels of different problems
const files = import.meta.glob<{ readonly cases: readonly KernelCase<any>[] }>('./cases/*.ts', { eager: true });

export const cases = Object.values(files).flatMap((file) => file.cases);
