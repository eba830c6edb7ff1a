// What a page sees of the memory, and does to it, while a run trains: pictures of steps, other budgets, other policies,
// forks. None of it changes a bit.

import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { planHere } from '../../src/browser/estimate.ts';
import type { Estimate, MemorySettings, RunEvent, RunSettings, StepPicture } from '../../src/browser/index.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { decode, expand } from '../../src/engine/observe/chunk-codes.ts';
import { median } from '../../src/util/median.ts';
import { close, event, halted, launch, losses, newContext, open, SETTINGS, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
let context: BrowserContext;
/** An undisturbed run, its losses by step, what was estimated of it and what most of its steps reached, and the budgets that it could have. */
let first: string;
let undisturbed: Map<number, number>;
let speeds: { atOnce: Estimate; before: Estimate; after: Estimate; reached: number };
let budgets: { least: number; middle: number; most: number; chunkBytes: number };

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  context = await newContext(browser, site, { costs: false });
  const page = await open(context, site.isolated);
  const speed = () => page.evaluate((s) => window.holdfast.trainer.estimate(s), SETTINGS);
  // While it is measured, too.
  const [atOnce, before] = await page.evaluate(async (settings) => {
    const { trainer } = window.holdfast;
    const measured = trainer.estimate(settings);
    return Promise.all([trainer.estimate(settings, {}, undefined, 'known'), measured]);
  }, SETTINGS);
  first = await train(page, {});
  await event(page, 'ended');
  undisturbed = await losses(page);
  speeds = { atOnce, before, after: await speed(), reached: median(await stepSpeeds(page)) };
  budgets = await page.evaluate(async (settings) => {
    const { trainer } = window.holdfast;
    const { unlimited } = await trainer.estimate(settings);
    const { smallest } = await trainer.estimate(settings, { gpu: unlimited });
    const middle = Math.round((smallest + unlimited) / 2);
    const { fit } = await trainer.estimate(settings, { gpu: middle });
    return { least: smallest, middle, most: unlimited, chunkBytes: fit?.chunkBytes ?? 0 };
  }, SETTINGS);
  await page.close();
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});
afterEach(() => Promise.all(context.pages().map((page) => page.close())));

const stepSpeeds = (page: Page) =>
  page.evaluate(() => window.events.flatMap((e) => (e.type === 'step' ? [e.tokensPerSecond] : [])));

async function train(page: Page, memory: MemorySettings, change: Partial<RunSettings> = {}): Promise<string> {
  return page.evaluate(
    async ({ settings, memory, text }) => (await window.holdfast.trainer.start({ settings, memory, text })).id,
    { settings: { ...SETTINGS, ...change }, memory, text: TEXT },
  );
}

function expectSame(found: Map<number, number>, least: number): void {
  expect(found.size).toBeGreaterThanOrEqual(least);
  for (const [step, loss] of found) expect(loss, `step ${step}`).toBe(undisturbed.get(step));
}

test('a plan has the figures that Node has of the same run, and those of the estimate', async () => {
  const page = await open(context, site.isolated);
  const memory = { gpu: budgets.middle, host: 4e6 };
  const [plan, { fit, smallest, unlimited }] = await page.evaluate(
    async ([settings, memory]) => {
      const { trainer } = window.holdfast;
      return [await trainer.plan(settings, memory), await trainer.estimate(settings, memory)] as const;
    },
    [SETTINGS, memory] as const,
  );
  const { step, ...figures } = plan;
  expect(figures).toEqual(
    (await planHere(SETTINGS, memory, { limits: { ...DEFAULT_LIMITS, rates: typicalRates(true) } })).plan,
  );
  // The first run of its shape was not within a budget.
  expect(step).toMatchObject({ from: 'probe', seconds: expect.any(Number) });
  expect({ smallest, unlimited, peak: fit?.peak }).toEqual({
    ...{ smallest: plan.smallest, unlimited: plan.unlimited, peak: plan.tiers.gpu.all },
  });
});

test('an estimate knows the speed: by small steps before any run, of a run of its shape after it', () => {
  const { atOnce, before, after, reached } = speeds;
  expect(atOnce).toEqual({ ...before, room: atOnce.room, tokensPerSecond: undefined });
  expect(before.tokensPerSecond).toMatchObject({ from: 'probe', value: expect.any(Number) });
  expect(before.tokensPerSecond?.value).toBeGreaterThan(0);
  expect(after.tokensPerSecond?.from).toBe('run');
  expect(after.tokensPerSecond?.value).toBeCloseTo(reached, 3);
  // Six for each parameter of a matrix and token, at least.
  expect(after.flopsPerStep).toBeGreaterThan(6 * 12 * 16 * 16 * SETTINGS.batch * SETTINGS.seq);
});

type Report = Extract<RunEvent, { type: 'memory' }>['report'];

test('a picture of a step has every moment of every chunk, and the bytes that the ledger counted', async () => {
  const page = await open(context, site.isolated);
  // Checkpoints on the way would be read over the same link. In the least memory, activations move.
  const recovery = 'checkpoint';
  const gpu = await page.evaluate(
    async ([settings, memory]) => (await window.holdfast.trainer.estimate(settings, memory)).smallest,
    [SETTINGS, { gpu: budgets.most, recovery }] as const,
  );
  const memory = { gpu, recovery } as const;
  await halted(page, 5, { ...SETTINGS, saveEvery: 0 }, memory);
  const [before, after, picture] = await page.evaluate(async () => {
    const { trainer } = window.holdfast;
    const stepped = async () => {
      const heard = window.events.length;
      await trainer.step();
      // Behind the step: the memory of the one before may come only now.
      await window.until(() => {
        const since = window.events.slice(heard);
        const at = since.findIndex(({ type }) => type === 'step');
        return at >= 0 && since.slice(at).some(({ type }) => type === 'memory');
      });
      return window.events.findLast(({ type }) => type === 'memory');
    };
    const before = await stepped();
    const picture = trainer.recordStep();
    return [before, await stepped(), await picture] as unknown as [{ report: Report }, { report: Report }, StepPicture];
  });
  const { history, bytes, planned, step, milliseconds, bound } = picture;
  expect(history.operators.length).toBeGreaterThan(20);
  for (const runs of [...history.chunks, history.staged]) expect(expand(runs)).toHaveLength(history.operators.length);
  // Beside the chunks, activations go down and come back.
  const grown = (name: 'h2dBytes' | 'd2hBytes' | 'activationBytes') =>
    after.report.link[name] - before.report.link[name];
  const activations = grown('activationBytes') / 2;
  expect(activations).toBeGreaterThan(0);
  expect(picture.offloaded).toBe(activations);
  // They are seen below the GPU meanwhile, and on it again.
  const seen = new Set(
    history.activations.codes.flatMap((runs) => expand(runs).map((code) => decode(code).activation)),
  );
  expect([...seen]).toEqual(expect.arrayContaining(['absent', 'kept', 'back']));
  expect(seen.has('leaving') || seen.has('host')).toBe(true);
  expect(bytes.h2d + activations).toBe(grown('h2dBytes'));
  expect(bytes.d2h + activations).toBe(grown('d2hBytes'));
  // Nothing is kept for recovery: the step moves what was planned.
  expect(bytes).toEqual({ ...planned, diskRead: 0, diskWrite: 0 });
  expect(bound?.lp).toBeLessThanOrEqual(planned.h2d + planned.d2h);
  expect(picture).toMatchObject({ budget: gpu, policy: 'planned' });
  expect(milliseconds).toBeGreaterThan(0);
  expect((await losses(page)).has(step)).toBe(true);
  await page.evaluate(() => window.holdfast.trainer.unpause());
  await event(page, 'ended');
  expect(await page.evaluate(() => window.holdfast.trainer.recordStep().catch((error) => error.message))).toMatch(
    /no run is open/,
  );
  expectSame(await losses(page), 40);
});

test('a picture whose bound cannot be solved comes without it', async () => {
  await context.route(/highs.*\.(js|wasm)$/, (route) => route.abort());
  try {
    const page = await open(context, site.isolated);
    await halted(page, 5, SETTINGS, { gpu: budgets.least });
    const picture = await page.evaluate(async () => {
      const picture = window.holdfast.trainer.recordStep();
      await window.holdfast.trainer.step();
      return picture;
    });
    expect(picture).toMatchObject({ budget: budgets.least, policy: 'planned' });
    expect(picture?.bound).toBeUndefined();
  } finally {
    await context.unrouteAll();
  }
});

test('another budget on the way, and another policy: no bit changes; one that is too small is refused', async () => {
  const page = await open(context, site.isolated);
  const id = await halted(page, 5, SETTINGS, { gpu: budgets.middle });
  const found = await page.evaluate(
    async ({ id, least, middle, chunkBytes }) => {
      const { trainer } = window.holdfast;
      const readied = () => window.events.filter(({ type }) => type === 'ready').length;
      const run = async () => (await trainer.runs()).find((run) => run.id === id);
      /** The first steps within another budget are warm-up. */
      const picture = async () => {
        const found = trainer.recordStep();
        for (let i = 0; i < 3; i++) await trainer.step();
        return found;
      };
      // Room for the same chunks, and for fewer of them.
      const budget = middle - chunkBytes;
      // Asked for at once: a run that goes on meanwhile is soon at its end.
      await Promise.all([trainer.unpause(), trainer.setMemory({ gpu: budget }), trainer.pause()]);
      const smaller = await picture();
      const live = readied();
      const refused = await trainer.setMemory({ gpu: 1000 }).catch((error: Error) => error.message);
      const kept = (await run())?.memory;
      const report = await (await trainer.report(id)).text();
      await trainer.setMemory({ gpu: budget, policy: 'LRU' });
      const lru = await picture();
      await trainer.setMemory({ gpu: least, policy: 'LRU' });
      const policies = await trainer.comparePolicies((await run())?.settings as never, { gpu: least });
      const activations = await trainer.compareActivations((await run())?.settings as never, { gpu: least });
      const last = (await run())?.memory;
      await trainer.unpause();
      return { smaller, live, refused, kept, budget, lru, last, policies, activations, report };
    },
    { id, ...budgets },
  );
  expect(found.live).toBe(1);
  expect(found.smaller).toMatchObject({ budget: found.budget, policy: 'planned' });
  expect(found.smaller?.history.slots).toBeLessThan(found.smaller?.history.chunks.length as number);
  expect(found.refused).toMatch(new RegExp(`1.00 KB of GPU memory are too little: ${budgets.least} bytes`));
  expect(found.report).toMatch(/<title>gpt2, [\d,]+ parameters<[\s\S]*"Loss"/);
  expect(found.kept).toEqual({ gpu: found.budget });
  expect(found.lru).toMatchObject({ budget: found.budget, policy: 'LRU' });
  expect(found.last).toEqual({ gpu: budgets.least, policy: 'LRU' });
  const moved = found.policies.policies.map(({ h2d, d2h }) => h2d + d2h);
  for (const bytes of moved) expect(bytes).toBeGreaterThanOrEqual(Math.max(found.policies.lp, moved[0] ?? 0));
  const [own, ...others] = found.activations;
  expect(own).toMatchObject({ name: 'Holdfast', step: { slowdown: expect.any(Number), moved: expect.any(Number) } });
  // Without what writes text between steps.
  expect(own?.smallest).toBeLessThanOrEqual(budgets.least);
  expect(others.map(({ name }) => name)).toContain('recompute all');
  for (const { smallest, step } of others) expect(step !== undefined).toBe(smallest <= budgets.least);
  await event(page, 'step', 38);
  expectSame(await losses(page), 40);
});

test('of budgets that are asked for at the same time one is taken after the other, and the last is in force', async () => {
  const page = await open(context, site.isolated);
  const id = await train(page, {}, { steps: 100_000 });
  await event(page, 'step');
  const { least, middle } = budgets;
  const taken = await page.evaluate(
    async ([least, middle]) => {
      const { trainer } = window.holdfast;
      const wanted = [{ gpu: middle }, { gpu: least }, { gpu: middle, host: 1e9 }];
      return Promise.all(wanted.map((memory) => trainer.setMemory(memory).then(() => 'taken', String)));
    },
    [least, middle] as const,
  );
  expect(taken).toEqual(['taken', 'taken', 'taken']);
  const memory = await page.evaluate(
    async (id) => (await window.holdfast.trainer.runs()).find((run) => run.id === id)?.memory,
    id,
  );
  expect(memory).toEqual({ gpu: middle, host: 1e9 });
  await page.evaluate(() => window.holdfast.trainer.stop());
});

test('a pause that is asked for while other budgets are taken is one of the run that has them', async () => {
  const page = await open(context, site.isolated);
  const id = await train(page, {}, { steps: 100_000 });
  await event(page, 'step');
  const { least, middle } = budgets;
  const asked = await page.evaluate(
    async ([least, middle]) => {
      const { trainer } = window.holdfast;
      const moved = trainer.setMemory({ gpu: middle });
      const again = trainer.setMemory({ gpu: least, host: 1e9 });
      return Promise.all([moved, again, trainer.pause()].map((asked) => asked.then(() => 'done', String)));
    },
    [least, middle] as const,
  );
  expect(asked).toEqual(['done', 'done', 'done']);
  const record = await page.evaluate(
    async (id) => (await window.holdfast.trainer.runs()).find((run) => run.id === id),
    id,
  );
  expect(record).toMatchObject({ status: 'paused', open: 'here', memory: { gpu: least, host: 1e9 } });
  await page.evaluate(() => window.holdfast.trainer.stop());
});

test('a fork has the history of its run until there, and its own settings from there on', async () => {
  const page = await open(context, site.isolated);
  const message = await page.evaluate(
    (first) => window.holdfast.trainer.fork(first, { changes: { steps: 40 } }).catch((error: Error) => error.message),
    first,
  );
  expect(message).toBe('the fork begins after 40 steps and would end after 40; give it more');
  const fork = await page.evaluate(
    (first) => window.holdfast.trainer.fork(first, { name: 'slower', changes: { steps: 45, lr: 0.002 } }),
    first,
  );
  expect(fork).toMatchObject({ name: 'slower', status: 'stopped', savedStep: 40, open: 'no' });
  expect(fork.forkedFrom).toMatchObject({ id: first, step: 40 });
  await page.evaluate((first) => window.holdfast.trainer.remove(first), first);
  await page.evaluate((id) => window.holdfast.trainer.resume(id), fork.id);
  await event(page, 'ended');
  const { history, report } = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const file = await trainer.report(id);
    return { history: await trainer.history(id), report: { name: file.name, text: await file.text() } };
  }, fork.id);
  expect(history.steps).toHaveLength(45);
  expectSame(new Map(history.steps.slice(0, 40).map(({ step, loss }) => [step, loss])), 40);
  expect(history.steps[40]?.lr).toBeLessThan(0.002);
  expect(report.name).toBe('slower.html');
  expect(report.text).toMatch(/<title>gpt2, [\d,]+ parameters</);
});
