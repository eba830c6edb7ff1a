// Digest of the kernels: `import DIGEST from './x.ts?digest'` is a checksum over all files of that module's folder
// and all shaders, by which what was measured of kernels as they were is told from what holds now. Every build and test that
// reads src has this plugin.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'vite';

const SUFFIX = '?digest';
const SHADERS = path.join(import.meta.dirname, '..', 'shaders');

export const kernelsDigest: Plugin = {
  name: 'holdfast-kernels-digest',
  enforce: 'pre',
  load(id) {
    if (!id.endsWith(SUFFIX)) return undefined;
    const hash = createHash('sha256');
    for (const folder of [path.dirname(id.slice(0, -SUFFIX.length)), SHADERS]) {
      for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()) {
        if (!/\.(ts|wgsl)$/.test(name)) continue;
        const file = path.join(folder, name);
        this.addWatchFile(file);
        hash.update(name.replaceAll(path.sep, '/')).update('\0').update(readFileSync(file)).update('\0');
      }
    }
    return `export default ${JSON.stringify(hash.digest('hex').slice(0, 16))};`;
  },
};
