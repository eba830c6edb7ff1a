// Reads of a run in a page, its report, its history, what model it is and how it can be written with: it stays as it is until
// they are done. Another tab that would remove it meanwhile is told that it is open, and what this tab does with it waits.

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Exports } from '../../src/browser/exports.ts';
import { KeptRuns } from '../../src/browser/kept-runs.ts';
import { Runs } from '../../src/browser/runs.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { records } from '../idb-keyval.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { RUN, SETTINGS, STEPS, savedRun } from '../saved-run.ts';

vi.mock('idb-keyval', () => import('../idb-keyval.ts'));

const ID = 'abcd1234';
const REPORT = 'a report';

/** Files that tell when one of a run is looked at. */
class WatchedFiles extends MemoryFiles {
  looked: (() => Promise<void>) | undefined;

  override async stat(path: string) {
    const { looked } = this;
    this.looked = undefined;
    await looked?.();
    return super.stat(path);
  }
}

beforeEach(() => {
  records.clear();
  const held = new Set<string>();
  const request = async (name: string, _: unknown, work: (lock: { name: string } | null) => Promise<void>) => {
    if (held.has(name)) return work(null);
    held.add(name);
    return Promise.resolve(work({ name })?.then(() => held.delete(name)));
  };
  const query = async () => ({ held: [...held].map((name) => ({ name })) });
  vi.stubGlobal('navigator', { locks: { request, query } });
});
afterEach(() => vi.unstubAllGlobals());

async function opened() {
  const files = new WatchedFiles();
  for (const [path, bytes] of (await savedRun()).files.contents)
    files.contents.set(path.replace(new RegExp(`^${RUN}/`), `runs/${ID}/`), bytes);
  await files.writeAtomic(`runs/${ID}/report.html`, REPORT);
  const fileAt = async (path: string) => new File([await files.read(path)], 'file');
  const host = { ...memoryHost(files), fileAt } as unknown as BrowserHost;
  const [here, elsewhere] = [new Runs(host), new Runs(host)];
  await here.put({
    ...{ id: ID, name: 'mine', created: 1, memory: {}, settings: SETTINGS },
    ...{ status: 'stopped', savedStep: STEPS },
  });
  return { files, here, elsewhere, kept: new KeptRuns(host, here, await Exports.open(files), () => undefined) };
}

const READS: Record<string, (kept: KeptRuns) => Promise<unknown>> = {
  report: async (kept) => (await kept.report(ID)).text(),
  voiceOf: (kept) => kept.voiceOf(ID),
  history: async (kept) => (await kept.history(ID)).samples,
  inspectModel: (kept) => kept.inspect(ID),
};
const FOUND: Record<string, unknown> = {
  ...{ report: REPORT, voiceOf: { writes: true, chats: false, adapter: false } },
  history: [{ step: 6, text: 'a text\u0000 of "its" own' }],
  inspectModel: expect.objectContaining({ name: 'mine', from: `runs/${ID}`, config: SETTINGS.config }),
};

test.each(Object.keys(READS))('%s: another tab does not remove the run meanwhile', async (name) => {
  const { files, elsewhere, kept } = await opened();
  let refused = '';
  files.looked = async () => {
    refused = await elsewhere.remove(ID).then(String, (error: Error) => error.message);
  };
  expect(await READS[name]?.(kept)).toEqual(FOUND[name]);
  expect(refused).toBe(`run ${ID} is open in another tab; go on there, or close that tab`);
  await elsewhere.remove(ID);
  expect(records.size).toBe(0);
});

test.each(Object.keys(READS))(
  '%s: what this tab does with the run comes behind, and several reads go on',
  async (name) => {
    const { files, here, kept } = await opened();
    const order: string[] = [];
    const later: Promise<unknown>[] = [];
    files.looked = async () => {
      later.push(here.remove(ID).then(() => order.push('removed')));
      expect((await here.get(ID)).open).toBe('no');
    };
    const reads = [1, 2].map(async () => {
      expect(await READS[name]?.(kept)).toEqual(FOUND[name]);
      order.push('read');
    });
    await reads[0];
    await Promise.allSettled([...reads, ...later]);
    expect(order[0]).toBe('read');
    expect(order).toContain('removed');
  },
);

test.each(['report', 'voiceOf'])('%s of a run that another tab has open is refused', async (name) => {
  const { elsewhere, kept } = await opened();
  const release = await elsewhere.hold(ID);
  await expect(READS[name]?.(kept)).rejects.toThrow(`run ${ID} is open in another tab`);
  release();
});

describe.each(['history', 'inspectModel'])('%s of a run that is open is what was saved of it', (name) => {
  test.each(['here', 'elsewhere'] as const)('%s', async (where) => {
    const { kept, ...runs } = await opened();
    const release = await runs[where].hold(ID);
    expect(await READS[name]?.(kept)).toEqual(FOUND[name]);
    release();
  });
});
