// Runs from strangers: zips whose names, texts and figures are scripts, imported, looked at, and their reports opened.
// Whether a file is refused is another test's business; here, nothing that stands in one ever runs, shows as markup or
// reaches this site's files. And what a report can do where it is shown, which is draw.

import { strFromU8, strToU8, unzipSync, zipSync } from 'fflate';
import type { Browser, BrowserContext, Frame, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { field } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { close, launch, newContext, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';
import { download, drop, misdeeds, prepare, ready, row, SMALL, says } from './visitor.ts';

let browser: Browser;
let site: Site;
/** The files of an honest run's zip. */
let honest: Record<string, Uint8Array>;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  const context = await newContext(browser, site);
  const page = await ready(context, `${site.isolated}demo/`);
  await prepare(page, TEXT, { ...SMALL, steps: 20, sampleEvery: 10 });
  await page.click('#train');
  await says(page, /^Done after 20 steps/);
  honest = unzipSync(await download(page, await row(page)));
  await context.close();
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});

/** Each would set a mark, ask the server for something, and speak up. */
const RUN = "globalThis.owned=1;fetch('owned');alert(1)";
const EVIL = `</script></title></style></pre>"'><script>${RUN}</script><img src="owned" onerror="${RUN}"><svg onload="${RUN}">`;

type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** With the script wherever `pick` says so; a list is as one of its members. */
function planted(value: Json, pick: (path: string, value: Json) => boolean, path = ''): Json {
  if (typeof value !== 'object' || value === null) return pick(path, value) ? EVIL : value;
  if (Array.isArray(value)) return value.map((member) => planted(member, pick, `${path}[]`));
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, planted(inner, pick, path ? `${path}.${name}` : name)]),
  );
}

function hostile(pick: (path: string, value: Json) => boolean, more: Record<string, Json> = {}): Uint8Array {
  const read = (name: string) => JSON.parse(strFromU8(field(honest, name))) as Record<string, Json>;
  const state = { ...(planted(read('holdfast_state.json'), pick) as object), ...more };
  // Files of a stranger have the right checksums, or none.
  const { SHA256SUMS: _, ...files } = honest;
  return zipSync({
    ...files,
    'config.json': strToU8(
      JSON.stringify(planted(read('config.json'), (path, value) => pick(`config.${path}`, value))),
    ),
    'holdfast_state.json': strToU8(JSON.stringify(state)),
  });
}

/** What is read before anything is shown: with the script in them, no file gets so far. */
const KINDS = ['format', 'config.model_type', 'settings.config.model_type'];

const CASES: readonly [string, () => Uint8Array][] = [
  ['texts', () => hostile((path) => /^(adapter|settings\.data\[\]|history\.samples\[\]\.text)$/.test(path))],
  ['steps of samples', () => hostile((path) => path === 'history.samples[].step')],
  ['steps', () => hostile((path) => /^history\.\w+\[\]\.step$/.test(path))],
  ['figures', () => hostile((path) => /^history\.\w+\[\]\.\w+$/.test(path))],
  ['every string', () => hostile((path, value) => typeof value === 'string' && !KINDS.includes(path))],
  ['settings', () => hostile((path) => /^settings\.\w+$/.test(path))],
  [
    'names of fields',
    () => hostile(() => false, { [EVIL]: EVIL, earlier: [{ settings: { [EVIL]: EVIL }, until: EVIL }] }),
  ],
  ['everything', () => hostile(() => true)],
];

/** A page on which nothing may run; `done` says what did. */
async function watched(context: BrowserContext): Promise<{ page: Page; done: () => Promise<string[]> }> {
  const found: string[] = [];
  context.on('request', (request) => {
    if (/owned/.test(request.url())) found.push(`a request to ${request.url()}`);
  });
  context.on('dialog', (dialog) => {
    found.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  const page = await ready(context, `${site.isolated}demo/`);
  const done = async () => {
    for (const open of context.pages()) {
      for (const frame of open.frames()) {
        const owned = await frame.evaluate(
          () => 'owned' in globalThis || document.querySelector('[onerror],[onload]') !== null,
        );
        if (owned) found.push(`script or markup in ${frame.url()}`);
      }
    }
    return found;
  };
  return { page, done };
}

/** Presses Report, and waits for what comes of it: the report in its frame, or what is said instead. */
async function askForReport(page: Page): Promise<Frame | undefined> {
  const pages = page.context().pages().length;
  await (await row(page)).getByRole('button', { name: 'Report' }).click();
  let frame: Frame | undefined;
  const settled = async () => {
    frame = page.context().pages()[pages]?.frames().at(-1);
    if (frame && (await frame.locator('h1').count()) > 0) return true;
    return (await page.locator('#status.problem').count()) > 0;
  };
  await expect.poll(settled).toBe(true);
  return frame;
}

/** Others are in these, too. */
const SAMPLED = ['texts', 'figures', 'every string', 'names of fields', 'everything'];

test.each(CASES.filter(([name]) => EVERY_CASE || SAMPLED.includes(name)))(
  'a zip with scripts in its %s',
  async (name, zip) => {
    const context = await newContext(browser, site);
    const { page, done } = await watched(context);
    const [imported, refused] = [page.locator('#log li', { hasText: 'Imported “' }), page.locator('#status.problem')];
    const rows = page.locator('#runs > li');
    await drop(page, `<img src=owned onerror=${RUN}> ${name}.zip`, zip());
    // It is refused, or it is in the list, or it is said why that cannot be drawn.
    const settled = async () =>
      (await refused.count()) > 0 || ((await imported.count()) > 0 && (await rows.count()) > 0);
    await expect.poll(settled).toBe(true);
    if (name === 'texts') expect(await rows.count()).toBe(1);
    if ((await rows.count()) > 0) {
      await page.locator('#runs .name').first().click();
      const report = await askForReport(page);
      if (name === 'texts') expect(await report?.locator('pre').first().textContent()).toBe(EVIL);
    }
    expect(await done()).toEqual([]);
    expect(site.asked.filter((address) => address.includes('owned'))).toEqual([]);
    // What is no number, where one is, may well be an error: it is not what is asked here.
    misdeeds.splice(0);
    await context.close();
  },
);

const PLACES = [
  ['with headers', () => `${site.isolated}demo/`, 'allow'],
  ['where a service worker adds them', () => `${site.plain}demo/`, 'allow'],
  ['without any', () => `${site.plain}demo/`, 'block'],
] as const;

test.each(PLACES)('a report %s draws its curves, and can reach nothing else', async (_, url, serviceWorkers) => {
  const context = await newContext(browser, site, { serviceWorkers });
  // A language that Intl takes for none, as Chromium has it where the system's locale is C.
  await context.addInitScript(() =>
    Object.defineProperty(Navigator.prototype, 'language', { get: () => 'en-US@posix', configurable: true }),
  );
  const page = await ready(context, url());
  if (serviceWorkers === 'allow') await page.waitForFunction(() => globalThis.crossOriginIsolated);
  await page.locator('#train:enabled').waitFor();
  const errors: string[] = [];
  context.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  context.on('weberror', (error) => errors.push(error.error().message));
  await drop(page, 'honest.zip', zipSync(honest));
  await says(page, /^Imported/);
  await page.locator('#chart-loss canvas').waitFor();
  expect(await page.evaluate(() => globalThis.crossOriginIsolated)).toBe(serviceWorkers === 'allow');
  const frame = await askForReport(page);
  await frame?.locator('.charts canvas').nth(3).waitFor();
  const found = await frame?.evaluate(async () => {
    const outcome = async (work: () => unknown) => {
      try {
        await work();
        return 'done';
      } catch (error) {
        return (error as Error).name;
      }
    };
    const drawn = [...document.querySelectorAll('canvas')].map((canvas) => {
      const { width, height } = canvas;
      const pixels = canvas.getContext('2d')?.getImageData(0, 0, width, height).data ?? [];
      return pixels.some((value) => value > 0);
    });
    return {
      drawn,
      origin: globalThis.origin,
      databases: await outcome(() => indexedDB.databases()),
      files: await outcome(() => navigator.storage.getDirectory()),
      parent: await outcome(() => window.parent.document),
      swatch: getComputedStyle(document.querySelector('figcaption i') as Element).backgroundColor,
    };
  });
  expect(found).toEqual({
    drawn: [true, true, true, true],
    origin: 'null',
    databases: 'SecurityError',
    files: 'SecurityError',
    parent: 'SecurityError',
    swatch: expect.stringMatching(/^rgb\(\d+, \d+, \d+\)$/),
  });
  expect(errors).toEqual([]);
  expect(misdeeds.splice(0)).toEqual([]);

  // What it would send is kept in, and what comes into it does not run.
  const refused = await frame?.evaluate(async (address) => {
    const answer = await fetch(address).then(
      () => 'sent',
      () => 'kept in',
    );
    const image = new Image();
    const shown = new Promise((resolve) => {
      image.onload = () => resolve('loaded');
      image.onerror = () => resolve('kept out');
    });
    image.src = address;
    const script = document.createElement('script');
    script.textContent = 'globalThis.owned = 1';
    document.body.append(script);
    document.body.insertAdjacentHTML('beforeend', '<b onclick="globalThis.owned = 1"></b>');
    document.body.querySelector<HTMLElement>('b[onclick]')?.click();
    return [answer, await shown, 'owned' in globalThis];
  }, `${site.plain}demo/index.html?secret`);
  expect(refused).toEqual(['kept in', 'kept out', false]);
  expect(site.asked.filter((address) => address.includes('secret'))).toEqual([]);
  misdeeds.splice(0);

  const [saved] = await Promise.all([
    page.waitForEvent('download'),
    page.context().pages().at(-1)?.locator('#save').click(),
  ]);
  expect(saved.suggestedFilename()).toBe('honest.html');
  // Where the system sets all colours, a swatch keeps its own.
  await frame?.page().emulateMedia({ forcedColors: 'active' });
  const forced = await frame?.evaluate(
    () => getComputedStyle(document.querySelector('figcaption i') as Element).backgroundColor,
  );
  expect(forced).toBe(found?.swatch);
  await context.close();
});

test('the page runs nothing inline, and connects nowhere else', async () => {
  // Nothing reloads it.
  const context = await browser.newContext({ serviceWorkers: 'block' });
  for (const url of [`${site.isolated}demo/`, `${site.plain}demo/`]) {
    const page = await context.newPage();
    await page.goto(url);
    const found = await page.evaluate(async () => {
      const script = document.createElement('script');
      script.textContent = 'globalThis.owned = 1';
      document.body.append(script);
      const elsewhere = fetch('http://127.0.0.1:9/').then(String, (error: Error) => error.name);
      const refused = new Set<string>();
      await new Promise<void>((resolve) => {
        document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => {
          refused.add(effectiveDirective);
          if (refused.size === 2) resolve();
        });
      });
      return ['owned' in globalThis, await elsewhere, ...refused];
    });
    expect(found).toEqual([false, 'TypeError', 'script-src-elem', 'connect-src']);
    await page.close();
  }
  await context.close();
});
