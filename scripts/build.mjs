// `npm run build`: everything that is built, one after the other: the library and the command line for Node and Deno
// (which empties dist first), the library for browsers, the demo page, the declarations of all three doors.

import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { makeTypes } from './types.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
process.chdir(root);
const logLevel = process.argv.includes('--quiet') ? 'warn' : 'info';
for (const name of ['vite.config.ts', 'config/vite.browser.ts', 'config/vite.demo.ts']) {
  await build({ configFile: path.join(root, name), logLevel });
}
// What is wrong with them is for `npm run api:check` and the tests to say: the build has what it needs.
makeTypes();
