// Devices that are opened and closed one after the other in one process: nothing of them stays, as a program finds it that opens one a run.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

const dist = path.resolve(import.meta.dirname, '../../dist');
const address = (name: string) => JSON.stringify(pathToFileURL(path.join(dist, name)).href);

// Deno's adapters are its own.
test.runIf(process.platform === 'linux' && process.arch === 'x64' && !('Deno' in globalThis))(
  'a device that was closed takes no thread, file or memory any more',
  () => {
    const folder = mkdtempSync(path.join(dist, 'program-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = path.join(folder, 'program.mjs');
    writeFileSync(
      file,
      `import { readdirSync } from 'node:fs';
      import { openDevice } from ${address('index.js')};
      import { headlessHost } from ${address('headless.js')};
      const [COPY_SRC, STORAGE] = [4, 128];
      const devices = [];
      const files = [];
      for (let i = 0; i < 4; i++) {
        const device = await openDevice(headlessHost(), { adapter: 'software' });
        devices.push(new WeakRef(device));
        const buffer = device.allocator.create('one', 64, STORAGE | COPY_SRC);
        await device.read(buffer, 0, 64);
        device.close();
        await device.gpu.lost;
        files.push(readdirSync('/proc/self/fd').length);
      }
      await new Promise((resolve) => setTimeout(resolve));
      gc();
      console.log(JSON.stringify([files.every((count) => count === files[0]), devices.filter((device) => device.deref()).length]));`,
    );
    const { stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', file], { encoding: 'utf8' });
    expect(stderr).toBe('');
    const [sameFiles, left] = JSON.parse(stdout);
    expect(sameFiles).toBe(true);
    // The last one may still be on the stack.
    expect(left).toBeLessThanOrEqual(1);
  },
);
