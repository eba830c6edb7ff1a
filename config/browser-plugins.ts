// What everything that is built for browsers shares: the example text as an asset, and nothing of Node.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'vite';
import { defaultCorpus } from '../src/data/corpus.ts';
import { headlessHost } from '../src/runtime/headless.ts';

/** Pages get SharedArrayBuffer with these headers. */
export const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
};

export function browserPlugins(): Plugin[] {
  return [exampleText(), noNode];
}

const root = path.dirname(import.meta.dirname);
const FILE = path.join(root, 'node_modules', '.holdfast', 'example.txt');

/**
 * `import url from 'holdfast-example-text?url'`. It is the default corpus of Node, byte for byte, so that a run goes on
 * in either place.
 */
function exampleText(): Plugin {
  return {
    name: 'holdfast-example-text',
    enforce: 'pre',
    async configResolved() {
      const { bytes } = await defaultCorpus({ ...headlessHost(), packageFolder: root });
      mkdirSync(path.dirname(FILE), { recursive: true });
      writeFileSync(FILE, bytes);
    },
    resolveId: (id) => (id === 'holdfast-example-text?url' ? `${FILE}?url` : undefined),
  };
}

/** A package's branch for Node, never taken in a browser, imports one of Node's modules. */
const noNode: Plugin = {
  name: 'holdfast-no-node',
  enforce: 'pre',
  resolveId: (id) => (id === 'node:module' ? '\0nothing' : undefined),
  load: (id) => (id === '\0nothing' ? 'export {}' : undefined),
};
