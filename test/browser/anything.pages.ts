// A person who presses anything at any moment: runs with the same settings have the same losses all the same, the page
// makes no error, and in the end it trains as if nothing had been. So many things are done, however long they take.

import type { Browser, Locator, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SavedState } from '../../src/train/run/saved-state.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { close, launch, newContext, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';
import { misdeeds, prepare, ready, steps } from './visitor.ts';

const THINGS = EVERY_CASE ? 500 : 25;
/** At least so many losses of runs that were disturbed are held against those of one that was not. */
const COMPARED = 120;
/** What cannot be pressed now is not waited for. */
const AT_ONCE = { timeout: 200 };

let browser: Browser;
let site: Site;
beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
});
afterAll(async () => {
  await close(browser, site);
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
    await limits.fill(at(['', '1 MB', '40 KB', 'much'], random.below(4)), AT_ONCE);
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
  const context = await newContext(browser, site);
  const page = await ready(context, `${site.isolated}demo/`);
  await prepareAll(page);
  // One run at least is there to be disturbed, with a checkpoint to go on from.
  await page.click('#train');
  await steps(page, 21);
  const random = new Random(3, 'a person');
  for (let done = 0; done < THINGS; done++) {
    const action = at(ACTIONS, random.below(ACTIONS.length));
    await action(page, random).catch(() => {});
    await page.waitForTimeout(random.below(2) * random.below(1200) + 30);
  }
  await page.reload();
  await prepareAll(page);
  await stopAll(page);
  // One that was disturbed comes to its end, if none has.
  const goOn = page.getByRole('button', { name: 'Go on', disabled: false }).and(page.locator('#runs button'));
  if ((await goOn.count()) > 0) await toTheEnd(page, goOn.last());
  await toTheEnd(page, page.locator('#train:enabled'));

  const runs = (await page.evaluate(readStates)).map(({ history }) => history.steps);
  const whole = runs.find(({ length }) => length === 120) ?? [];
  expect(whole).toHaveLength(120);
  for (const found of runs) {
    for (const [i, { step, loss }] of found.entries()) {
      expect(step).toBe(i);
      expect(loss, `step ${step}`).toBe(whole[i]?.loss);
    }
  }
  const compared = runs.reduce((sum, { length }) => sum + length, 0) - whole.length;
  expect(compared).toBeGreaterThanOrEqual(COMPARED);
  expect(misdeeds.splice(0)).toEqual([]);
  await context.close();
});

/** Whatever goes on by itself after a reload is stopped. */
async function stopAll(page: Page): Promise<void> {
  // By then it is known: one that was cut off is open, or one that is not is looked at.
  const known = page.locator('#runs > li.shown').or(page.locator('#status', { hasText: 'in another tab' }));
  await known.first().waitFor();
  const goesOn = (await page.locator('#log li', { hasText: 'was cut off: it goes on' }).count()) > 0;
  const idle = async () => {
    if (await page.locator('#train').isVisible()) return true;
    await page.click('#stop:enabled', { timeout: 1000 }).catch(() => {});
    return false;
  };
  await expect.poll(idle).toBe(true);
  // Behind its end the list is read again: until then it cannot be gone on with.
  if (goesOn) await page.locator('#runs > li.shown .hint', { hasText: /^(stopped|finished|failed)/ }).waitFor();
}

/** Presses what begins a run, and waits for the end of that one. */
async function toTheEnd(page: Page, button: Locator): Promise<void> {
  // By the list: an end that is said may be that of the run before.
  const ends = page.locator('#log li', { hasText: 'Done after 120 steps' });
  const before = await ends.count();
  await button.click();
  await expect.poll(() => ends.count()).toBe(before + 1);
}

/** In the page: every run's latest checkpoint, as far as it was saved. */
async function readStates(): Promise<SavedState[]> {
  const found: SavedState[] = [];
  const look = async (folder: FileSystemDirectoryHandle): Promise<void> => {
    for await (const [name, entry] of folder.entries()) {
      if (entry.kind === 'directory') await look(entry as FileSystemDirectoryHandle);
      else if (name === 'holdfast_state.json') {
        found.push(JSON.parse(await (await (entry as FileSystemFileHandle).getFile()).text()));
      }
    }
  };
  await look(await navigator.storage.getDirectory());
  return found;
}
