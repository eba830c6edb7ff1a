// Vite plugins and settings that everything built for browsers shares: nothing of Node, and the headers that isolate a
// page.

import type { Plugin } from 'vite';
import { assemblyModules } from './assembly.ts';
import { kernelsDigest } from './digest.ts';
import { pageScripts } from './page-scripts.ts';

/** Pages get SharedArrayBuffer with these headers. */
export const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
};

export function browserPlugins(): Plugin[] {
  return [noNode, pageScripts, assemblyModules, kernelsDigest];
}

/** A package's branch for Node, never taken in a browser, imports one of Node's modules. */
const noNode: Plugin = {
  name: 'holdfast-no-node',
  enforce: 'pre',
  resolveId: (id) => (id === 'node:module' ? '\0nothing' : undefined),
  load: (id) => (id === '\0nothing' ? 'export {}' : undefined),
};
