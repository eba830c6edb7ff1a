// The library for browsers, dist/browser: ES modules that need no bundler, with the workers, the example text and the
// report's colours beside them. All URLs are relative to the module that uses them: any base path serves, and an npm install too.

import { defineConfig, type Plugin } from 'vite';
import { browserPlugins } from './browser-plugins.ts';

const names = { entryFileNames: '[name].js', chunkFileNames: '[name].js', assetFileNames: '[name][extname]' };

/**
 * Vite writes a worker's URL in a way that runs anywhere, but that no bundler recognises. In a library that others
 * bundle, it must be the form that all of them look for.
 */
const recognisableWorkers: Plugin = {
  name: 'holdfast-recognisable-workers',
  generateBundle: {
    order: 'post',
    handler(_, bundle) {
      const rewrite = (code: string) =>
        code.replace(
          /new Worker\(new URL\(\s*(?:\/\*.*?\*\/)?\s*new URL\("([\w.]+)", import\.meta\.url\)\.href,\s*"" \+ import\.meta\.url\s*\)/g,
          'new Worker(new URL("./$1", import.meta.url)',
        );
      for (const file of Object.values(bundle)) {
        if (file.type === 'chunk') file.code = rewrite(file.code);
        else if (file.fileName.endsWith('.js')) file.source = rewrite(file.source.toString());
      }
    },
  },
};

/**
 * Vite's function around `import()` has its name twice in a module when an application of Vite bundles the library: it
 * declares its own in each module that imports so.
 */
const ownPreload: Plugin = {
  name: 'holdfast-own-preload',
  generateBundle: {
    order: 'post',
    handler(_, bundle) {
      for (const file of Object.values(bundle))
        if (file.type === 'chunk') file.code = file.code.replaceAll('__vitePreload', 'holdfastPreload');
    },
  },
};

export default defineConfig({
  base: './',
  publicDir: false,
  plugins: [...browserPlugins(), recognisableWorkers, ownPreload],
  worker: { format: 'es', plugins: browserPlugins, rolldownOptions: { output: names } },
  build: {
    target: 'es2023',
    outDir: 'dist/browser',
    minify: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      input: { index: 'src/browser/index.ts', 'memory-colors': 'src/browser/memory-colors.css' },
      preserveEntrySignatures: 'strict',
      output: names,
    },
  },
});
