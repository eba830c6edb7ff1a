// A person who presses anything at any moment: runs with the same settings have the same losses all the same, the page
// makes no error, and in the end it trains as if nothing had been. With HOLDFAST_TESTS=all for minutes.

import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SavedState } from '../../src/train/saved-state.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { launch, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';
import { misdeeds, prepare, ready, says } from './visitor.ts';

const SECONDS = EVERY_CASE ? 300 : 10;
/** What cannot be pressed now is not waited for. */
const AT_ONCE = { timeout: 200 };

let browser: Browser;
let site: Site;
beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
});
afterAll(async () => {
  await browser.close();
  site.close();
});

type Action = (page: Page, random: Random) => Promise<unknown>;
const press =
  (selector: string): Action =>
  (page) =>
    page.locator(selector).first().click(AT_ONCE);
const drag = (page: Page, to: number) =>
  page.locator('#budget').evaluate((slider: HTMLInputElement, to) => {
    slider.value = String(to);
    for (const type of ['input', 'change']) slider.dispatchEvent(new Event(type, { bubbles: true }));
  }, to);

/** The more often it stands here, the more often it is done. */
const ACTIONS: readonly Action[] = [
  ...Array<Action>(4).fill(press('#train')),
  ...Array<Action>(3).fill((page) => page.getByRole('button', { name: 'Go on' }).last().click(AT_ONCE)),
  ...Array<Action>(2).fill(press('#pause')),
  press('#step'),
  press('#stop'),
  press('#write'),
  press('#disk'),
  press('.memory-view .controls button'),
  ...Array<Action>(3).fill((page, random) => drag(page, random.below(101))),
  async (page, random) => {
    for (let i = 0; i < 6; i++) await drag(page, random.below(101));
  },
  (page, random) => page.locator('#policy').selectOption({ index: random.below(7) }, AT_ONCE),
  async (page, random) => {
    const limits = page.locator('#host-limit');
    await limits.fill(['', '1 MB', '40 KB', 'much'][random.below(4)] as string, AT_ONCE);
    await limits.press('Enter', AT_ONCE);
  },
  async (page) => {
    await page.reload();
    await prepareAll(page);
  },
];

/** With everything unfolded. */
async function prepareAll(page: Page): Promise<void> {
  await prepare(page, TEXT);
  await page.locator('.limits').evaluate((details: HTMLDetailsElement) => {
    details.open = true;
  });
}

test('whatever is pressed whenever, no loss changes', async () => {
  const context = await browser.newContext();
  const page = await ready(context, `${site.isolated}demo/`);
  await prepareAll(page);
  const random = new Random(3, 'a person');
  for (const end = Date.now() + 1000 * SECONDS; Date.now() < end; ) {
    const action = ACTIONS[random.below(ACTIONS.length)] as Action;
    await action(page, random).catch(() => {});
    await page.waitForTimeout(random.below(2) * random.below(1200) + 30);
  }
  await page.reload();
  await prepareAll(page);
  // Whatever goes on by itself now is stopped.
  await page.waitForTimeout(2000);
  await page
    .locator('#stop')
    .click({ timeout: 5000 })
    .catch(() => {});
  await page.locator('#train:enabled').click();
  await says(page, /^Done after 120 steps/);

  const states = await page.evaluate(readStates);
  const known = new Map<number, number>();
  let compared = 0;
  for (const { history } of states) {
    for (const [i, { step, loss }] of history.steps.entries()) {
      expect(step).toBe(i);
      if (known.has(step)) compared++;
      else known.set(step, loss);
      expect(loss, `step ${step}`).toBe(known.get(step));
    }
  }
  expect(known.size).toBe(120);
  expect(compared).toBeGreaterThan(0);
  expect(misdeeds.splice(0)).toEqual([]);
  await context.close();
});

/** In the page: every run's latest checkpoint, as far as it was saved. */
async function readStates(): Promise<SavedState[]> {
  const found: SavedState[] = [];
  const look = async (folder: FileSystemDirectoryHandle): Promise<void> => {
    for await (const [name, entry] of folder.entries()) {
      if (entry.kind === 'directory') await look(entry as FileSystemDirectoryHandle);
      else if (name === 'trainer_state.json') {
        found.push(JSON.parse(await (await (entry as FileSystemFileHandle).getFile()).text()));
      }
    }
  };
  await look(await navigator.storage.getDirectory());
  return found;
}
