// Starts of runs that fail or are stopped on a page: a new run leaves nothing behind, and one that was to go on is as it was.

import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { close, event, forget, launch, losses, newContext, open, SETTINGS, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
let page: Page;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  page = await open(await newContext(browser, site), site.isolated);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});

const STEPS = 12;
const settings = { ...SETTINGS, steps: STEPS, evalWindows: 2 };

/** Trains a run to its end; returns its id. */
async function trained(): Promise<string> {
  await forget(page);
  const id = await page.evaluate(
    async ({ settings, text }) => (await window.holdfast.trainer.start({ settings, text })).id,
    { settings, text: TEXT },
  );
  await event(page, 'ended');
  return id;
}

/** Folders of runs, and records. */
const kept = () =>
  page.evaluate(async () => {
    const files = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
    const folders: string[] = [];
    for await (const name of (await files.getDirectoryHandle('runs', { create: true })).keys()) folders.push(name);
    const runs = await window.holdfast.trainer.runs();
    return { folders: folders.sort(), runs: runs.map(({ id }) => id).sort() };
  });

test('a run that is refused once its text is kept leaves nothing', async () => {
  const before = await kept();
  const refused = await page.evaluate(
    ({ settings, text }) =>
      window.holdfast.trainer
        .start({ settings, text, tokenizer: [new File(['x'], 'x.txt')] })
        .catch((error: Error) => error.message),
    { settings, text: TEXT },
  );
  expect(refused).toContain('there is no tokenizer.json among the 1 files');
  expect(await kept()).toEqual(before);
});

test('of two that start at the same time one trains, and of the other nothing is there', async () => {
  const before = await kept();
  await forget(page);
  const outcomes = await page.evaluate(
    async ({ settings, text }) => {
      const { trainer } = window.holdfast;
      const both = await Promise.allSettled([trainer.start({ settings, text }), trainer.start({ settings, text })]);
      return both.map((each) => (each.status === 'fulfilled' ? each.value.id : String(each.reason.message)));
    },
    { settings, text: TEXT },
  );
  await event(page, 'ended');
  const [id = ''] = outcomes.filter((outcome) => !outcome.includes(' '));
  expect(outcomes).toContain(`run ${id} is open here; stop it first`);
  expect(await kept()).toEqual({ folders: [...before.folders, id].sort(), runs: [...before.runs, id].sort() });
});

test('of two that go on at the same time one does, and the other is as it was', async () => {
  const ids = [await trained(), await trained()];
  await forget(page);
  const found = await page.evaluate(async (ids) => {
    const { trainer } = window.holdfast;
    await Promise.allSettled(ids.map((id) => trainer.resume(id, { steps: 1000, paused: true })));
    const runs = (await trainer.runs()).filter(({ id }) => ids.includes(id));
    await trainer.stop();
    // Heard here, it is not taken for the end of a run that follows.
    await window.until(() => window.events.some(({ type }) => type === 'stopped' || type === 'ended'));
    return runs.map(({ open, status, settings }) => ({ open, status, steps: settings?.steps }));
  }, ids);
  expect(found).toHaveLength(2);
  expect(found).toContainEqual({ open: 'here', status: 'running', steps: 1000 });
  expect(found).toContainEqual({ open: 'no', status: 'finished', steps: STEPS });
});

test('a run that is given another text than it learned from is as it was, and goes on with its own', async () => {
  const id = await trained();
  const imported = await page.evaluate(
    async ({ id, text }) => {
      const { trainer } = window.holdfast;
      const run = await trainer.importRun([await trainer.exportZip(id)]);
      await trainer.remove(id);
      const refused = (text: string) =>
        trainer.resume(run.id, { steps: 20, text }).then(
          () => '',
          (error: Error) => error.message,
        );
      const wrong = await refused(text.replace('small', 'large'));
      const [after] = await trainer.runs();
      return { id: run.id, wrong, before: run, after, hasData: await trainer.hasData(run.id) };
    },
    { id, text: TEXT },
  );
  expect(imported.wrong).toBe(
    `“${imported.before.name}” learned from another text than this; choose the one that it began with`,
  );
  expect(imported.after).toEqual(imported.before);
  expect(imported.hasData).toBe(false);
  const goOn = async (options: { steps: number; text?: string }) => {
    await forget(page);
    await page.evaluate(([id, options]) => window.holdfast.trainer.resume(id, options), [
      imported.id,
      options,
    ] as const);
    await event(page, 'ended');
    return [...(await losses(page)).keys()];
  };
  expect(await goOn({ steps: 14, text: TEXT })).toEqual([12, 13]);
  // Now it has one of its own.
  const again = await page.evaluate(
    ({ id, text }) => window.holdfast.trainer.resume(id, { steps: 20, text }).catch((error: Error) => error.message),
    { id: imported.id, text: `${TEXT} and more` },
  );
  expect(again).toContain('learned from another text than this');
  expect(await goOn({ steps: 15 })).toEqual([14]);
});

test('a run whose text is tokenized is stopped, to be started again, and another trains at once', async () => {
  await forget(page);
  const made = await page.evaluate(
    async ({ settings, text }) => {
      const { trainer } = window.holdfast;
      const tokenizer = await trainer.trainTokenizer(300, text);
      const config = { ...settings.config, vocab_size: 300 };
      // Minutes of work.
      const long = new Blob(Array(2000).fill(text));
      const { id } = await trainer.start({ settings: { ...settings, config }, text: long, tokenizer });
      await window.until(() => window.events.some(({ type }) => type === 'tokenizing'));
      await trainer.stop();
      const stopped = (await trainer.runs()).find((run) => run.id === id);
      const other = await trainer.start({ settings, text });
      return { id, stopped, other: other.id };
    },
    { settings, text: TEXT },
  );
  expect(made.stopped).toMatchObject({ status: 'stopped', savedStep: 0, open: 'no' });
  expect(made.stopped?.error).toBeUndefined();
  expect(await event(page, 'stopped')).toEqual({ type: 'stopped', run: made.id });
  expect(await event(page, 'ended')).toMatchObject({ run: made.other });
  const cached = await page.evaluate(async () => {
    const files = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
    const names: string[] = [];
    const cache = await files.getDirectoryHandle('cache');
    for await (const name of (await cache.getDirectoryHandle('tokens')).keys()) names.push(name);
    return names;
  });
  expect(cached).toEqual([]);
  await page.evaluate((id) => window.holdfast.trainer.remove(id), made.id);
});
