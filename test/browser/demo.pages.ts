// The demo page as a person has it: with the keyboard, with the mouse, in a narrow window, below any base path. What
// the library does is tested beside this; here is what the page shows of it, asks of it and says.

import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { POLICY_WORDS } from '../../demo/memory/words.ts';
import { BROWSER } from '../../scripts/browsers.mjs';
import type { PolicyName } from '../../src/engine/compile/schedule.ts';
import { ACTIVATION_POLICIES } from '../../src/graph/policies/index.ts';
import { ORDERS } from '../../src/memory/plan/policies.ts';
import { parseBytes } from '../../src/util/bytes.ts';
import { close, launch, newContext, PATIENCE_MS, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';
import {
  download,
  drop,
  fillSettings,
  listed,
  losses,
  misdeeds,
  overflow,
  prepare,
  ready,
  replace,
  row,
  SMALL,
  says,
  shownStep,
  steps,
  tabTo,
  visit,
} from './visitor.ts';

let browser: Browser;
let site: Site;
let url: string;
/** One storage for all tests: kernels are measured once, so that all runs make the same choices. */
let context: BrowserContext;
/** Loss by step of an undisturbed run. */
let undisturbed: Map<number, number>;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  url = `${site.isolated}demo/`;
  context = await newContext(browser, site);
  const page = await ready(context, url);
  await prepare(page, TEXT);
  await page.click('#train');
  await says(page, /^Done after 120 steps/);
  undisturbed = await losses(page);
  await page.close();
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});
afterEach(async () => {
  await Promise.all(context.pages().map((page) => page.close()));
  expect(misdeeds.splice(0)).toEqual([]);
});

/** No machine is so busy that it ends before a person has done what a test does. */
const ENDLESS = { ...SMALL, steps: 100_000 };

async function expectFits(page: Page): Promise<void> {
  for (const width of [320, 360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
}

/** Where the system sets all colours, bars and swatches are seen all the same, and what is chosen is told apart. */
async function expectSeen(page: Page): Promise<void> {
  await page.emulateMedia({ forcedColors: 'active' });
  const found = await page.evaluate(() => {
    const colors = (selector: string) =>
      [...document.querySelectorAll<HTMLElement>(selector)]
        .filter(({ offsetWidth }) => offsetWidth > 0)
        .map((element) => getComputedStyle(element).backgroundColor);
    return {
      paper: colors('body'),
      seen: colors('.memory-view .track, .memory-view .track i:first-child, .chart figcaption i'),
      chosen: colors('.choice input:checked + span'),
    };
  });
  await page.emulateMedia({ forcedColors: 'none' });
  expect(found.seen.length).toBeGreaterThan(20);
  for (const color of [...found.seen, ...found.chosen]) expect(found.paper).not.toContain(color);
}

test('by keyboard alone: a text is pasted, a model set, trained and asked to write', async () => {
  const page = await ready(context, url);
  await expectFits(page);
  await tabTo(page, 'input[name=text-kind]');
  await page.keyboard.press('ArrowRight');
  await tabTo(page, '#paste');
  await page.keyboard.insertText(TEXT);
  await tabTo(page, '#settings summary');
  await page.keyboard.press('Enter');
  for (const [name, value] of Object.entries(SMALL)) {
    await tabTo(page, `#field-${name}`);
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type(String(value));
  }
  await tabTo(page, '#field-schedule');
  await page.keyboard.type('con');
  expect(await page.inputValue('#field-schedule')).toBe('constant');
  await tabTo(page, '#train', 'Shift+Tab');
  await page.keyboard.press('Enter');
  await says(page, /^Done after 120 steps/);
  await expect.poll(async () => Number(await page.textContent('#now-loss'))).toBeLessThan(2.6);
  expect(await page.textContent('#sample-title')).toBe('after 120 steps');
  expect((await page.textContent('#sample'))?.length).toBeGreaterThan(50);

  await tabTo(page, '#prompt');
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.type('the small ');
  // What is typed into may be scrolled to.
  await page.locator('#next').scrollIntoViewIfNeeded();
  await page.locator('#next-prompt', { hasText: /^the small $/ }).waitFor();
  await tabTo(page, '#length');
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.type('30');
  await page.keyboard.press('Enter');
  await page.locator('#sample-title', { hasText: 'asked for, at temperature 0.7' }).waitFor();
  // Its last piece may come behind the word that it is written.
  await expect.poll(() => page.textContent('#sample')).toMatch(/^the small [\s\S]{30}$/);
  const shares = (await page.locator('#next output').allTextContents()).map((text) => Number.parseFloat(text));
  expect(shares).toHaveLength(8);
  expect(shares).toEqual(shares.toSorted((a, b) => b - a));
  expect(shares[0]).toBeGreaterThan(100 / 256);
  expect(await losses(page)).toEqual(undisturbed);
});

test('reloaded, paused, stepped, squeezed, stopped: the losses are those of a run left alone', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, ENDLESS);
  await page.click('#train');
  await says(page, /^Training/);
  await steps(page, 25);
  await page.reload();
  await says(page, /^Going on from step [1-9]\d*0/);
  await page.click('#pause:enabled');
  const [, paused] = /^Paused after (\d+) steps/.exec(await says(page, /^Paused after/)) ?? [];
  expect(await shownStep(page)).toBe(Number(paused));
  await page.click('#step');
  await steps(page, Number(paused) + 1);
  expect(await shownStep(page)).toBe(Number(paused) + 1);

  const second = await visit(context, url);
  await says(second, /is training in another tab/);
  expect(await second.locator('#runs > li').first().textContent()).toContain('open in another tab');
  await second.close();

  const fits = await nextPicture(page);
  expect(fits.summary).toContain('Everything fits on the GPU');
  await opened(page, () => page.press('#budget:enabled', 'Home'));
  const least = await page.textContent('#budget-value');
  const squeezed = await nextPicture(page);
  expect(squeezed.summary).toContain(`within ${least}`);
  expect(squeezed.summary).toMatch(/Chunks came to the GPU \d+ times; [\d.]+ [KM]?B went up and [\d.]+ [KM]?B down/);
  // At the least there is room for few activations: some go below, or are made again.
  expect(squeezed.summary).toMatch(
    /Of \d+ activations \d+ are kept for the backward pass, \d+ are given up and made again/,
  );
  expect(squeezed.figures).toContain('activations');
  expect(squeezed.figures).toMatch(/The schedule moves [\d.]+ [KM]?B of chunks; no schedule moves less than/);
  await expectFits(page);

  await page.locator('.limits summary').click();
  await opened(page, () => page.selectOption('#policy', 'LRU'));
  expect((await nextPicture(page)).summary).toContain('policy LRU');

  await page.click('#pause');
  await steps(page, (await shownStep(page)) + 1);
  await page.fill('#budget', '50');
  const more = await page.textContent('#budget-value');
  expect(more).not.toBe(least);
  await page.locator('#log li', { hasText: `GPU memory: ${more}` }).waitFor({ state: 'attached' });
  await says(page, /^Training$/);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
  await (await row(page)).getByRole('button', { name: 'Go on' }).click();
  await says(page, /^Going on from step/);
  await stopAfter(page, 80);
  await expectUndisturbed(page, 80);
});

test('the model that the page proposes learns the text that it proposes', async () => {
  const page = await ready(context, url);
  await page.click('#train');
  await says(page, /^Training/);
  await steps(page, 20);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
  // Of 256 bytes that are equally likely it would be 5.5.
  await expect.poll(async () => Number(await page.textContent('#now-loss'))).toBeLessThan(4.5);
  expect((await losses(page)).size).toBe(await shownStep(page));
  // As this run was, not about.
  await page.locator('#fact-speed', { hasText: /^[\d.]+k? tokens\/s$/ }).waitFor();
});

test('a budget that is dragged down as soon as Train was pressed holds', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, ENDLESS);
  await page.locator('#budget:enabled').waitFor();
  await page.click('#train');
  // Before there is a run, the budget would be that of the form.
  await page.locator('#stop').waitFor();
  const shown = await page.evaluateHandle(() => {
    const value = document.getElementById('budget-value') as HTMLElement;
    const texts: (string | null)[] = [];
    new MutationObserver(() => texts.push(value.textContent)).observe(value, {
      childList: true,
      characterData: true,
      subtree: true,
    });
    return texts;
  });
  await page.press('#budget', 'Home');
  await page.locator('#log li', { hasText: /GPU memory: [\d.]+ [KM]?B$/ }).waitFor({ state: 'attached' });
  await stopAfter(page, 50);
  const least = await page.textContent('#budget-value');
  expect(least).toMatch(/^[\d.]+ [KM]?B$/);
  expect(await shown.jsonValue()).toEqual([least]);
  await expectUndisturbed(page, 50);
});

test('within a budget the page says where bytes lie and what moves, and sets each policy beside its own', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, ENDLESS);
  await page.click('#train');
  await says(page, /^Training/);
  await page.click('#pause:enabled');
  await says(page, /^Paused after/);
  await opened(page, () => page.fill('#budget:enabled', '40'));
  const budget = (await page.textContent('#budget-value')) ?? '';

  await page.click('#plan summary');
  const tiers = page.locator('#plan tbody tr');
  await expect.poll(() => tiers.locator('th').allTextContents()).toEqual(['GPU', 'host memory']);
  const peak = (await tiers.first().locator('td').last().textContent()) ?? '';
  expect(parseBytes(bytesIn(peak))).toBeLessThanOrEqual(1.005 * parseBytes(bytesIn(budget)));
  const told = await page.textContent('#plan');
  expect(told).toContain(`Its peak on the GPU is ${peak}.`);
  expect(told).toMatch(/It computes [\d.]+ MFLOP, .* to recompute activations\. Here that takes [\d.]+ m?s,/);

  const chunks = page.locator('.policies:not(.activation-policies) .row');
  const activations = page.locator('.activation-policies .row');
  await activations.first().waitFor();
  await expect(chunks.locator('.name').allTextContents()).resolves.toEqual([
    'Holdfast’s planner (running)',
    ...Object.keys(ORDERS).map((name) => POLICY_WORDS[name as PolicyName]),
  ]);
  await expect(activations.locator('.name').allTextContents()).resolves.toEqual([
    'Holdfast',
    ...ACTIVATION_POLICIES.map(({ name }) => name),
  ]);
  // A bar is as long as its time is, against the longest; what does not fit has none, and says what it needs.
  const rows = await activations.evaluateAll((all) =>
    all.map((row) => ({
      said: row.querySelector('.value')?.textContent ?? '',
      bar: Number.parseFloat(row.querySelector<HTMLElement>('.track i')?.style.width ?? ''),
      paper: (row as HTMLElement).title,
    })),
  );
  const slowdowns = rows.map(({ said }) => Number(/^([\d.]+)×\s*[\d.]+ [KMG]?B\s*\+\d+ %$/.exec(said)?.[1] ?? 0));
  expect(slowdowns[0]).toBeGreaterThanOrEqual(1);
  const most = Math.max(...slowdowns);
  for (const [i, { said, bar, paper }] of rows.entries()) {
    if (slowdowns[i] === 0) expect(said).toMatch(/^needs [\d.]+ [KMG]?B$/);
    expect(Math.abs(bar - (100 * (slowdowns[i] ?? 0)) / most), said).toBeLessThan(1);
    expect(paper !== '', said).toBe(i > 0);
  }
  await expectFits(page);
  await expectSeen(page);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after/);
});

const bytesIn = (text: string): string => text.replace(' ', '');

/** Of a run without an end. */
async function stopAfter(page: Page, least: number): Promise<void> {
  await steps(page, least);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
}

/** In so many steps. */
async function expectUndisturbed(page: Page, least: number): Promise<void> {
  const first = (losses: Map<number, number>) => [...losses].filter(([step]) => step < least);
  expect(first(undisturbed)).toHaveLength(least);
  expect(first(await losses(page))).toEqual(first(undisturbed));
}

/** Waits until a paused run was opened anew for what is done. */
async function opened(page: Page, work: () => Promise<unknown>): Promise<void> {
  const preparing = page.locator('#log li', { hasText: 'Preparing: compiling' });
  const before = await preparing.count();
  await work();
  await preparing.nth(before).waitFor({ state: 'attached' });
  // Behind that: a step that was asked for before may be told as the run is closed.
  await page.waitForFunction(() => {
    const said = [...document.querySelectorAll('#log li')].map(({ textContent }) => textContent ?? '');
    return /Paused/.test(said.find((line) => /Preparing: compiling|Paused after \d+ steps$/.test(line)) ?? '');
  });
}

/** Of a paused run: steps on until the view shows a step that is taken from now on. Pictures of earlier ones may still come. */
async function nextPicture(page: Page): Promise<{ summary: string; figures: string }> {
  const past = await shownStep(page);
  const live = page.locator('.memory-view .controls button', { hasText: 'Live' });
  const began = performance.now();
  // However long a picture takes.
  while (performance.now() - began < PATIENCE_MS) {
    // What plays is seen to its end at once.
    await page.press('.memory-view .timeline', 'End');
    if (await live.isEnabled()) await live.click();
    await page.click('#step');
    await page.waitForTimeout(300);
    const step = Number(/^step (\d+)/.exec((await page.textContent('.memory-view .step')) ?? '')?.[1]);
    if (!(step > past)) continue;
    const [summary, figures] = await Promise.all(
      ['#memory-view-summary', '.memory-view .figures'].map((part) => page.textContent(part)),
    );
    return { summary: summary ?? '', figures: figures ?? '' };
  }
  throw new Error(`no picture of a step after ${past}`);
}

test('runs: forked, compared, renamed, removed, exported and dropped back in', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, { ...SMALL, steps: 40 });
  await page.click('#train');
  await says(page, /^Done after 40 steps/);
  await listed(page);
  const list = page.locator('#runs > li');
  const count = await list.count();
  await (await row(page)).getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('the first');
  await page.keyboard.press('Enter');
  await list.filter({ hasText: 'the first' }).waitFor();
  const zip = await download(page, await row(page));

  await (await row(page)).getByRole('button', { name: 'Fork' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('the fork');
  await replace(page.getByLabel('Steps in all'), '60');
  await page.keyboard.press('Enter');
  await says(page, /^“the fork” goes on from step 40 of “the first”/);
  await (await row(page)).getByRole('button', { name: 'Go on' }).click();
  await says(page, /^Done after 60 steps/);
  await listed(page);
  await (await row(page, 1)).getByLabel('Compare').check();
  const caption = page.locator('#chart-loss figcaption');
  await caption.filter({ hasText: 'the first' }).waitFor();
  expect(await caption.textContent()).toMatch(/^Losseach step .*smoothed .*validation .*the first \d/);

  await (await row(page)).getByRole('button', { name: 'Remove' }).click();
  await page.keyboard.press('Escape');
  expect(await list.count()).toBe(count + 1);
  await (await row(page)).getByRole('button', { name: 'Remove' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Remove' }).click();
  await list.filter({ hasText: 'the fork' }).waitFor({ state: 'detached' });
  await expect.poll(() => page.textContent('#now-step')).toBe('–');
  expect(await page.isDisabled('#write')).toBe(true);

  await drop(page, 'broken.zip', zip.subarray(0, zip.length / 2));
  await says(page, /broken.zip is no zip file, or it is cut short/);
  expect(await list.count()).toBe(count);
  await drop(page, 'dropped.zip', zip);
  await says(page, /^Imported “dropped”/);
  await list
    .first()
    .filter({ hasText: /^droppedimported · 40 of 40 steps/ })
    .waitFor();
});

test('a tab that is come back to shows what others did', async () => {
  const [first, second] = [await ready(context, url), await ready(context, url)];
  // The list is read when the page can train already.
  await second.locator('#runs > li').first().waitFor();
  await prepare(first, TEXT, { ...SMALL, steps: 20 });
  await first.click('#train');
  await says(first, /^Done after 20 steps/);
  await listed(first);
  const count = (page: Page) => page.locator('#runs > li').count();
  expect(await count(second)).toBe((await count(first)) - 1);
  await second.evaluate(() => dispatchEvent(new Event('focus')));
  await second.waitForFunction((count) => document.querySelectorAll('#runs > li').length === count, await count(first));
});

test.runIf(BROWSER === 'chromium')(
  'curves whose drawing does not load say so, and are drawn after a reload',
  async () => {
    // Before there is a page: one that is loaded draws the run that it shows.
    const drawing = /uPlot.*\.js$/;
    await context.route(drawing, (route) => route.abort());
    const page = await ready(context, url);
    await prepare(page, TEXT, ENDLESS);
    await page.click('#train');
    await page.locator('#chart-loss figcaption', { hasText: 'what draws it did not load: reload the page' }).waitFor();
    // It says so at once: what is loaded anew takes up a run that is there by then.
    await says(page, /^Training/);
    await context.unroute(drawing);
    await page.reload();
    await page.locator('#chart-loss .uplot').waitFor();
    await stopAfter(page, 5);
    for (const misdeed of misdeeds.splice(0)) expect(misdeed).toMatch(/ERR_FAILED/);
  },
);

test('a text that is none, or too short, is refused in words', async () => {
  const page = await ready(context, url);
  await drop(page, 'photo.txt', Uint8Array.of(80, 0, 1, 2));
  await page.locator('#text-note', { hasText: 'photo.txt: seems to be a binary file, and no text' }).waitFor();
  await drop(page, 'paper.txt', new TextEncoder().encode('%PDF-1.7\n'));
  const paper = 'paper.txt: is a PDF document, which is not read; write its text: pdftotext "paper.txt"';
  await page.locator('#text-note.problem', { hasText: paper }).waitFor();
  await prepare(page, 'too short');
  await page.click('#train');
  await says(page, /^The text has 9 bytes; a context of 16 needs 170/);
  await drop(page, 'b.txt', new TextEncoder().encode(TEXT));
  await page.locator('#text-note', { hasText: 'b.txt: ' }).waitFor();
  await drop(page, 'typo.jsonl', new TextEncoder().encode('{"text": "a" "b"}\n{"text": "b"}\n'.repeat(99)));
  const damaged = 'typo.jsonl:1: not JSON';
  await page.locator('#text-note.problem', { hasText: damaged }).waitFor();
  await page.click('#train');
  await says(page, new RegExp(`^${damaged}`));
  await drop(page, 'pairs.jsonl', new TextEncoder().encode('{"sentence": "a", "label": 1}\n'.repeat(99)));
  const labelled = 'pairs.jsonl:1 has fields "sentence, label": a classifier learns such records';
  await page.locator('#text-note.problem', { hasText: labelled }).waitFor();
  await page.click('#train');
  await says(page, new RegExp(`^${labelled}`));
});

test('every control has a name, and headings are in order', async () => {
  const page = await ready(context, url);
  // From here on nothing comes to the page by itself.
  await page.locator('#runs > li.shown').waitFor();
  for (const summary of await page.locator('details > summary').all()) {
    if (await summary.isVisible()) await summary.click();
  }
  const { nameless, levels } = await page.evaluate(() => {
    const referred = (element: Element) =>
      (element.getAttribute('aria-labelledby') ?? '')
        .split(' ')
        .map((id) => (id ? document.getElementById(id)?.textContent : ''))
        .join('');
    const named = (element: Element) =>
      [
        element.getAttribute('aria-label'),
        referred(element),
        ...[...((element as HTMLInputElement).labels ?? [])].map(({ textContent }) => textContent),
        ...(element.matches('button, summary') ? [element.textContent] : []),
      ].some((name) => name?.trim());
    const controls = [
      ...document.querySelectorAll('input, select, textarea, button, summary, [role=slider], [tabindex="0"]'),
    ];
    const headings = [...document.querySelectorAll('h1, h2, h3, h4')].filter((heading) => heading.checkVisibility());
    return {
      nameless: controls.filter((control) => !named(control)).map(({ outerHTML }) => outerHTML),
      levels: headings.map(({ tagName }) => Number(tagName[1])),
    };
  });
  expect(nameless).toEqual([]);
  expect(levels[0]).toBe(1);
  for (const [i, level] of levels.entries()) expect(level).toBeLessThanOrEqual((levels[i - 1] ?? 0) + 1);
});

test('a plain file server: the page isolates itself with one reload', async () => {
  const own = await browser.newContext();
  const page = await own.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  let loads = 0;
  page.on('load', () => loads++);
  await page.goto(`${site.plain}demo/`);
  // Not "none that is disabled": so it is, too, before the second load has come to the button.
  await page.waitForFunction(() => globalThis.crossOriginIsolated && document.querySelector('#train:enabled'));
  await expect.poll(() => loads).toBe(2);
  await own.close();
});

test('where nothing isolates the page it trains all the same; of a task it says what is solved', async () => {
  const own = await newContext(browser, site, { serviceWorkers: 'block' });
  const page = await ready(own, `${site.plain}demo/`);
  expect(await page.evaluate(() => globalThis.crossOriginIsolated)).toBe(false);
  await page.getByRole('radio', { name: 'A task' }).check();
  await page.selectOption('#task', 'sorting');
  await fillSettings(page, { ...SMALL, context: 32, steps: 20 });
  await page.click('#train');
  await says(page, /^Done after 20 steps/);
  await expect.poll(() => page.textContent('#now-validated')).toMatch(/^\d+ % of unseen right$/);
  await page.locator('#chart-accuracy').waitFor();
  await own.close();
});

test.runIf(BROWSER === 'chromium')('without WebGPU, an adapter, or files, the page says what is missing', async () => {
  const blind = await browser.newContext();
  await blind.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'));
  expect(await obstacle(blind)).toMatch(/This browser shows no WebGPU.*Recent Chrome.*npm start/);
  await blind.close();
  const none = await launch(['--disable-gpu', '--disable-software-rasterizer']);
  expect(await obstacle(await none.newContext())).toMatch(/Training cannot start here.*gives no GPU.*about:gpu/);
  await none.close();
  // As a private window of Firefox does.
  const secret = await browser.newContext();
  await secret.route('**/trainer*.js', async (route) => {
    const refuse = "navigator.storage.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));";
    const response = await route.fetch();
    await route.fulfill({ response, body: `${refuse}\n${await response.text()}` });
  });
  expect(await obstacle(secret)).toMatch(/Training cannot start here.*may keep no files.*Private windows.*npm start/);
  await secret.close();
});

/** What keeps the page from training there. */
async function obstacle(context: BrowserContext): Promise<string> {
  const page = await visit(context, url);
  await page.locator('#obstacle').waitFor();
  expect(await page.isDisabled('#train')).toBe(true);
  return ((await page.textContent('#obstacle')) ?? '').replaceAll(/\s+/g, ' ');
}
