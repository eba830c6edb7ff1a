// The demo page: built into dist/site, for any base path; `npm run demo` serves it with the headers that isolate it.

import { defineConfig } from 'vite';
import { browserPlugins, ISOLATED } from './browser-plugins.ts';

export default defineConfig({
  root: 'demo',
  base: './',
  plugins: browserPlugins(),
  worker: { format: 'es', plugins: browserPlugins },
  build: { target: 'es2023', outDir: '../dist/site', emptyOutDir: true, assetsInlineLimit: 0 },
  // An address, not a name: a minimal system may not know "localhost".
  server: { host: '127.0.0.1', headers: ISOLATED },
  preview: { host: '127.0.0.1', headers: ISOLATED },
});
