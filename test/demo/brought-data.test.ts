// Data that is brought for a run which has some: wherever a tab is closed or the disk fails meanwhile, the run has the one or the
// other, whole, and goes on with it.

import { expect, test } from 'vitest';
import type { RunRecord } from '../../src/browser/index.ts';
import { hasData, type ResumeOptions, resumedRecord } from '../../src/browser/run-records.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { vitCheckpoint } from '../formats/checkpoints.ts';
import { FaultyFiles } from '../formats/faulty-files.ts';
import { memoryHost } from '../memory-files.ts';
import { RUN, SETTINGS, savedRun, TEXT } from '../saved-run.ts';

const hostOf = (files: FaultyFiles) => memoryHost(files) as BrowserHost;

const recordOf = (settings: object): RunRecord => ({
  ...{ id: 'a', name: 'mine', created: 1, memory: {}, status: 'stopped', savedStep: 0 },
  settings: { ...SETTINGS, ...settings },
});

/** The run's folder, what it has at first, what is brought, and what may be there then, by paths. */
interface Case {
  readonly record: RunRecord;
  readonly files: () => Promise<Record<string, string | Uint8Array>>;
  readonly brought: ResumeOptions;
  readonly allowed: readonly Record<string, string>[];
}

const text: Case = {
  record: recordOf({ data: [`${RUN}/text`] }),
  files: async () => ({ ...Object.fromEntries((await savedRun()).files.contents), [`${RUN}/text`]: TEXT }),
  brought: { text: TEXT },
  allowed: [{ [`${RUN}/text`]: TEXT }],
};

const images: Case = {
  record: recordOf({ config: vitCheckpoint(1).config, data: [`${RUN}/images`] }),
  files: async () => ({ [`${RUN}/images/a/1.png`]: 'one', [`${RUN}/images/b/2.png`]: 'two' }),
  brought: {
    images: ['a/3.png', 'b/4.png'].map((path) => ({ path: `mine/${path}`, file: new File(['other'], path) })),
  },
  allowed: [
    { [`${RUN}/images/a/1.png`]: 'one', [`${RUN}/images/b/2.png`]: 'two' },
    { [`${RUN}/images/a/3.png`]: 'other', [`${RUN}/images/b/4.png`]: 'other' },
  ],
};

/** Of the run's folder, without its checkpoints. */
const dataIn = (files: FaultyFiles) =>
  Object.fromEntries(
    [...files.contents]
      .filter(([path]) => path.startsWith(`${RUN}/`) && !path.includes('checkpoint-'))
      .map(([path, bytes]) => [path, new TextDecoder().decode(bytes)]),
  );

const cases = { 'a text': text, images };

test.each([
  ['a text', 'once'],
  ['a text', 'for good'],
  ['images', 'once'],
  ['images', 'for good'],
] as const)('%s: the disk fails %s', async (what, times) => {
  const { record, files: before, brought, allowed } = cases[what];
  const gone = times === 'for good';
  for (let failAt = 1; ; failAt++) {
    const files = new FaultyFiles(await before());
    Object.assign(files, { failAt, gone });
    const host = hostOf(files);
    const outcome = await resumedRecord(host, RUN, record, brought).catch((error) => error);
    const isOver = files.changes < failAt;
    Object.assign(files, { failAt: Number.POSITIVE_INFINITY });
    const where = `change ${failAt}`;
    // In another tab, later.
    expect(await hasData(host, record), where).toBe(true);
    expect((await resumedRecord(host, RUN, record, {})).settings.data).toEqual(record.settings?.data);
    const data = Object.entries(dataIn(files)).filter(([path]) => !path.includes(' brought'));
    expect(allowed, where).toContainEqual(Object.fromEntries(data));
    if (isOver) {
      expect(outcome).toMatchObject({ status: 'running' });
      expect(dataIn(files)).toEqual(allowed.at(-1));
      expect(failAt).toBeGreaterThan(4);
      return;
    }
    await resumedRecord(host, RUN, record, brought);
    expect(dataIn(files), where).toEqual(allowed.at(-1));
  }
});
