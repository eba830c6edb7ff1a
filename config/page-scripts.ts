// Scripts as text: `import SCRIPT from './page/map.ts?script'` is that module with all that it imports, built into one
// script that a page can hold inline. Every build and test that reads src has this plugin.

import { build, type Plugin } from 'vite';

const SUFFIX = '?script';

export const pageScripts: Plugin = {
  name: 'holdfast-page-scripts',
  enforce: 'pre',
  async load(id) {
    if (!id.endsWith(SUFFIX)) return undefined;
    const made = await build({
      configFile: false,
      logLevel: 'warn',
      build: {
        target: 'es2023',
        write: false,
        minify: false,
        lib: { entry: id.slice(0, -SUFFIX.length), formats: ['iife'], name: 'page' },
      },
    });
    const chunks = [made].flat().flatMap((bundle) => ('output' in bundle ? bundle.output : []));
    const [chunk] = chunks;
    if (chunks.length !== 1 || chunk?.type !== 'chunk') throw new Error(`${id} is no single script`);
    for (const file of chunk.moduleIds) this.addWatchFile(file);
    return `export default ${JSON.stringify(chunk.code)};`;
  },
};
