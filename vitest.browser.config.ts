// The tests in Chromium. `worker`: the suites of kernels, parity and training, from the sources that Node runs, and
// the browser's own parts, on a page. `pages`: what a person does, driven from outside through Playwright.

import path from 'node:path';
import { playwright } from '@vitest/browser-playwright';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';
import { findChromium } from './scripts/chromium.mjs';
import { exampleText } from './vite.example-text.ts';

const found = await findChromium();
if ('reason' in found) throw new Error(found.reason);

const root = import.meta.dirname;
const ISOLATED = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
/** test/host.ts is Node's: here test/browser/host.ts stands in for it. */
const browserHost: Plugin = {
  name: 'holdfast-browser-host',
  enforce: 'pre',
  resolveId(source, importer) {
    const isNodes = importer && path.resolve(path.dirname(importer), source) === path.join(root, 'test/host.ts');
    return isNodes ? path.join(root, 'test/browser/host.ts') : undefined;
  },
};

const timeouts = { testTimeout: 120_000, hookTimeout: 120_000 };

export default defineConfig({
  test: {
    projects: [
      {
        plugins: [exampleText(), browserHost],
        worker: { format: 'es', plugins: () => [exampleText()] },
        server: { host: '127.0.0.1', headers: ISOLATED },
        test: {
          ...timeouts,
          name: 'worker',
          include: ['test/kernels/*.test.ts', 'test/model/*.test.ts', 'test/browser/*.test.ts'],
          exclude: ['test/model/faults.test.ts', 'test/model/parity-command.test.ts'],
          fileParallelism: false,
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({ launchOptions: found.launch }),
            instances: [{ browser: 'chromium' }],
          },
        },
      },
      {
        test: { ...timeouts, name: 'pages', include: ['test/browser/*.pages.ts'], environment: 'node' },
      },
    ],
  },
});
