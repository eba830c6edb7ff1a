// Runs on a page, as a person has them: started, watched, paused, reloaded, lost and found. The library is the built
// one, below a base path of its own.

import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { MemorySettings } from '../../src/browser/index.ts';
import { close, event, forget, halted, launch, losses, newContext, open, SETTINGS, start, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
/** One storage for all tests: kernels are measured once, so that all runs make the same choices. */
let context: BrowserContext;
/** Loss by step of an undisturbed run. */
let undisturbed: Map<number, number>;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  context = await newContext(browser, site);
  const page = await open(context, site.isolated);
  await train(page);
  await event(page, 'ended');
  undisturbed = await losses(page);
  await page.close();
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});
afterEach(() => Promise.all(context.pages().map((page) => page.close())));

interface Change {
  steps?: number;
  memory?: MemorySettings;
}

/** Starts a run; returns its id. */
async function train(page: Page, { memory = {}, ...change }: Change = {}): Promise<string> {
  const settings = { ...SETTINGS, ...change };
  return page.evaluate(
    async ({ settings, memory, text }) => (await window.holdfast.trainer.start({ settings, memory, text })).id,
    { settings, memory, text: TEXT },
  );
}

function expectSame(found: Map<number, number>, least: number): void {
  expect(found.size).toBeGreaterThanOrEqual(least);
  for (const [step, loss] of found) expect(loss, `step ${step}`).toBe(undisturbed.get(step));
}

test('a run learns; the page hears of every step, in order, and can ask for text', async () => {
  const page = await open(context, site.isolated);
  const environment = await page.evaluate(() => window.holdfast.environment);
  expect(environment).toMatchObject({ isolated: true, adapter: { architecture: 'swiftshader' } });
  expect(environment.notes.join()).toMatch(/software adapter/);
  const id = await train(page, { steps: 120 });
  const { summary } = await event(page, 'ended');
  expect(summary).toMatchObject({ steps: 120, interrupted: false });
  expect(summary.finalLoss).toBeLessThan(2.6);
  expect([...(await losses(page)).keys()]).toEqual(Array.from({ length: 120 }, (_, step) => step));
  const types = await page.evaluate(() => [...new Set(window.events.map(({ type }) => type))]);
  for (const type of ['preparing', 'ready', 'step', 'memory', 'validation', 'sample', 'saved', 'ended']) {
    expect(types).toContain(type);
  }
  const found = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const request = { prompt: 'the small ', tokens: 30, temperature: 0 };
    const text = await trainer.sample(id, request);
    return {
      text,
      again: await trainer.sample(id, request),
      next: await trainer.next(id, 'the smal', 3),
      history: await trainer.history(id),
      runs: await trainer.runs(),
    };
  }, id);
  expect(found.text).toHaveLength(30);
  expect(found.again).toBe(found.text);
  expect(found.next).toHaveLength(3);
  expect(found.next[0]?.probability).toBeGreaterThan(found.next[1]?.probability as number);
  expect(found.history.steps).toHaveLength(120);
  const own = { id, name: 'GPT-2 1 × 16', status: 'finished', savedStep: 120, open: 'no' };
  expect(found.runs[0]).toMatchObject(own);
});

test('paused, stepped, sampled from, given another budget: the losses are those of a run left alone', async () => {
  const page = await open(context, site.isolated);
  const id = await halted(page, 5);
  const at = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const count = () => window.events.filter(({ type }) => type === 'step').length;
    const paused = count();
    await trainer.sample(id, { prompt: 'the ', tokens: 20 });
    // Steps that should not come have time to.
    const aWhile = () => new Promise((resolve) => setTimeout(resolve, 100));
    await aWhile();
    const still = count();
    await trainer.step();
    await window.until(() => count() > still);
    await aWhile();
    const stepped = count();
    const [run] = await trainer.runs();
    if (!run?.settings) throw new Error('the run has no settings');
    const { smallest } = await trainer.estimate(run.settings, { gpu: 1 });
    await trainer.setMemory({ gpu: smallest });
    await trainer.unpause();
    return { paused, still, stepped };
  }, id);
  expect(at.still).toBe(at.paused);
  expect(at.stepped).toBe(at.paused + 1);
  await event(page, 'step', 38);
  expectSame(await losses(page), 40);
});

test('a record that is damaged hides no other run; it says so, can be exported and removed', async () => {
  const page = await open(context, site.isolated);
  const id = await train(page, { steps: 12 });
  await event(page, 'ended');
  const found = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const database = await new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open('holdfast');
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    const change = (work: (store: IDBObjectStore) => void) =>
      new Promise<void>((resolve) => {
        const transaction = database.transaction('runs', 'readwrite');
        transaction.oncomplete = () => resolve();
        work(transaction.objectStore('runs'));
      });
    const whole = (await trainer.runs()).find((run) => run.id === id);
    const bad = { ...whole, name: 'mine', savedStep: '12', settings: { ...whole?.settings, batch: null } };
    // What older pages kept of a run whose last step was skipped.
    const older = { ...whole, id: 'older', loss: null };
    await change((store) => {
      store.put(bad, id);
      store.put(null, 'nothing');
      store.put({ id: 'other' }, '../up');
      store.put(older, 'older');
    });
    const runs = await trainer.runs();
    const shown = (of: string) => runs.find((run) => run.id === of);
    const refused = await trainer.resume(id).catch((error: Error) => error.message);
    const zip = await trainer.exportZip(id);
    const again = await trainer.importRun([zip]);
    for (const gone of [id, 'nothing', '../up', 'older', again.id]) await trainer.remove(gone);
    database.close();
    const left = (await trainer.runs()).map((run) => run.id);
    return { shown: [id, 'nothing', '../up', 'older'].map(shown), refused, again, left };
  }, id);
  const [bad, nothing, up, older] = found.shown;
  expect(bad).toMatchObject({
    name: 'mine',
    status: 'damaged',
    savedStep: 12,
    error: expect.stringContaining('batch is null'),
  });
  expect(nothing).toMatchObject({ name: 'run nothing', status: 'damaged', savedStep: 0 });
  expect(up).toMatchObject({ status: 'damaged', savedStep: 0 });
  expect(older).toMatchObject({ status: 'finished', loss: NaN });
  expect(found.refused).toMatch(/is damaged \(the settings: batch is null.*export it and import that, or remove it/);
  expect(found.again).toMatchObject({ status: 'imported', savedStep: 12 });
  for (const gone of [id, 'nothing', '../up', 'older', found.again.id]) expect(found.left).not.toContain(gone);
});

test('a text ends where its listener returns false, and with the error of one that fails', async () => {
  const page = await open(context, site.isolated);
  const id = await halted(page, 10);
  const found = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const pieces: string[] = [];
    const text = await trainer.sample(id, { prompt: 'the ', tokens: 100_000 }, (piece) => pieces.push(piece) < 3);
    const failed = await trainer
      .sample(id, { prompt: 'the ', tokens: 100_000 }, () => {
        throw new Error('no paper');
      })
      .catch((error: Error) => error.message);
    return { pieces, text, failed };
  }, id);
  expect(found.pieces.length).toBeGreaterThanOrEqual(3);
  expect(found.pieces.join('')).toBe(found.text);
  expect(found.failed).toBe('no paper');
});

test('a text that is being written, or about to be, gives way to the run that goes on', async () => {
  const page = await open(context, site.isolated);
  const id = await halted(page, 10);
  await page.evaluate(() => window.holdfast.trainer.stop());
  const texts = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const found: string[] = [];
    const long = { prompt: 'the ', tokens: 400 };
    for (const wait of [0, 0, 150, 'until it is written']) {
      let pieces = 0;
      // Two at once: there is one writer for both.
      const asked = [trainer.sample(id, long, () => void pieces++), trainer.next(id, 'the ')];
      if (typeof wait === 'number') await new Promise((resolve) => setTimeout(resolve, wait));
      else await window.until(() => pieces > 0);
      await trainer.resume(id, { paused: true });
      const ended = await Promise.allSettled(asked);
      found.push(...ended.map((end) => (end.status === 'fulfilled' ? 'written' : String(end.reason.message))));
      await trainer.stop();
    }
    const second = await Promise.allSettled([trainer.resume(id, { paused: true }), trainer.resume(id)]);
    found.push(second.map(({ status }) => status).join());
    return found;
  }, id);
  // Either it was written as far as it came, or it is said why not.
  for (const text of texts.slice(0, -1)) expect(text).toMatch(/^written$|ask again|stop it before another one writes/);
  expect(texts.slice(0, -1)).toContain('written');
  expect(texts.at(-1)).toBe('fulfilled,rejected');
  expectSame(await losses(page), 10);
  await forget(page);
  await page.evaluate(() => window.holdfast.trainer.unpause());
  // First: the end of a run that was stopped above may be heard only now.
  await event(page, 'step', 38);
  await event(page, 'ended');
  expectSame(await losses(page), 1);
});

describe('what cuts a run off costs no bit', () => {
  test('a reload', async () => {
    const page = await open(context, site.isolated);
    const id = await halted(page, 13);
    const reloaded = page.waitForEvent('load');
    await page
      .evaluate(async (id) => {
        const { trainer } = window.holdfast;
        // It goes on, and writes before its next step: it is not to end before, however late the reload comes.
        void trainer.sample(id, { prompt: 'the ', tokens: 100_000 });
        await trainer.unpause();
        while ((await trainer.runs())[0]?.status !== 'running');
        location.reload();
      }, id)
      // The page that would answer may be gone.
      .catch(() => {});
    await reloaded;
    await page.waitForFunction(() => window.events === undefined && window.library);
    await start(page);
    // The lock goes with the worker that had it, which may be a moment later.
    const newest = () => page.evaluate(async () => (await window.holdfast.trainer.runs())[0]);
    await expect.poll(newest).toMatchObject({ id, status: 'running', open: 'no' });
    await page.evaluate((id) => window.holdfast.trainer.resume(id), id);
    const { firstStep } = await event(page, 'ready');
    expect(firstStep).toBeGreaterThanOrEqual(10);
    await event(page, 'ended');
    expectSame(await losses(page), 40 - firstStep);
  });

  test('a GPU that is lost: without a budget the latest checkpoint, with one the last step', async () => {
    const page = await open(context, site.isolated);
    await crashAfter(page, 5);
    expect(await event(page, 'recovered')).toMatchObject({ from: 'checkpoint' });
    await event(page, 'ended');
    expectSame(await losses(page), 40);

    const { smallest } = await page.evaluate(
      (settings) => window.holdfast.trainer.estimate(settings, { gpu: 1 }),
      SETTINGS,
    );
    await forget(page);
    await crashAfter(page, 5, { gpu: smallest, recovery: 'step' });
    const lost = await event(page, 'recovered');
    expect(lost.from, lost.reason).toBe('step');
    await event(page, 'ended');
    expectSame(await losses(page), 40);
    expect((await page.evaluate(() => window.events.filter(({ type }) => type === 'ready'))).length).toBe(1);
  });

  /** Starts a run and ends the GPU process, as a driver's crash does, after some steps. */
  async function crashAfter(page: Page, steps: number, memory: MemorySettings = {}): Promise<void> {
    await halted(page, steps, SETTINGS, memory);
    const session = await browser.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess');
    await session.detach();
    await page.evaluate(() => window.holdfast.trainer.unpause());
  }
});

test('a second tab is told that a run is open, and gets it when the first is closed', async () => {
  const [first, second] = [await open(context, site.isolated), await open(context, site.isolated)];
  const id = await train(first, { steps: 100_000 });
  await event(first, 'step');
  const told = await second.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const message = (work: Promise<unknown>) =>
      work.then(
        () => 'let in',
        (error: Error) => `${error.name}: ${error.message}`,
      );
    return [await message(trainer.resume(id)), await message(trainer.remove(id)), (await trainer.runs())[0]?.open];
  }, id);
  const message = `HoldfastError: run ${id} is open in another tab; go on there, or close that tab`;
  expect(told).toEqual([message, message, 'in another tab']);
  await first.close();
  // waitForFunction takes a promise itself for an answer.
  const isOpen = () => second.evaluate(async () => (await window.holdfast.trainer.runs())[0]?.open);
  await expect.poll(isOpen).toBe('no');
  await second.evaluate(async (id) => {
    // By its files: the record of a checkpoint comes behind it, and the tab may have been closed between.
    const files = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
    const folder = await (await files.getDirectoryHandle('runs')).getDirectoryHandle(id);
    let done = 0;
    for await (const name of folder.keys()) done = Math.max(done, Number(/^checkpoint-(\d+)$/.exec(name)?.[1] ?? 0));
    await window.holdfast.trainer.resume(id, { steps: done + 5 });
  }, id);
  await event(second, 'ended');
});

describe('what a tab exports', () => {
  /** In a page: the folders of tabs below `exports`. */
  const tabs = (page: Page): Promise<string[]> =>
    page.evaluate(async () => {
      const files = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
      const names: string[] = [];
      for await (const name of (await files.getDirectoryHandle('exports', { create: true })).keys()) names.push(name);
      return names;
    });

  test('stays while the tab lives, whatever others open, and goes at the next start', async () => {
    const first = await open(context, site.isolated);
    const id = await train(first, { steps: 12 });
    await event(first, 'ended');
    const zip = await first.evaluateHandle((id) => window.holdfast.trainer.exportZip(id), id);
    const own = await tabs(first);
    expect(own).toHaveLength(1);
    const second = await open(context, site.isolated);
    expect(await tabs(second)).toEqual(own);
    expect(await zip.evaluate(async (file) => (await file.arrayBuffer()).byteLength === file.size)).toBe(true);
    await first.close();
    const locks = () => second.evaluate(async () => (await navigator.locks.query()).held?.map(({ name }) => name));
    await expect.poll(locks).not.toContain(`holdfast exports ${own[0]}`);
    const third = await open(context, site.isolated);
    expect(await tabs(third)).toEqual([]);
  });

  test('and a run that is being made keep no other page from opening while a file of theirs is open', async () => {
    const first = await open(context, site.isolated);
    // As where a tab has gone, and its files are still being closed.
    const writing = await first.evaluateHandle(async () => {
      const files = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
      const writers = ['exports', 'runs'].map(async (name) => {
        const folder = await (await files.getDirectoryHandle(name, { create: true })).getDirectoryHandle('gone', {
          create: true,
        });
        return (await folder.getFileHandle('file', { create: true })).createWritable();
      });
      return Promise.all(writers);
    });
    const second = await open(context, site.isolated);
    expect(await tabs(second)).toContain('gone');
    await writing.evaluate((writers) => Promise.all(writers.map((writer) => writer.close())));
    const third = await open(context, site.isolated);
    expect(await tabs(third)).not.toContain('gone');
  });
});

describe('room', () => {
  /** Lets the site keep so many bytes more than it has; without a number, what it may by itself. */
  async function leave(page: Page, bytes?: number): Promise<void> {
    const { room } = await page.evaluate((settings) => window.holdfast.trainer.estimate(settings), SETTINGS);
    const session = await context.newCDPSession(page);
    const origin = new URL(site.isolated).origin;
    const quota = bytes === undefined ? {} : { quotaSize: room.used + bytes };
    await session.send('Storage.overrideQuotaForOrigin', { origin, ...quota });
  }

  test('a disk tier that does not fit is refused with what would; a checkpoint that does not leaves the last one whole', async () => {
    const page = await open(context, site.isolated);
    await leave(page, 100_000);
    await train(page, { memory: { gpu: 10_000_000, host: 0, disk: 10_000_000 } });
    expect((await event(page, 'failed')).message).toMatch(
      /^this site may keep .* \(\d+ bytes\) here and .* are in use: .* would fit, the disk tier needs .* set a lower disk limit/,
    );
    await leave(page);
    await forget(page);
    const id = await halted(page, 10);
    await leave(page, 20_000);
    await page.evaluate(() => window.holdfast.trainer.unpause());
    const { message } = await event(page, 'failed');
    expect(message).toMatch(/^cannot write runs.*: this site may keep .* would fit; remove runs/);
    await leave(page);
    const run = await page.evaluate(
      async (id) => (await window.holdfast.trainer.runs()).find((run) => run.id === id),
      id,
    );
    expect(run).toMatchObject({ status: 'failed', error: message });
    await forget(page);
    await page.evaluate((id) => window.holdfast.trainer.resume(id), id);
    const { firstStep } = await event(page, 'ready');
    expect(firstStep).toBe(run?.savedStep);
    await event(page, 'ended');
    expectSame(await losses(page), 40 - firstStep);
  });

  test('a page that is not isolated trains on its disk tier too, and says what it lacks', async () => {
    const page = await open(context, site.plain);
    const { isolated, notes } = await page.evaluate(() => window.holdfast.environment);
    expect(isolated).toBe(false);
    expect(notes.join()).toMatch(/not cross-origin isolated .* slower/);
    const { smallest } = await page.evaluate((s) => window.holdfast.trainer.estimate(s, { gpu: 1 }), SETTINGS);
    await train(page, { memory: { gpu: smallest, host: 100_000, disk: 10_000_000 } });
    await event(page, 'ended');
    const memory = await page.evaluate(() => window.events.findLast(({ type }) => type === 'memory'));
    expect(memory).toMatchObject({ report: { below: { diskWriteBytes: expect.any(Number) } } });
    expectSame(await losses(page), 40);
  });
});

describe('without WebGPU', () => {
  const refusal = (context: BrowserContext) =>
    open(context, site.isolated).then(
      () => 'opened',
      (error: Error) => error.message.split('\n')[0],
    );

  test('a browser that has none is told so', async () => {
    const own = await browser.newContext();
    await own.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'));
    expect(await refusal(own)).toMatch(/this browser shows no WebGPU \(navigator.gpu\); recent Chrome/);
  });

  test('one that has no adapter, too', async () => {
    const none = await launch(['--disable-gpu', '--disable-software-rasterizer']);
    expect(await refusal(await none.newContext())).toMatch(/this browser gives no GPU: no WebGPU adapter works here/);
    await none.close();
  });
});
