// A run that goes on with settings of another model than its checkpoint's: where all tensors have the same shapes, nothing but
// the configuration tells the two apart. Refused before a device is used.

import { expect, test } from 'vitest';
import type { Device } from '../../src/gpu/device.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunSettings } from '../../src/train/run/run-settings.ts';
import { memoryHost } from '../memory-files.ts';
import { LLAMA_SETTINGS, RUN, SETTINGS, savedRun } from '../saved-run.ts';

/** What is said of a run that was saved by `saved` and goes on by `settings`; with 'a device' it has begun. */
async function resumed(saved: RunSettings, settings: RunSettings): Promise<string> {
  const { files } = await savedRun(saved);
  const none = new Proxy({} as Device, {
    get: (_, name) => {
      if (name === 'status') return 'ready';
      throw new Error('a device');
    },
  });
  const said = trainRun(memoryHost(files), none, settings, RUN, { resume: true });
  return said.then(
    () => expect.fail('it trained'),
    (error) => error.message,
  );
}

const changed = (settings: RunSettings, change: object) =>
  ({ ...settings, config: { ...settings.config, ...change } }) as RunSettings;

test.each<[string, RunSettings, object, string]>([
  ['heads', SETTINGS, { n_head: 4 }, "config.n_head is 4; in the checkpoint's, it is 2;"],
  ['a field more', LLAMA_SETTINGS, { rope_scaling: { rope_type: 'linear', factor: 4 } }, 'it is missing;'],
  [
    'an epsilon',
    LLAMA_SETTINGS,
    { rms_norm_eps: 0.5 },
    "config.rms_norm_eps is 0.5; in the checkpoint's, it is 0.000001;",
  ],
])('is refused, and what is another is named: %s', async (_, settings, change, message) => {
  const other = changed(settings, change);
  const said = await resumed(settings, other);
  expect(said).toContain(`${RUN}: in the settings, config.`);
  expect(said).toContain(message);
  expect(await resumed(other, settings)).toContain(`${RUN}: in the settings, config.`);
});

test('the same model with more steps, another learning rate, or its fields in another order goes on', async () => {
  const reordered = Object.fromEntries(Object.entries(LLAMA_SETTINGS.config).reverse());
  const other = { ...LLAMA_SETTINGS, config: reordered, steps: 40, lr: 0.002 } as unknown as RunSettings;
  expect(await resumed(LLAMA_SETTINGS, other)).toBe('a device');
  expect(await resumed(SETTINGS, { ...SETTINGS, steps: 40 })).toBe('a device');
});
