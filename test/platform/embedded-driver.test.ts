// The software adapter that comes along, where its folder cannot be made.

import process from 'node:process';
import { expect, test } from 'vitest';
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
        expect.stringMatching(/^cannot make the folder \/proc\/holdfast.*: \/proc takes none$/),
      );
    } finally {
      if (before === undefined) delete process.env['XDG_CACHE_HOME'];
      else process.env['XDG_CACHE_HOME'] = before;
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
