// WebAssembly from AssemblyScript: `import MODULE from '../assembly/x.ts?wasm'` is that file compiled, in base64; with
// `?wasm-shared` for memory that threads share. What was compiled is kept by its source's checksum: compiling takes seconds.
// Every build and test that reads src has this plugin.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'vite';

const SUFFIX = /\?wasm(-shared)?$/;
const root = path.dirname(import.meta.dirname);
const KEPT = path.join(root, 'node_modules', '.cache', 'holdfast-assembly');

const OPTIONS = [
  ...['--runtime', 'stub', '--use', 'abort=', '--enable', 'simd', '--importMemory', '--noAssert', '-Ospeed'],
  ...['--initialMemory', '1', '--maximumMemory', '65536'],
];
const SHARED = ['--enable', 'threads', '--sharedMemory'];

export const assemblyModules: Plugin = {
  name: 'holdfast-assembly-modules',
  enforce: 'pre',
  async load(id) {
    const suffix = SUFFIX.exec(id);
    if (!suffix) return undefined;
    const file = id.slice(0, suffix.index);
    this.addWatchFile(file);
    const module = await compiled(readFileSync(file, 'utf8'), [...OPTIONS, ...(suffix[1] ? SHARED : [])]);
    return `export default ${JSON.stringify(module.toString('base64'))};`;
  },
};

async function compiled(source: string, options: readonly string[]): Promise<Buffer> {
  const { default: asc } = await import('assemblyscript/asc');
  const key = createHash('sha256')
    .update(JSON.stringify([asc.version, options, source]))
    .digest('hex');
  const kept = path.join(KEPT, `${key}.wasm`);
  try {
    return readFileSync(kept);
  } catch {
    // It was not compiled yet.
  }
  let module: Uint8Array | undefined;
  const { error, stderr } = await asc.main(['source.ts', '--outFile', 'module.wasm', ...options], {
    readFile: (name) => (name === 'source.ts' ? source : null),
    writeFile: (_, contents) => {
      if (typeof contents !== 'string') module = contents;
    },
    listFiles: () => [],
  });
  if (error || !module) throw new Error(`AssemblyScript: ${stderr.toString()}`, { cause: error });
  const bytes = Buffer.from(module);
  mkdirSync(KEPT, { recursive: true });
  // Several processes may do this at once.
  writeFileSync(`${kept}.${process.pid}`, bytes);
  renameSync(`${kept}.${process.pid}`, kept);
  return bytes;
}
