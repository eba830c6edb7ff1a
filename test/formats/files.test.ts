// The headless host's files: what is read in ranges, and what is written in pieces, on a real disk.

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { SELF } from '../../src/runtime/headless/processes.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const { files } = headlessHost();
const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-files-'));
const file = path.join(folder, 'file');

beforeEach(() => writeFileSync(file, 'old bytes'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('readRange', () => {
  test('gives the bytes asked for, in a buffer of their own', async () => {
    const bytes = await files.readRange(file, 4, 3);
    expect(new TextDecoder().decode(bytes)).toBe('byt');
    expect(bytes.buffer.byteLength).toBe(3);
    expect(await files.readRange(file, 9, 0)).toHaveLength(0);
  });

  test('names the file that ends early, is missing or is a folder', async () => {
    await expect(files.readRange(file, 5, 5)).rejects.toThrow(`cannot read ${file}: it ends at byte 9, before 10`);
    await expect(files.readRange(`${file}s`, 0, 1)).rejects.toThrow(`cannot read ${file}s: it does not exist`);
    await expect(files.readRange(folder, 0, 1)).rejects.toThrow('it is a folder');
    await expect(files.readRange(file, 5, 5)).rejects.toThrow(HoldfastError);
  });
});

describe('open', () => {
  test('reads what was there, also when the file has been replaced and removed', async () => {
    const open = await files.open(file);
    await files.writeAtomic(file, 'newer');
    await files.remove(file);
    expect(open.bytes).toBe(9);
    expect(new TextDecoder().decode(await open.readRange(4, 5))).toBe('bytes');
    await expect(open.readRange(5, 5)).rejects.toThrow(`cannot read ${file}: it ends at byte 9, before 10`);
    await open.close();
    await expect(files.open(file)).rejects.toThrow(`cannot read ${file}: it does not exist`);
  });
});

describe('what survives a loss of power', () => {
  test('folders are synced, those that are made with all above them; a missing one is named', async () => {
    const deep = path.join(folder, 'a', 'b', 'c');
    await files.makeFolder(deep);
    await files.makeFolder(deep);
    await files.syncFolder(deep);
    await files.makeFolder('/');
    expect((await files.stat(deep))?.kind).toBe('folder');
    rmSync(path.join(folder, 'a'), { recursive: true });
    await expect(files.syncFolder(deep)).rejects.toThrow(`cannot sync the folder ${deep}: it does not exist`);
  });
});

test('sha256 is that of all pieces, whose memory may be used again', async () => {
  const sum = await files.sha256();
  const piece = Uint8Array.of(97, 98);
  sum.update(piece);
  piece.set([99, 0]);
  sum.update(piece.subarray(0, 1));
  // NIST's example for "abc".
  expect(sum.hex()).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
});

describe('writeStream', () => {
  const encode = (text: string) => new TextEncoder().encode(text);

  test('the path has the old bytes until commit, then the pieces in order, and nothing lies beside it', async () => {
    const stream = await files.writeStream(file);
    const piece = encode('one ');
    await stream.write(piece);
    piece.fill(0);
    await stream.write(new Uint8Array());
    await stream.write(encode('xx two xx').subarray(3, 6));
    expect(readFileSync(file, 'utf8')).toBe('old bytes');
    await stream.commit();
    expect(readFileSync(file, 'utf8')).toBe('one two');
    expect(readdirSync(folder)).toEqual(['file']);
  });

  test('an aborted one leaves the old bytes alone', async () => {
    const stream = await files.writeStream(file);
    await stream.write(encode('new'));
    await stream.abort();
    expect(readFileSync(file, 'utf8')).toBe('old bytes');
    expect(readdirSync(folder)).toEqual(['file']);
  });

  test('what cannot be written is named, and abort still cleans up', async () => {
    await expect(files.writeStream(path.join(folder, 'none', 'file'))).rejects.toThrow(
      /cannot write .*none.file: there is no such folder/,
    );
    const target = path.join(folder, 'target');
    const stream = await files.writeStream(target);
    await files.makeFolder(path.join(target, 'inside'));
    await stream.write(encode('new'));
    await expect(stream.commit()).rejects.toThrow(`cannot write ${target}`);
    await stream.abort();
    expect(readdirSync(folder).sort()).toEqual(['file', 'target']);
    await expect(files.writeStream(target)).rejects.toThrow(`cannot write ${target}: it is a folder; name a file`);
    rmSync(target, { recursive: true });
  });

  test('what links lead to is written, whether or not it is there, and the links stay', async () => {
    mkdirSync(path.join(folder, 'far'));
    const target = path.join(folder, 'far', 'target');
    symlinkSync(path.join('far', 'second'), path.join(folder, 'first'));
    symlinkSync('target', path.join(folder, 'far', 'second'));
    for (const text of ['made', 'made again']) {
      await files.writeAtomic(path.join(folder, 'first'), text);
      expect(readFileSync(target, 'utf8')).toBe(text);
      expect(lstatSync(path.join(folder, 'first')).isSymbolicLink()).toBe(true);
      expect(readdirSync(path.join(folder, 'far'))).toEqual(['second', 'target']);
    }
    symlinkSync('circle', path.join(folder, 'circle'));
    await expect(files.writeStream(path.join(folder, 'circle'))).rejects.toThrow('a link that leads back to itself');
    for (const name of ['first', 'far', 'circle']) rmSync(path.join(folder, name), { recursive: true });
  });

  test.runIf(process.platform !== 'win32')('a pipe or a device is refused and stays, behind a link, too', async () => {
    const pipe = path.join(folder, 'pipe');
    expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
    symlinkSync('pipe', path.join(folder, 'link'));
    for (const name of ['pipe', 'link']) {
      const at = path.join(folder, name);
      await expect(files.writeAtomic(at, 'new')).rejects.toThrow(`cannot write ${at}: it is a pipe; name a file`);
    }
    expect(lstatSync(pipe).isFIFO()).toBe(true);
    const server = net.createServer().listen(path.join(folder, 'socket'));
    await once(server, 'listening');
    await expect(files.writeStream(path.join(folder, 'socket'))).rejects.toThrow('it is a device; name a file');
    server.close();
    for (const name of ['pipe', 'link', 'socket']) rmSync(path.join(folder, name), { force: true });
  });
});

describe('what is being written', () => {
  const { place, started } = SELF;
  const dead = () => spawnSync(process.execPath, ['--version']).pid;
  const partial = (target: string, pid: number, since = started, where = place) =>
    `${target}.partial-${where}-${pid}-${since}-0`;
  const inside = () => readdirSync(folder).sort();

  test('lies beside its path under a name of its own, twice at once, too, and the last one counts', async () => {
    const one = await files.writeStream(file);
    const other = await files.writeStream(file);
    expect(inside()).toHaveLength(3);
    await one.write(Uint8Array.of(49));
    await other.write(Uint8Array.of(50));
    await other.commit();
    await one.commit();
    expect(readFileSync(file, 'utf8')).toBe('1');
    expect(inside()).toEqual(['file']);
  });

  test('goes with the next writer of its path when its own is gone; all else stays', async () => {
    const gone = partial('file', dead());
    const kept = [partial('file', process.ppid, ''), partial('other', dead()), 'file.partial', 'file.partial-1'];
    for (const name of [gone, ...kept]) mkdirSync(path.join(folder, name));
    await files.writeAtomic(file, 'new');
    expect(inside()).toEqual(['file', ...kept].sort());
    for (const name of kept) rmSync(path.join(folder, name), { recursive: true });
  });

  test('goes from a folder when its writer is gone, or cannot be seen and was not heard of for a day', async () => {
    const elsewhere = (target: string) => partial(target, process.pid, started, '0123456789ab');
    const gone = [partial('a', dead()), elsewhere('old')];
    const kept = [partial('a', process.ppid, ''), partial('b', process.pid), elsewhere('new'), 'c.partial'];
    for (const name of [...gone, ...kept]) writeFileSync(path.join(folder, name), 'x');
    const dayAgo = new Date(Date.now() - 25 * 60 * 60 * 1000);
    for (const name of [elsewhere('old'), partial('b', process.pid)])
      utimesSync(path.join(folder, name), dayAgo, dayAgo);
    await files.removePartials(folder);
    expect(inside()).toEqual(['file', ...kept].sort());
    for (const name of kept) rmSync(path.join(folder, name));
  });

  test('is a folder of its own beside its path, which takes the place of an empty folder alone', async () => {
    const target = path.join(folder, 'new', 'target');
    const [one, other] = [await files.makePartial(target), await files.makePartial(target)];
    expect(one).not.toBe(other);
    for (const partial of [one, other]) expect(path.dirname(partial)).toBe(path.join(folder, 'new'));
    await files.writeAtomic(path.join(one, 'whose'), 'one');
    mkdirSync(target);
    await files.rename(one, target);
    expect(readdirSync(target)).toEqual(['whose']);
    await expect(files.rename(other, target)).rejects.toThrow(
      `cannot rename ${other} to ${target}: something lies in the folder that is there`,
    );
    expect(readFileSync(path.join(target, 'whose'), 'utf8')).toBe('one');
    await expect(files.rename(other, file)).rejects.toThrow(`cannot rename ${other} to ${file}`);
    expect(readFileSync(file, 'utf8')).toBe('old bytes');
    rmSync(path.join(folder, 'new'), { recursive: true });
  });

  test('becomes what a link leads to, and the link stays', async () => {
    const [real, link] = [path.join(folder, 'real'), path.join(folder, 'link')];
    mkdirSync(real);
    symlinkSync(real, link);
    const partial = await files.makePartial(link);
    await files.writeAtomic(path.join(partial, 'x'), '');
    await files.rename(partial, link);
    expect(readdirSync(real)).toEqual(['x']);
    expect(inside()).toEqual(['file', 'link', 'real']);
    for (const name of ['link', 'real']) rmSync(path.join(folder, name), { recursive: true });
  });
});

describe('makeFolder', () => {
  test('makes what is missing above it, and takes what is there', async () => {
    const deep = path.join(folder, 'made', 'with', 'all');
    await Promise.all([files.makeFolder(deep), files.makeFolder(path.join(deep, 'in', 'it')), files.makeFolder(deep)]);
    expect(readdirSync(path.join(deep, 'in'))).toEqual(['it']);
    rmSync(path.join(folder, 'made'), { recursive: true });
  });

  test('what stands in its way is the reason', async () => {
    await expect(files.makeFolder(file)).rejects.toThrow(
      `cannot make the folder ${file}: something else has that name`,
    );
    await expect(files.makeFolder(path.join(file, 'a', 'b'))).rejects.toThrow('a part of its path is not a folder');
    symlinkSync('loop', path.join(folder, 'loop'));
    await expect(files.makeFolder(path.join(folder, 'loop', 'a'))).rejects.toThrow('a link that leads back to itself');
    rmSync(path.join(folder, 'loop'));
  });

  test.runIf(process.platform === 'linux')('a folder of the system that takes none is refused, too', async () => {
    await expect(files.makeFolder('/proc/holdfast/a')).rejects.toThrow(/cannot make the folder .*: \/proc takes none/);
  });

  // Deno cannot become another user.
  test.runIf(process.seteuid && process.geteuid && !('Deno' in globalThis))(
    'permission denied is called so',
    async () => {
      const closed = path.join(folder, 'closed');
      mkdirSync(closed);
      chmodSync(folder, 0o755);
      chmodSync(closed, 0o555);
      // No folder is closed to the administrator.
      const isAdministrator = process.geteuid?.() === 0;
      if (isAdministrator) process.seteuid?.(65534);
      try {
        await expect(files.makeFolder(path.join(closed, 'a', 'b'))).rejects.toThrow(
          `cannot make the folder ${path.join(closed, 'a', 'b')}: permission denied`,
        );
        const { claimFolder } = headlessHost();
        await expect(claimFolder?.(path.join(closed, 'a', 'b'))).rejects.toThrow(
          /^cannot write to .*: permission denied/,
        );
        await expect(claimFolder?.(closed)).rejects.toThrow(`cannot write to ${closed}: permission denied`);
      } finally {
        if (isAdministrator) process.seteuid?.(0);
        rmSync(closed, { recursive: true });
      }
    },
  );
});

// A device takes all bytes and refuses to be synced; what is open, Linux lists.
test.runIf(process.platform === 'linux')('a resumed file that cannot be flushed is closed', async () => {
  const device = statSync('/dev/full').rdev;
  const rdevOf = (name: string) => statSync(path.join('/proc/self/fd', name), { throwIfNoEntry: false })?.rdev;
  const open = () => readdirSync('/proc/self/fd').filter((name) => rdevOf(name) === device).length;
  symlinkSync('/dev/full', path.join(folder, 'goes.incoming'));
  const goes = await headlessHost().resumeFile?.(path.join(folder, 'goes'));
  expect(open()).toBe(1);
  await expect(goes?.commit()).rejects.toThrow(/^cannot write .*goes: (?:EINVAL|Invalid argument)/);
  expect(open()).toBe(0);
  rmSync(path.join(folder, 'goes.incoming'));
});

test('stat tells files, folders, pipes and all else apart, and what two paths lead to', async () => {
  const link = path.join(folder, 'link');
  symlinkSync(folder, link);
  const [direct, through] = [await files.stat(folder), await files.stat(link)];
  expect(direct).toMatchObject({ kind: 'folder' });
  expect(through).toEqual(direct);
  expect((await files.stat(file))?.id).not.toBe(direct?.id);
  expect(await files.stat(file)).toMatchObject({ kind: 'file', bytes: 9 });
  symlinkSync('itself', path.join(folder, 'itself'));
  expect(await files.stat(path.join(folder, 'itself'))).toMatchObject({ kind: 'other' });
  symlinkSync('nothing', path.join(folder, 'dangling'));
  expect(await files.stat(path.join(folder, 'dangling'))).toBeUndefined();
  if (process.platform !== 'win32') {
    expect(spawnSync('mkfifo', [path.join(folder, 'pipe')]).status).toBe(0);
    expect(await files.stat(path.join(folder, 'pipe'))).toMatchObject({ kind: 'pipe' });
    expect(await files.stat('/dev/zero')).toMatchObject({ kind: 'other' });
  }
  for (const name of ['link', 'itself', 'dangling', 'pipe']) rmSync(path.join(folder, name), { force: true });
});
