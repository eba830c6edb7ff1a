// The demo page: built into dist/site, for any base path; `npm run demo` serves it with the headers that isolate it and
// that say what may run.

import { defineConfig, type Plugin } from 'vite';
import { PAGE, policyOf, VIEWER } from '../demo/policy.ts';
import { browserPlugins, ISOLATED } from './browser-plugins.ts';

/** Of what is built: the development server writes scripts and styles into its pages. */
const policies: Plugin = {
  name: 'holdfast-policies',
  apply: (_, { command, isPreview }) => command === 'build' || isPreview === true,
  transformIndexHtml: (_, { path }) => [
    {
      tag: 'meta',
      attrs: { 'http-equiv': 'Content-Security-Policy', content: path.endsWith('/report.html') ? VIEWER : PAGE },
      injectTo: 'head-prepend',
    },
  ],
  configurePreviewServer({ middlewares }) {
    middlewares.use(({ url = '' }, response, next) => {
      response.setHeader('Content-Security-Policy', policyOf(new URL(url, 'http://host').pathname));
      next();
    });
  },
};

export default defineConfig({
  root: 'demo',
  base: './',
  plugins: [...browserPlugins(), policies],
  worker: { format: 'es', plugins: browserPlugins },
  build: {
    target: 'es2023',
    outDir: '../dist/site',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: { index: 'demo/index.html', report: 'demo/report.html', 'isolation-sw': 'demo/isolation-sw.js' },
      // A service worker has no power above its own folder.
      output: { entryFileNames: ({ name }) => (name === 'isolation-sw' ? '[name].js' : 'assets/[name]-[hash].js') },
    },
  },
  // An address, not a name: a minimal system may not know "localhost".
  server: { host: '127.0.0.1', headers: ISOLATED },
  preview: { host: '127.0.0.1', headers: ISOLATED },
});
