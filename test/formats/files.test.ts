// The headless host's files: what is read in ranges, and what is written in pieces, on a real disk.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
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
    await expect(files.writeStream(path.join(folder, 'none', 'file'))).rejects.toThrow(/cannot write .*none.file: it/);
    const target = path.join(folder, 'target');
    await files.makeFolder(path.join(target, 'inside'));
    const stream = await files.writeStream(target);
    await stream.write(encode('new'));
    await expect(stream.commit()).rejects.toThrow(`cannot write ${target}`);
    await stream.abort();
    expect(readdirSync(folder).sort()).toEqual(['file', 'target']);
    rmSync(target, { recursive: true });
  });
});
