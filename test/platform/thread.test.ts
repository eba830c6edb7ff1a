// The built library in a thread of a program, and in Deno with no more permissions than it needs.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';

const dist = path.resolve(import.meta.dirname, '../../dist');
const address = (name: string) => JSON.stringify(pathToFileURL(path.join(dist, name)).href);
const isDeno = 'Deno' in globalThis;

/** What a program says. It lies in the package, where dependencies are looked for from. */
function said(code: string, permissions: readonly string[] = ['-A']) {
  const folder = mkdtempSync(path.join(dist, 'program-'));
  try {
    const file = path.join(folder, 'program.mjs');
    writeFileSync(file, code);
    const args = isDeno ? ['run', '--no-prompt', '--unstable-webgpu', ...permissions, file] : [file];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    return { stdout, stderr };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe.runIf(process.platform === 'linux' && process.arch === 'x64')('a thread of a program', () => {
  // Its environment is a copy, which the loader of drivers does not see.
  it('finds the embedded adapter, and Node warns of nothing', () => {
    const { stdout, stderr } = said(`
      import { isMainThread, Worker } from 'node:worker_threads';
      if (isMainThread) new Worker(new URL(import.meta.url));
      else {
        const { openDevice } = await import(${address('index.js')});
        const { headlessHost } = await import(${address('headless.js')});
        const device = await openDevice(headlessHost(), { adapter: 'software' });
        console.log(device.adapter.name);
        device.close();
      }`);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/^SwiftShader/);
  });
});

describe.runIf(isDeno)('Deno', () => {
  // It shows devices, as files, to programs that may do all.
  it('finds the sources of adapters where it may read, and know the environment and the system', () => {
    const { stdout, stderr } = said(
      `import { headlessHost } from ${address('headless.js')};
      console.log((await headlessHost().gpuSources()).map(({ name }) => name).at(-1));`,
      ['--allow-read', '--allow-env', '--allow-sys'],
    );
    expect(stderr).toBe('');
    expect(stdout).toBe('embedded SwiftShader\n');
  });
});
