// A person at the demo page, for tests: reads what it shows, presses its buttons, types into its fields. Knows the page
// by what a person sees of it, not the library below it: `driver.ts` drives that.

import { readFileSync } from 'node:fs';
import { strFromU8, unzipSync } from 'fflate';
import type { BrowserContext, Locator, Page } from 'playwright';
import type { SavedState } from '../../src/train/run/saved-state.ts';
import { PATIENCE_MS } from './driver.ts';

/** Fields of "All settings": a model that learns in seconds. */
export const SMALL: Readonly<Record<string, number>> = {
  layers: 1,
  width: 16,
  heads: 2,
  context: 16,
  batch: 2,
  steps: 120,
  lr: 0.01,
  warmup: 2,
  evalEvery: 20,
  evalWindows: 4,
  sampleEvery: 60,
  saveEvery: 20,
};

/** What no page may do, of all that were visited: errors, and requests to anywhere else. */
export const misdeeds: string[] = [];

export async function visit(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const { origin } = new URL(url);
  page.on('pageerror', ({ message }) => misdeeds.push(message));
  page.on('console', (message) => {
    if (message.type() === 'error') misdeeds.push(message.text());
  });
  page.on('request', (request) => {
    const address = request.url().replace(/^blob:/, '');
    if (!address.startsWith(`${origin}/`) && !address.startsWith('data:')) misdeeds.push(`a request to ${address}`);
  });
  await page.goto(url);
  return page;
}

/** As `visit`; the page can train. */
export async function ready(context: BrowserContext, url: string): Promise<Page> {
  const page = await visit(context, url);
  await page.locator('#train:enabled').waitFor();
  return page;
}

/** Waits for the one line of what is going on. */
export async function says(page: Page, pattern: RegExp): Promise<string> {
  const status = page.locator('#status');
  await status
    .filter({ hasText: pattern })
    .waitFor()
    .catch(async () => {
      const said = await page.locator('#log li').allTextContents();
      const enabled = await page.locator('.train button:enabled').allTextContents();
      const focus = await page.evaluate(() => document.activeElement?.id);
      throw new Error(
        `the page said, the newest first, ${JSON.stringify(said.slice(0, 8))}, not ${pattern}; ` +
          `its enabled buttons: ${JSON.stringify(enabled)}, its focus: ${focus}`,
      );
    });
  return (await status.textContent()) ?? '';
}

/** Waits until the figures are of what the page has heard by now: they are written once a frame. */
async function figuresWritten(page: Page): Promise<void> {
  await page.evaluate(() => new Promise(requestAnimationFrame));
}

/** Waits until so many steps are shown as done. */
export async function steps(page: Page, least: number): Promise<void> {
  // Until then they may be those of the run that was shown before.
  await figuresWritten(page);
  await page.waitForFunction(
    (least) => Number(document.querySelector('#now-step')?.textContent?.replaceAll(',', '')) >= least,
    least,
  );
}

export async function shownStep(page: Page): Promise<number> {
  await figuresWritten(page);
  return Number((await page.textContent('#now-step'))?.replaceAll(',', ''));
}

/** Pastes a text and fills the form. The learning rate is the same whatever the number of steps: so are the losses. */
export async function prepare(page: Page, text: string, settings = SMALL): Promise<void> {
  await page.getByRole('radio', { name: 'Your own' }).check();
  await page.fill('#paste', text);
  await fillSettings(page, settings);
  await page.selectOption('#field-schedule', 'constant');
}

export async function fillSettings(page: Page, settings: Readonly<Record<string, number>>): Promise<void> {
  const form = page.locator('#settings');
  if ((await form.getAttribute('open')) === null) await form.locator('summary').click();
  for (const [name, value] of Object.entries(settings)) await replace(page.locator(`#field-${name}`), String(value));
}

/** Writes into a field in place of what is there: by keys, since in Firefox Playwright's `fill` adds to a number. */
export async function replace(field: Locator, value: string): Promise<void> {
  await field.press('ControlOrMeta+a');
  await field.pressSequentially(value);
}

/** Goes there with one key, as a person without a mouse does. */
export async function tabTo(page: Page, selector: string, key: 'Tab' | 'Shift+Tab' = 'Tab'): Promise<void> {
  for (let presses = 0; presses < 100; presses++) {
    if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return;
    await page.keyboard.press(key);
  }
  throw new Error(`${key} never comes to ${selector}`);
}

/** A run in the list; the newest is the first. Its actions are open. */
export async function row(page: Page, index = 0): Promise<Locator> {
  // In the page, at once: a list that is drawn anew has the same rows open, but not one that was opened behind that. Not a press,
  // which would close one that the list has opened meanwhile.
  await page.waitForFunction((index) => {
    const more = document.querySelectorAll('#runs > li')[index]?.querySelector('details');
    if (more) more.open = true;
    return Boolean(more);
  }, index);
  return page.locator('#runs > li').nth(index);
}

/** Waits until the list says that the run which is shown, the newest, is over: it is read again behind its end. */
export async function listed(page: Page): Promise<void> {
  await page.locator('#runs > li:first-child.shown .hint', { hasText: /^(finished|stopped) · / }).waitFor();
}

/** What a run's zip holds, as it is downloaded. */
export async function download(page: Page, run: Locator): Promise<Buffer> {
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    run.getByRole('button', { name: 'Export zip' }).click(),
  ]);
  return readFileSync(await file.path());
}

/** Loss by step, from the zip of the newest run, which is shown and over. */
export async function losses(page: Page): Promise<Map<number, number>> {
  await listed(page);
  const { 'holdfast_state.json': state = new Uint8Array() } = unzipSync(await download(page, await row(page)));
  const { history } = JSON.parse(strFromU8(state)) as SavedState;
  return new Map(history.steps.map(({ step, loss }) => [step, loss]));
}

/** Drops a file onto the page. */
export const drop = (page: Page, name: string, bytes: Uint8Array): Promise<void> => dropAll(page, { [name]: bytes });

/** Drops several at once. */
export async function dropAll(page: Page, files: Readonly<Record<string, Uint8Array>>): Promise<void> {
  const dataTransfer = await page.evaluateHandle(
    (files) => {
      const transfer = new DataTransfer();
      for (const [name, bytes] of files) transfer.items.add(new File([Uint8Array.from(bytes)], name));
      return transfer;
    },
    Object.entries(files).map(([name, bytes]) => [name, [...bytes]] as const),
  );
  await page.dispatchEvent('body', 'drop', { dataTransfer });
}

/** How far the page is wider than a window of some width, in pixels. */
export async function overflow(page: Page, width: number): Promise<number> {
  await page.setViewportSize({ width, height: 800 });
  return page.evaluate(async () => {
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth - clientWidth;
  });
}
