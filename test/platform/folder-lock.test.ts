// The lock on a run's folder: one process has it, a dead one loses it, and many that find the same stale lock at once
// leave it to one of them. Real files and real processes, in whichever runtime the tests run.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Device } from '../../src/gpu/device.ts';
import { claimFolder, claimNextFolder } from '../../src/runtime/headless/folder-lock.ts';
import { isGone, SELF } from '../../src/runtime/headless/processes.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { FolderHeld } from '../../src/runtime/host.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';

const isDeno = 'Deno' in globalThis;
let folder: string;
const at = (...names: string[]) => path.join(folder, ...names);
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-lock-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a module in a process of its own, with `claimFolder` in scope. */
function processOf(source: string, ...args: string[]): ChildProcess {
  const headless = path.resolve(import.meta.dirname, '../../dist/headless.js');
  const head = `import { headlessHost } from ${JSON.stringify(headless)};
    import * as fs from 'node:fs';
    import process from 'node:process';
    const { claimFolder } = headlessHost();
    const args = process.argv.slice(2);`;
  // Of its own: a process that starts reads it while the next one's is written.
  const script = at(`${crypto.randomUUID()}.mjs`);
  writeFileSync(script, `${head}\n${source}`);
  const runtime = isDeno ? ['run', '-A', '--unstable-webgpu'] : [];
  return spawn(process.execPath, [...runtime, script, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
}

async function outputOf(child: ChildProcess): Promise<string> {
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  await once(child, 'close');
  return text;
}

const dead = () => spawnSync(process.execPath, ['--version']).pid;
const lockText = (changes: object) =>
  JSON.stringify({
    ...{ ...SELF, id: crypto.randomUUID(), host: os.hostname(), since: '2026-01-02T03:04:05.678Z' },
    ...changes,
  });

// Windows has no pipes among files, and lets few make links.
test.skipIf(process.platform === 'win32')('a lock that is a link, a pipe or a folder names no process', async () => {
  mkdirSync(at('run'));
  const lock = at('run', 'run.lock');
  const refusal = `${at('run')}: ${lock} names no process; remove that file`;
  symlinkSync('nothing', lock);
  await expect(claimFolder(at('run'))).rejects.toThrow(refusal);
  rmSync(lock);
  expect(spawnSync('mkfifo', [lock]).status).toBe(0);
  await expect(claimFolder(at('run'))).rejects.toThrow(refusal);
  rmSync(lock);
  mkdirSync(lock);
  await expect(claimFolder(at('run'))).rejects.toThrow(refusal);
  expect(readdirSync(at('run'))).toEqual(['run.lock']);
});

test('numbers that cannot be counted on from are no folder’s, and the last one ends the counting', async () => {
  for (const number of ['9007199254740991', '9007199254740992', '1e300', 'Infinity'])
    mkdirSync(at('runs', `run-${number}`), { recursive: true });
  const claim = await claimNextFolder(at('runs'), 'run-');
  expect(claim.folder).toBe(`${at('runs')}/run-1`);
  await claim.release();
  mkdirSync(at('runs', 'run-9007199254740990'));
  await expect(claimNextFolder(at('runs'), 'run-')).rejects.toThrow(
    `${at('runs')}: there is no number after run-9007199254740990; name a folder`,
  );
});

test('a folder is taken once; what was made for it goes with the lock, what was put in it stays', async () => {
  const run = at('a', 'b', 'run');
  const claim = await claimFolder(run);
  expect(readdirSync(run)).toEqual(['run.lock']);
  expect(JSON.parse(readFileSync(path.join(run, 'run.lock'), 'utf8'))).toMatchObject({
    pid: process.pid,
    host: os.hostname(),
    started: SELF.started,
  });
  await expect(claimFolder(run)).rejects.toThrow(
    new RegExp(`run: process ${process.pid} on ${os.hostname()} has it since \\d{4}-.*; wait for its end or choose`),
  );
  await claim.release();
  expect(existsSync(at('a'))).toBe(false);

  const again = await claimFolder(run);
  writeFileSync(path.join(run, 'kept'), 'x');
  await again.release();
  expect(readdirSync(run)).toEqual(['kept']);
  await (await claimFolder(run)).release();
  expect(readdirSync(run)).toEqual(['kept']);
});

test('a copy of a folder that is taken can be taken, and the folder itself stays taken, by whatever name', async () => {
  const claim = await claimFolder(at('run'));
  cpSync(at('run'), at('copy'), { recursive: true });
  symlinkSync('run', at('link'), 'junction');
  const copied = await claimFolder(at('copy'));
  for (const taken of ['run', 'link', 'copy']) await expect(claimFolder(at(taken))).rejects.toThrow(FolderHeld);
  // One that was moved is the same folder, and no copy.
  renameSync(at('run'), at('moved'));
  await expect(claimFolder(at('moved'))).rejects.toThrow(FolderHeld);
  await copied.release();
  await claim.release();
});

test('a copy of a folder that was taken can be taken once that is given back, and so can one of it that is gone', async () => {
  const claim = await claimFolder(at('run'));
  writeFileSync(at('run', 'kept'), 'x');
  for (const name of ['copy', 'other']) cpSync(at('run'), at(name), { recursive: true });
  await claim.release();
  const copied = await claimFolder(at('copy'));
  await expect(claimFolder(at('copy'))).rejects.toThrow(FolderHeld);
  rmSync(at('run'), { recursive: true });
  const other = await claimFolder(at('other'));
  await copied.release();
  await other.release();
  expect([readdirSync(at('copy')), readdirSync(at('other'))]).toEqual([['kept'], ['kept']]);
});

test('a folder that was moved away is taken anew, unless another has it by then; its lock is given back, no other', async () => {
  const run = at('run');
  const claim = await claimFolder(run);
  expect(await claim.hold?.()).toBe(true);
  // As its message may have told the user to.
  rmSync(path.join(run, 'run.lock'));
  expect(await claim.hold?.()).toBe(true);
  renameSync(run, at('moved'));
  expect(await claim.hold?.()).toBe(false);
  expect(await claim.hold?.()).toBe(true);
  expect(readdirSync(run)).toEqual(['run.lock']);
  renameSync(run, at('again'));
  const other = await claimFolder(run);
  await expect(claim.hold?.()).rejects.toThrow(FolderHeld);
  await claim.release();
  expect(readdirSync(run)).toEqual(['run.lock']);
  await expect(claimFolder(run)).rejects.toThrow(FolderHeld);
  await other.release();
  expect(existsSync(run)).toBe(false);
});

test('what has taken the place of a folder hides no error of the run there', async () => {
  const claim = await claimFolder(at('run'));
  rmSync(at('run'), { recursive: true });
  writeFileSync(at('run'), 'a file');
  await expect(claim.hold?.()).rejects.toThrow(`cannot write to ${at('run')}: something else has that name`);
  await claim.release();
});

test('a name that is too long is told as that', async () => {
  await expect(claimFolder(at('x'.repeat(300)))).rejects.toThrow(/x: its name is too long$/);
});

test('a folder of a relative name is that of the beginning, wherever the program goes', async () => {
  const here = process.cwd();
  mkdirSync(at('elsewhere'));
  process.chdir(at());
  try {
    const claim = await claimFolder('run');
    process.chdir(at('elsewhere'));
    await claim.release();
    expect(existsSync(at('run'))).toBe(false);
  } finally {
    process.chdir(here);
  }
});

test('a run takes its folder by itself, before anything else', async () => {
  const claim = await claimFolder(at('run'));
  const settings = defaultSettings({ data: [at('no text')] });
  const run = () => trainRun(headlessHost(), { adapter: {}, check() {} } as unknown as Device, settings, at('run'));
  await expect(run()).rejects.toThrow(`run: process ${process.pid} on`);
  await claim.release();
  await expect(run()).rejects.toThrow('no text: nothing is there');
  expect(existsSync(at('run'))).toBe(false);
});

test('the next free number is taken by making the folder', async () => {
  for (const name of ['run-2', 'run-10', 'run-x', 'other-50']) mkdirSync(at('runs', name), { recursive: true });
  const claims = await Promise.all(Array.from({ length: 7 }, () => claimNextFolder(at('runs'), 'run-')));
  expect(claims.map((claim) => path.basename(claim.folder)).sort()).toEqual(
    [11, 12, 13, 14, 15, 16, 17].map((n) => `run-${n}`),
  );
  for (const claim of claims) await claim.release();
  expect(readdirSync(at('runs')).sort()).toEqual(['other-50', 'run-10', 'run-2', 'run-x']);
});

test('a lock is stale when its process is dead, or another one has its number by now', async () => {
  const reused = { pid: process.ppid, started: '01234567.1' };
  const stale = SELF.started === '' ? [{ pid: dead() }] : [{ pid: dead() }, reused];
  for (const owner of stale) {
    expect(isGone({ ...SELF, ...owner })).toBe(true);
    writeFileSync(at('run.lock'), lockText(owner));
    // What a process left that was killed while it took the lock over.
    const id = crypto.randomUUID();
    writeFileSync(at(`run.lock.${id}`), lockText({ pid: dead() }));
    writeFileSync(at(`run.lock.${id}.new`), '{"pid":');
    await (await claimFolder(folder)).release();
    expect(readdirSync(folder)).toEqual([]);
  }
});

test('a lock of another machine, or that names no process, is not: the message says which file to remove', async () => {
  const refused = async (text: string) => {
    writeFileSync(at('run.lock'), text);
    const error = await claimFolder(folder).catch((error: Error) => error.message);
    expect(readFileSync(at('run.lock'), 'utf8')).toBe(text);
    return error;
  };
  const elsewhere = lockText({ pid: dead(), place: '0123456789ab', host: 'another' });
  expect(await refused(elsewhere)).toMatch(
    /process \d+ on another has it since 2026-01-02T.*; if that process is gone, .* remove .*run\.lock$/,
  );
  for (const text of ['', '{}', lockText({ id: '../../x' })]) {
    expect(await refused(text)).toMatch(/run\.lock names no process; remove that file if no process trains there/);
  }
});

test('a process that ends in the middle leaves no lock', async () => {
  const child = processOf('await claimFolder(args[0]); process.exit(3);', at('run'));
  await outputOf(child);
  expect(child.exitCode).toBe(3);
  expect(readdirSync(at('run'))).toEqual([]);
});

test('of many processes that find the same stale locks at once, each folder goes to one', async () => {
  const count = isDeno ? 4 : 8;
  const folders = Array.from({ length: EVERY_CASE ? 2000 : 60 }, (_, i) => at(`run ${i}`));
  const pid = dead();
  for (const [i, run] of folders.entries()) {
    mkdirSync(run);
    const id = crypto.randomUUID();
    writeFileSync(path.join(run, 'run.lock'), lockText({ pid, id }));
    // Some were about to be taken over when that process was killed, too.
    if (i % 3 > 0) writeFileSync(path.join(run, `run.lock.${id}`), lockText({ pid, id: id.replace(/^./, 'f') }));
    if (i % 3 > 1) writeFileSync(path.join(run, `run.lock.${id}.${id.replace(/^./, 'f')}`), lockText({ pid }));
  }
  const list = at('folders.json');
  const told = (child: ChildProcess, what: string) => at(`${child.pid}.${what}`);
  const children = Array.from({ length: count }, () =>
    processOf(
      `const [list, folder] = args;
       const tell = (what, value) => {
         const file = folder + '/' + process.pid + '.' + what;
         fs.writeFileSync(file + '.new', JSON.stringify(value));
         fs.renameSync(file + '.new', file);
       };
       const until = async (done) => {
         while (!done() && fs.existsSync(folder)) await new Promise((resolve) => setTimeout(resolve, 2));
       };
       tell('ready', true);
       await until(() => fs.existsSync(list));
       const won = [];
       for (const folder of JSON.parse(fs.readFileSync(list, 'utf8'))) {
         await claimFolder(folder).then(() => won.push(folder), (error) => {
           if (!error.message.includes('has it since')) won.push(error.message);
         });
       }
       tell('won', won);
       // Living until all are done.
       await until(() => !fs.existsSync(list));`,
      list,
      folder,
    ),
  );
  const all = async (what: string) => {
    while (!children.every((child) => existsSync(told(child, what)))) await sleep(5);
  };
  const ends = children.map((child) => once(child, 'close'));
  await all('ready');
  writeFileSync(at('list'), JSON.stringify(folders));
  renameSync(at('list'), list);
  await all('won');
  const won = children.flatMap((child) => JSON.parse(readFileSync(told(child, 'won'), 'utf8')) as string[]);
  expect(won.sort()).toEqual([...folders].sort());
  for (const run of folders) expect(readdirSync(run)).toEqual(['run.lock']);
  rmSync(list);
  await Promise.all(ends);
});

test('processes that take and give back one folder, and are killed at random: never two have it', async () => {
  const random = new Random(3, 'locks');
  // What the owner makes must not be there already, unless its maker is dead.
  const source = `
    const [folder, witness, times, said] = args;
    const say = (text) => fs.appendFileSync(said, text);
    const lives = (pid) => {
      try { process.kill(pid, 0); } catch { return false; }
      // A killed process that its parent has not asked for yet is there and dead.
      let stat = '';
      try { stat = fs.readFileSync('/proc/' + pid + '/stat', 'utf8'); } catch { return process.platform !== 'linux'; }
      return !'ZX'.includes(stat[stat.lastIndexOf(')') + 2]);
    };
    for (;;) {
      let claim;
      try { claim = await claimFolder(folder); } catch (error) {
        if (!error.message.includes('has it since')) say(error.message);
        continue;
      }
      if (fs.existsSync(witness)) {
        const other = Number(fs.readFileSync(witness, 'utf8'));
        if (lives(other)) say('two have it: ' + other + ' and ' + process.pid);
        fs.rmSync(witness, { force: true });
      }
      fs.writeFileSync(witness, String(process.pid), { flag: 'wx' });
      // Held for a while of any length: so many looks at the witness.
      for (let looks = Math.floor(Math.random() * 300); looks > 0; looks--) fs.existsSync(witness);
      fs.rmSync(witness);
      fs.appendFileSync(times, '.');
      await claim.release();
    }`;
  const alive: { child: ChildProcess; end: Promise<unknown> }[] = [];
  const begin = () => {
    const child = processOf(source, at('run'), at('witness'), at('times'), at('said'));
    alive.push({ child, end: once(child, 'close') });
  };
  for (let i = 0; i < 5; i++) begin();
  const times = () => (existsSync(at('times')) ? readFileSync(at('times')).length : 0);
  for (let kills = 0; kills < (EVERY_CASE ? 400 : 12); kills++) {
    // Between two kills the folder went from hand to hand.
    for (const before = times(); times() < before + 3; ) await sleep(5);
    await sleep(random.below(20));
    const [victim] = alive.splice(random.below(alive.length), 1) as [(typeof alive)[0]];
    victim.child.kill('SIGKILL');
    await victim.end;
    begin();
  }
  for (const { child, end } of alive) {
    child.kill('SIGKILL');
    await end;
  }
  expect(existsSync(at('said')) ? readFileSync(at('said'), 'utf8') : '').toBe('');
  await (await claimFolder(at('run'))).release();
  expect(existsSync(at('run')) ? readdirSync(at('run')) : []).toEqual([]);
});
