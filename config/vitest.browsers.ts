// The tests in a browser: Chromium, or the one that HOLDFAST_BROWSER says. `sources`: the kernel suites and the reference cases, from the sources that Node runs, and
// the browser's own files, in a page of Vitest's. `pages`: what a person does with the built library, through Playwright.

import path from 'node:path';
import { playwright } from '@vitest/browser-playwright';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';
import { BROWSER, findBrowser } from '../scripts/browsers.mjs';
import { nodeFigures } from '../test/browser/node-figures.ts';
import { browserPlugins, ISOLATED } from './browser-plugins.ts';

const found = await findBrowser();
if ('reason' in found) throw new Error(found.reason);

const root = path.dirname(import.meta.dirname);
/** test/host.ts is Node's: here test/browser/host.ts stands in for it. */
const browserHost: Plugin = {
  name: 'holdfast-browser-host',
  enforce: 'pre',
  resolveId(source, importer) {
    const isNodes = importer && path.resolve(path.dirname(importer), source) === path.join(root, 'test/host.ts');
    return isNodes ? path.join(root, 'test/browser/host.ts') : undefined;
  },
};

const isThorough = process.env['HOLDFAST_TESTS'] === 'all';

/** What is polled may take as long as a test may: a busy machine is no wrong page. */
const timeouts = { testTimeout: 300_000, hookTimeout: 300_000, expect: { poll: { timeout: 300_000 } } };

export default defineConfig({
  test: {
    projects: [
      {
        plugins: [...browserPlugins(), browserHost],
        worker: { format: 'es', plugins: browserPlugins },
        server: { host: '127.0.0.1', headers: ISOLATED },
        // Found in the middle of a run, it would have pages loaded anew.
        optimizeDeps: { include: ['highs'] },
        define: { 'import.meta.env.EVERY_CASE': JSON.stringify(isThorough) },
        test: {
          ...timeouts,
          name: 'sources',
          include: [
            ...['kernels', 'reference', 'matmul', 'host-adamw'].map((name) => `test/kernels/${name}.test.ts`),
            ...['host-threads', 'host-optimizer', 'random-placements'].map((name) => `test/model/${name}.test.ts`),
            // Most of it is arithmetic on plans; on a page `checkpoints.pages.ts` trains with the optimizer on either device.
            ...(isThorough ? ['test/model/optimizer-split.test.ts'] : []),
            'test/data/encoding-threads.test.ts',
            'test/browser/*.test.ts',
          ],
          fileParallelism: false,
          isolate: false,
          // One after the other: the software adapter takes all cores.
          sequence: { groupOrder: 0 },
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({ launchOptions: found.launch }),
            commands: { nodeFigures },
            instances: [{ browser: BROWSER }],
          },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'pages',
          // A Firefox that is driven, or whose developer tools are open, keeps a worker that starts another waiting for ever in about one start of
          // a hundred: both threads wait on one condition variable, which is notified once (`WaitForIsDebuggerRegistered`; seen in 153).
          // The page's worker then answers nothing more. What an uninstrumented Firefox never does may be tried again.
          retry: BROWSER === 'firefox' ? 1 : 0,
          // A page waits more than it computes.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          include: BROWSER === 'firefox' ? ['test/browser/demo.pages.ts'] : ['test/{browser,package}/*.pages.ts'],
          environment: 'node',
        },
      },
    ],
  },
});
