// Output that goes nowhere: a reader of a pipe that has gone ends the process, quietly and at once, whatever it computes; a disk that
// is full is told of, and no success.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const isDeno = 'Deno' in globalThis;
const headless = path.resolve(import.meta.dirname, '../../dist/headless.js');
const runtime = isDeno ? ['eval', '--ext=mjs'] : ['--input-type=module', '--eval'];

function run(body: string, stdout: 'pipe' | number) {
  const script = `import { headlessHost } from ${JSON.stringify(headless)};
    const host = headlessHost();
    ${body}`;
  const child = spawn(process.execPath, [...runtime, script], { stdio: ['ignore', stdout, 'pipe'] });
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  return { child, ended: once(child, 'close'), said: () => said };
}

test.skipIf(process.platform === 'win32')('without a reader the process ends as others do', async () => {
  const { child, ended, said } = run(
    `setInterval(() => host.terminal.write('more\\n'), 5);
    await new Promise(() => {});`,
    'pipe',
  );
  child.stdout?.once('data', () => child.stdout?.destroy());
  const [status, signal] = await ended;
  expect(signal === 'SIGPIPE' || status === 141).toBe(true);
  expect(said()).toBe('');
});

test.skipIf(!existsSync('/dev/full'))('to a full disk a process that is done has not succeeded', async () => {
  const { ended, said } = run(`host.terminal.write('all\\n'); host.exit(0);`, openSync('/dev/full', 'w'));
  expect(await ended).toEqual([1, null]);
  // Deno says it in words of its own.
  const told = isDeno
    ? /No space left/
    : /^holdfast: standard output cannot be written to \(ENOSPC[^\n]+\); write it to another place\n$/;
  expect(said()).toMatch(told);
});

test.skipIf(!existsSync('/dev/full'))('a full disk is a request to stop where work can be saved', async () => {
  const body = `host.onInterrupt(() => host.exit(0)); host.terminal.write('all\\n'); setInterval(() => {}, 1000);`;
  const { ended } = run(body, openSync('/dev/full', 'w'));
  expect(await ended).toEqual([1, null]);
});
