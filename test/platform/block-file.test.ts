// Block files of the headless host, in whichever runtime the tests run.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { SELF } from '../../src/runtime/headless/processes.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError } from '../../src/util/errors.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const open = (bytes: number, where = folder) => headlessHost().openBlockFile(where, bytes);

test('a block file has its size from the start, in a folder made for it, and is gone once removed', async () => {
  const file = await open(5000, path.join(folder, 'a', 'b'));
  expect(path.dirname(file.path)).toBe(path.join(folder, 'a', 'b'));
  expect(file.bytes).toBe(5000);
  expect(statSync(file.path).size).toBe(5000);
  const beside = await open(16, path.join(folder, 'a', 'c'));
  await file.remove();
  // What was made for it goes with it, but for what something lies in.
  expect(readdirSync(path.join(folder, 'a'))).toEqual(['c']);
  await beside.remove();
  expect(readdirSync(path.join(folder, 'a'))).toEqual([]);
});

test('a block file in a folder of a relative name goes where it is, wherever the program has gone meanwhile', async () => {
  const here = process.cwd();
  mkdirSync(path.join(folder, 'elsewhere'));
  try {
    process.chdir(folder);
    const file = await open(16, path.join('made', 'here'));
    expect(path.dirname(file.path)).toBe(path.join('made', 'here'));
    process.chdir('elsewhere');
    await file.remove();
  } finally {
    process.chdir(here);
  }
  expect(readdirSync(folder)).toEqual(['elsewhere']);
});

// Windows has no such signals, and of Deno’s listeners there is no count.
test.skipIf(process.platform === 'win32' || 'Deno' in globalThis).each([
  ['', [null, 'SIGINT'], 'opened\n'],
  [`process.once('SIGINT', () => console.log('heard'));`, [null, 'SIGINT'], 'opened\nheard\n'],
  [`process.on('SIGINT', () => process.exit(3));`, [3, null], 'opened\n'],
])(
  'a block file goes with a process that a signal ends, which the program may hear: %s',
  async (listener, status, said) => {
    const headless = path.resolve(import.meta.dirname, '../../dist/headless.js');
    const script = path.join(folder, 'opens.mjs');
    writeFileSync(
      script,
      `import { headlessHost } from ${JSON.stringify(headless)};
    ${listener}
    const file = await headlessHost().openBlockFile(${JSON.stringify(path.join(folder, 'made', 'here'))}, 5000);
    console.log('opened');
    setInterval(() => {}, 1000);`,
    );
    const child = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'close');
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      child.kill('SIGINT');
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    expect(await ended).toEqual(status);
    expect(out).toBe(said);
    expect(readdirSync(folder)).toEqual(['opens.mjs']);
  },
);

test('files in one new folder that come and go at once are all made, and a folder that was there stays', async () => {
  const comeAndGo = async () => {
    const file = await open(16, path.join(folder, 'made', 'here'));
    await file.write(0, new Uint8Array(16));
    await file.remove();
  };
  for (let i = 0; i < 10; i++) await Promise.all(Array.from({ length: 8 }, comeAndGo));
  expect(existsSync(folder)).toBe(true);
});

test('reads and writes at many offsets overlap and each moves its own bytes', async () => {
  const count = 40;
  const bytes = 65_536;
  const file = await open(count * bytes);
  const part = (i: number) => new Uint8Array(bytes).fill(i + 1);
  await Promise.all(
    Array.from({ length: count }, async (_, i) => {
      expect(await file.write(i * bytes, part(i))).toBe(bytes);
    }),
  );
  await Promise.all(
    Array.from({ length: count * 3 }, async (_, j) => {
      const i = (j * 7) % count;
      if (j >= count && i % 2 === 0) await file.write(i * bytes, part(i));
      const into = new Uint8Array(bytes);
      expect(await file.read(i * bytes, into)).toBe(bytes);
      expect(Buffer.compare(into, part(i)), `part ${i}`).toBe(0);
    }),
  );
  expect(await file.read(count * bytes - 10, new Uint8Array(30))).toBe(10);
  await file.remove();
});

test('two files of one process are two files', async () => {
  const [a, b] = [await open(16), await open(16)];
  expect(a.path).not.toBe(b.path);
  await a.write(0, new Uint8Array(16).fill(1));
  const into = new Uint8Array(16);
  await b.read(0, into);
  expect(into).toEqual(new Uint8Array(16));
  await a.remove();
  expect(existsSync(b.path)).toBe(true);
  await b.remove();
});

// Only Linux lists descriptors, and Deno has numbers of its own for them.
test.runIf(process.platform === 'linux' && !('Deno' in globalThis))(
  'a file that cannot be closed is an error, and is gone nevertheless',
  async () => {
    const file = await open(16);
    const descriptor = readdirSync('/proc/self/fd').find((name) => linkOf(`/proc/self/fd/${name}`) === file.path);
    closeSync(Number(descriptor));
    await expect(file.remove()).rejects.toThrow('EBADF');
    expect(existsSync(file.path)).toBe(false);
  },
);

/** Undefined of what is not there any more. */
function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

test('what dead processes left is removed; files of living ones, of other machines and all else stay', async () => {
  const { pid: dead } = spawnSync(process.execPath, ['--version']);
  const { place, pid, started } = SELF;
  const name = (id: number, number: number, since = started, where = place) =>
    `holdfast-tier-${where}-${id}-${since}-${number}.bin`;
  // The last one is of an earlier process with the number of a living one.
  const names = [name(dead, 0), name(dead, 12), ...(started === '' ? [] : [name(process.ppid, 0, '01234567.1')])];
  const kept = [
    name(process.ppid, 1, ''),
    name(pid, 0),
    name(dead, 0, started, '0123456789ab'),
    `tier-${dead}-0.bin`,
    'notes.txt',
  ].sort();
  for (const name of [...names, ...kept]) writeFileSync(path.join(folder, name), 'x');
  const file = await open(16);
  expect(path.basename(file.path)).toBe(name(pid, 1));
  expect(readdirSync(folder).sort()).toEqual([...kept, path.basename(file.path)].sort());
  await file.remove();
  expect(readdirSync(folder).sort()).toEqual(kept);
});

test('the space of a block file is taken when it is made, however little of it is written', async () => {
  for (const bytes of [1, 100_000, 3_000_001]) {
    const file = await open(bytes);
    const { size, blocks } = statSync(file.path);
    expect(size).toBe(bytes);
    expect(blocks * 512).toBeGreaterThanOrEqual(bytes);
    await file.remove();
  }
});

test('a disk with too little space is refused with both figures, and nothing is left behind', async () => {
  const error = await open(2 ** 52).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).toMatch(/has .* free \(\d+ bytes\), the disk tier needs 4504 TB \(4503599627370496 bytes\)/);
  expect(readdirSync(folder)).toEqual([]);
  await expect(open(2 ** 52, path.join(folder, 'a', 'b'))).rejects.toThrow('the disk tier needs 4504 TB');
  expect(readdirSync(folder)).toEqual([]);
});

test('a folder that cannot be made is an error that names it', async () => {
  writeFileSync(path.join(folder, 'file'), '');
  await expect(open(16, path.join(folder, 'file', 'tier'))).rejects.toThrow(`cannot make the folder ${folder}`);
  // Half-way: no system has names that long.
  const deep = path.join(folder, 'a', 'b', 'x'.repeat(1000));
  await expect(open(16, deep)).rejects.toThrow(`cannot make the folder ${folder}`);
  expect(readdirSync(folder)).toEqual(['file']);
});
