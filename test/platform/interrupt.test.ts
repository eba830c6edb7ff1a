// Interrupts of a process in the middle of its work: the first one asks, the second one ends it, whatever it waits for.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

// Windows has neither of them, and an exit of Deno’s waits for no thread.
test.skipIf(process.platform === 'win32' || 'Deno' in globalThis)(
  'the second signal ends a process that waits for a pipe’s writer',
  async () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-interrupt-'));
    const at = (name: string) => path.join(folder, name);
    expect(spawnSync('mkfifo', [at('pipe')]).status).toBe(0);
    const headless = path.resolve(import.meta.dirname, '../../dist/headless.js');
    writeFileSync(
      at('waits.mjs'),
      `import { headlessHost } from ${JSON.stringify(headless)};
    const host = headlessHost();
    await host.claimFolder(${JSON.stringify(at('run'))});
    host.onInterrupt(() => host.terminal.write('asked\\n'));
    const reading = host.files.read(${JSON.stringify(at('pipe'))});
    host.terminal.write('waits\\n');
    await reading;`,
    );
    const runtime = 'Deno' in globalThis ? ['run', '-A', '--unstable-webgpu'] : [];
    const child = spawn(process.execPath, [...runtime, at('waits.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'close');
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (/(waits|asked)\n$/.test(out)) child.kill('SIGTERM');
    });
    onTestFinished(() => {
      child.kill('SIGKILL');
      rmSync(folder, { recursive: true });
    });
    expect(await ended).toEqual([null, 'SIGTERM']);
    expect(out).toBe('waits\nasked\n');
    expect(readdirSync(at('run'))).toEqual([]);
  },
);
