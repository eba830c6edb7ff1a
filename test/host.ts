// The place that the device tests run in: Node or Deno here; for the runs in a browser, browser/host.ts stands in
// for this file.

import { headlessHost } from '../src/runtime/headless.ts';

export const testHost = headlessHost();

/** The adapter under test: the test command runs the device tests once for each that it finds. */
export const ADAPTER = process.env['HOLDFAST_ADAPTER'] ?? 'software';

/** Whether the tests print how far off each result is. */
export const VERBOSE = Boolean(process.env['HOLDFAST_VERBOSE']);

/** `npm run test:all`: every case of the suites of which `npm test` runs a sample. */
export const EVERY_CASE = process.env['HOLDFAST_TESTS'] === 'all';

/** Whether properties of the kernels' own are tested too, which the runtime around them cannot change. */
export const THOROUGH = EVERY_CASE || !('Deno' in globalThis);
