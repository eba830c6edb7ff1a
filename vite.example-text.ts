// The example text as an asset of what is built for browsers: `import url from 'holdfast-example-text?url'`. It is the
// default corpus of Node, byte for byte, so that a run goes on in either place.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'vite';
import { defaultCorpus } from './src/data/corpus.ts';
import { headlessHost } from './src/runtime/headless.ts';

const FILE = path.join(import.meta.dirname, 'node_modules', '.holdfast', 'example.txt');

export function exampleText(): Plugin {
  return {
    name: 'holdfast-example-text',
    enforce: 'pre',
    async configResolved() {
      const { bytes } = await defaultCorpus({ ...headlessHost(), packageFolder: import.meta.dirname });
      mkdirSync(path.dirname(FILE), { recursive: true });
      writeFileSync(FILE, bytes);
    },
    resolveId: (id) => (id === 'holdfast-example-text?url' ? `${FILE}?url` : undefined),
  };
}
