// Small files that are read whole: one that is a device or a pipe is not opened, and of one that is too large no byte is read.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { loadChoices } from '../../src/engine/compile/choices.ts';
import { readSums } from '../../src/formats/checkpoint/checksums.ts';
import { modelFolder } from '../../src/formats/checkpoint/folder.ts';
import { loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { tokenizerIn } from '../../src/formats/tokenizer-files.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { FileStat } from '../../src/runtime/host.ts';
import { readWhole } from '../../src/runtime/read-whole.ts';
import { inProcess } from '../cli/in-process.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { checkpoint } from './checkpoints.ts';

/** Files in memory, of which one is said to be something else; how often that one is read. */
class PosedFiles extends MemoryFiles {
  posed = '';
  as: FileStat = { kind: 'file', bytes: 1.5e9 };
  reads = 0;

  override async stat(path: string) {
    return path === this.posed ? this.as : super.stat(path);
  }

  override async read(path: string) {
    if (path === this.posed) this.reads++;
    return super.read(path);
  }
}

const files = new PosedFiles({
  'machine.json': '{}',
  'prompts.txt': 'a',
  'tokens/tokenizer.json': '{}',
  'tokens/tokenizer_config.json': '{}',
});
await saveCheckpoint(files, 'run', 1, checkpoint(1));
const at = await modelFolder(files, 'run');
// Of others, who keep no sums.
for (const name of ['config.json', 'model.safetensors'])
  await files.writeAtomic(`plain/${name}`, await files.read(`${at}/${name}`));
const said = async (...args: string[]) => {
  const { status, said } = await inProcess(files, args);
  expect(status).toBe(2);
  throw new Error(said);
};

const READERS: Readonly<Record<string, () => Promise<unknown>>> = {
  'plain/config.json': () => loadWeights(files, 'plain'),
  [`${at}/SHA256SUMS`]: () => readSums(files, at),
  'tokens/tokenizer_config.json': () => tokenizerIn(files, 'tokens'),
  'machine.json': () => said('plan', '--hardware', 'machine.json'),
  'prompts.txt': () => said('generate', 'run', '--prompts', 'prompts.txt'),
};

test.each(Object.entries(READERS))('%s of 1.5 GB is refused by its size, and not read', async (path, read) => {
  files.posed = path;
  files.as = { kind: 'file', bytes: 1.5e9 };
  files.reads = 0;
  await expect(read()).rejects.toThrow(
    new RegExp(`${path}: has 1\\.50 GB, at most [\\d.]+ MB are read of such a file; \\w`),
  );
  expect(files.reads).toBe(0);
});

test('a config.json or sums that are a device or a pipe are refused as what they are', async () => {
  for (const [kind, name] of [
    ['other', 'device'],
    ['pipe', 'pipe'],
  ] as const) {
    for (const file of ['plain/config.json', `${at}/SHA256SUMS`]) {
      files.posed = file;
      files.as = { kind, bytes: 0 };
      files.reads = 0;
      await expect(READERS[file]?.()).rejects.toThrow(`${file}: is a ${name}, not a file; `);
      expect(files.reads).toBe(0);
    }
  }
});

test.each([
  ['pipe', 'a pipe'],
  ['folder', 'a folder'],
  ['other', 'a device'],
] as const)(
  'weights that are a %s are refused as what they are where a model’s files stay open',
  async (kind, what) => {
    files.posed = 'plain/model.safetensors';
    files.as = { kind, bytes: 0 };
    files.reads = 0;
    await expect(said('generate', 'plain')).rejects.toThrow(
      `cannot read plain/model.safetensors: it is ${what}, not a file; get the file again`,
    );
    expect(files.reads).toBe(0);
  },
);

test('what is remembered of kernels counts as not there where it is no file', async () => {
  const host = memoryHost(files);
  files.posed = `${host.cacheFolder}/kernel-choices.json`;
  files.as = { kind: 'other', bytes: 0 };
  files.reads = 0;
  const device = { adapter: { name: 'any' }, check() {} } as unknown as Parameters<typeof loadChoices>[1];
  expect(await loadChoices(host, device)).toEqual({});
  expect(files.reads).toBe(0);
});

test.runIf(process.platform !== 'win32')('on a disk: links to devices, pipes with a bound, and files', async () => {
  const { files } = headlessHost();
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-whole-'));
  const inside = (name: string) => path.join(folder, name);
  symlinkSync('/dev/zero', inside('zero'));
  await expect(readWhole(files, inside('zero'), 100)).rejects.toThrow('zero: is a device, not a file; get the file');
  expect(spawnSync('mkfifo', [inside('pipe')]).status).toBe(0);
  await expect(readWhole(files, inside('pipe'), 100)).rejects.toThrow('pipe: is a pipe, not a file; get the file');
  for (const [bytes, ends] of [
    [100, true],
    [101, false],
  ] as const) {
    const writer = spawn('sh', ['-c', `head -c ${bytes} /dev/zero > "$1"`, 'sh', inside('pipe')]);
    const read = readWhole(files, inside('pipe'), 100, { pipes: true });
    if (ends) expect(await read).toHaveLength(100);
    else
      await expect(read).rejects.toThrow(`cannot read ${inside('pipe')}: it has more than 100 B; get the file again`);
    if (writer.exitCode === null && writer.signalCode === null) await once(writer, 'close');
  }
  for (const name of ['pipe', 'zero'])
    await expect(files.readRange(inside(name), 0, 0)).rejects.toThrow(`${name}: it is a pipe or a device; name a file`);
  writeFileSync(inside('file'), 'x'.repeat(100));
  expect(new TextDecoder().decode(await readWhole(files, inside('file'), 100))).toBe('x'.repeat(100));
  expect(await files.read(inside('file'))).toHaveLength(100);
  rmSync(folder, { recursive: true });
});
