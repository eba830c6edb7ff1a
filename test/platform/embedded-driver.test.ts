// The software adapter that comes along, where its folder cannot be made or filled.

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { expect, test, vi } from 'vitest';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError } from '../../src/util/errors.ts';

test.runIf(process.platform === 'linux' && process.arch === 'x64')(
  'a cache folder that takes nothing is named',
  async () => {
    const before = process.env['XDG_CACHE_HOME'];
    process.env['XDG_CACHE_HOME'] = '/proc/holdfast';
    try {
      const embedded = (await headlessHost().gpuSources()).find((source) => source.embedded);
      const error = await embedded?.open().catch((thrown) => thrown);
      expect(error).toBeInstanceOf(HoldfastError);
      expect(error).toHaveProperty(
        'message',
        expect.stringMatching(
          /^cannot make the folder \/proc\/holdfast.*: \/proc takes none; set XDG_CACHE_HOME to a folder where the software adapter can be unpacked$/,
        ),
      );
    } finally {
      if (before === undefined) delete process.env['XDG_CACHE_HOME'];
      else process.env['XDG_CACHE_HOME'] = before;
    }
  },
);

test.runIf(process.platform === 'linux' && process.arch === 'x64')(
  'a full disk is told with the folder, of which nothing is left',
  async () => {
    const cache = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-full-'));
    vi.stubEnv('XDG_CACHE_HOME', cache);
    const { createWriteStream } = fs;
    // What is unpacked goes to a device that takes no byte.
    const full = vi.spyOn(fs, 'createWriteStream').mockImplementation(() => createWriteStream('/dev/full'));
    try {
      const embedded = (await headlessHost().gpuSources()).find((source) => source.embedded);
      const error = await embedded?.open().catch((thrown) => thrown);
      expect(full).toHaveBeenCalled();
      expect(error).toBeInstanceOf(HoldfastError);
      expect(error.message).toMatch(
        new RegExp(
          `^cannot unpack the embedded software adapter into ${cache}/holdfast/swiftshader-.*: the disk is full$`,
        ),
      );
      expect(fs.readdirSync(path.join(cache, 'holdfast'))).toEqual([]);
    } finally {
      full.mockRestore();
      vi.unstubAllEnvs();
      fs.rmSync(cache, { recursive: true, force: true });
    }
  },
);

test.runIf(process.platform === 'linux' && process.arch === 'x64')(
  'the system’s own drivers are found behind it: the environment names the one that comes along for no longer than it is asked',
  async () => {
    const driver = () => [process.env['VK_DRIVER_FILES'], process.env['VK_ICD_FILENAMES']];
    const before = driver();
    const embedded = (await headlessHost().gpuSources()).find((source) => source.embedded);
    const gpu = await embedded?.open();
    const requested = gpu?.requestAdapter();
    expect(await requested).toMatchObject({ info: expect.anything() });
    expect(driver()).toEqual(before);
    // And another one finds it again.
    expect(await (await embedded?.open())?.requestAdapter()).toMatchObject({ info: expect.anything() });
    expect(driver()).toEqual(before);
  },
);
