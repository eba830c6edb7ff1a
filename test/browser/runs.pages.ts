// Runs on a page, as a person has them: started, watched, paused, reloaded, lost and found. The library is the built
// one, below a base path of its own.

import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { MemorySettings } from '../../src/browser/index.ts';
import { event, forget, launch, losses, open, SETTINGS, start, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
/** Empty storage for every test. */
let context: BrowserContext;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
});
afterAll(async () => {
  await browser.close();
  site.close();
});
beforeEach(async () => {
  context = await browser.newContext();
});
afterEach(() => context.close());

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

/** The losses of a run that nobody disturbs. */
let undisturbed: Promise<Map<number, number>> | undefined;
function reference(): Promise<Map<number, number>> {
  undisturbed ??= (async () => {
    const own = await browser.newContext();
    try {
      const page = await open(own, site.isolated);
      await train(page);
      await event(page, 'ended');
      return await losses(page);
    } finally {
      await own.close();
    }
  })();
  return undisturbed;
}

async function expectSame(found: Map<number, number>, least: number): Promise<void> {
  const wanted = await reference();
  expect(found.size).toBeGreaterThanOrEqual(least);
  for (const [step, loss] of found) expect(loss, `step ${step}`).toBe(wanted.get(step));
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
  expect(found.runs).toMatchObject([{ id, name: 'GPT-2 1 × 16', status: 'finished', savedStep: 120, open: 'no' }]);
});

test('paused, stepped, sampled from, given another budget: the losses are those of a run left alone', async () => {
  const page = await open(context, site.isolated);
  const id = await train(page);
  await event(page, 'step', 4);
  const at = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    await trainer.pause();
    const count = () => window.events.filter(({ type }) => type === 'step').length;
    const paused = count();
    await trainer.sample(id, { prompt: 'the ', tokens: 20 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const still = count();
    await trainer.step();
    await new Promise((resolve) => setTimeout(resolve, 100));
    const stepped = count();
    const { smallest } = await trainer.estimate(((await trainer.runs())[0] as never)['settings'], { gpu: 1 });
    await trainer.setMemory({ gpu: smallest });
    await trainer.goOn();
    return { paused, still, stepped };
  }, id);
  expect(at.still).toBe(at.paused);
  expect(at.stepped).toBe(at.paused + 1);
  await event(page, 'step', 38);
  await expectSame(await losses(page), 40);
});

describe('what cuts a run off costs no bit', () => {
  test('a reload', async () => {
    const page = await open(context, site.isolated);
    const id = await train(page);
    await event(page, 'saved', 9);
    await event(page, 'step', 12);
    await page.reload();
    await start(page);
    const runs = await page.evaluate(() => window.holdfast.trainer.runs());
    expect(runs).toMatchObject([{ id, status: 'running', open: 'no' }]);
    await page.evaluate((id) => window.holdfast.trainer.resume(id), id);
    const { firstStep } = await event(page, 'ready');
    expect(firstStep).toBeGreaterThanOrEqual(10);
    await event(page, 'ended');
    await expectSame(await losses(page), 40 - firstStep);
  });

  test('a GPU that is lost: without a budget the latest checkpoint, with one the last step', async () => {
    const page = await open(context, site.isolated);
    await train(page);
    await crashAfter(page, 4);
    expect(await event(page, 'recovered')).toMatchObject({ from: 'checkpoint' });
    await event(page, 'ended');
    await expectSame(await losses(page), 40);

    const { smallest } = await page.evaluate(
      (settings) => window.holdfast.trainer.estimate(settings, { gpu: 1 }),
      SETTINGS,
    );
    await forget(page);
    await train(page, { memory: { gpu: smallest } });
    await crashAfter(page, 4);
    expect(await event(page, 'recovered')).toMatchObject({ from: 'step' });
    await event(page, 'ended');
    await expectSame(await losses(page), 40);
    expect((await page.evaluate(() => window.events.filter(({ type }) => type === 'ready'))).length).toBe(1);
  });

  /** Ends the GPU process, as a driver's crash does, when a step was done; paused, so that there are steps to come. */
  async function crashAfter(page: Page, step: number): Promise<void> {
    await event(page, 'step', step);
    await page.evaluate(() => window.holdfast.trainer.pause());
    const session = await browser.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess');
    await session.detach();
    await page.evaluate(() => window.holdfast.trainer.goOn());
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
  await second.waitForFunction(async () => (await window.holdfast.trainer.runs())[0]?.open === 'no');
  await second.evaluate((id) => window.holdfast.trainer.resume(id, { steps: 20 }), id);
  await event(second, 'ended');
});

describe('room', () => {
  const limit = async (page: Page, bytes: number) => {
    const session = await context.newCDPSession(page);
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(site.isolated).origin, quotaSize: bytes });
  };

  test('a disk tier that does not fit is refused with what would; a checkpoint that does not leaves the last one whole', async () => {
    const page = await open(context, site.isolated);
    await limit(page, 300_000);
    await train(page, { memory: { gpu: 10_000_000, host: 0, disk: 10_000_000 } });
    expect((await event(page, 'failed')).message).toMatch(
      /^this site may keep 300 KB \(300000 bytes\) here and .* are in use: .* would fit, the disk tier needs .* set a lower disk limit/,
    );
    await forget(page);
    const id = await train(page);
    await event(page, 'saved');
    await limit(page, 200_000);
    expect((await event(page, 'failed')).message).toMatch(
      /^cannot write .*: this site may keep 200 KB .* would fit; remove runs/,
    );
    await limit(page, 3_000_000);
    const saved = (
      await page.evaluate((id) => window.holdfast.trainer.runs().then((all) => all.find((r) => r.id === id)), id)
    )?.savedStep;
    await forget(page);
    await page.evaluate((id) => window.holdfast.trainer.resume(id), id);
    expect((await event(page, 'ready')).firstStep).toBe(saved);
    await event(page, 'ended');
    await expectSame(await losses(page), 40 - (saved as number));
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
    await expectSame(await losses(page), 40);
  });
});

describe('without WebGPU', () => {
  const refusal = (context: BrowserContext) =>
    open(context, site.isolated).then(
      () => 'opened',
      (error: Error) => error.message.split('\n')[0],
    );

  test('a browser that has none is told so', async () => {
    await context.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'));
    expect(await refusal(context)).toMatch(/this browser shows no WebGPU \(navigator.gpu\); recent Chrome/);
  });

  test('one that has no adapter, too', async () => {
    const none = await launch(['--disable-gpu', '--disable-software-rasterizer']);
    expect(await refusal(await none.newContext())).toMatch(/this browser gives no GPU: no WebGPU adapter works here/);
    await none.close();
  });
});
