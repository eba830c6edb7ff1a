// A person who does not wait, at the demo page: presses and drops things while it starts, reloads it in the middle of a
// run, has no WebGPU. What the page shows is what it does, and what it cannot do it says.

import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { BROWSER } from '../../scripts/browsers.mjs';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { deferred } from '../../src/util/deferred.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { fileOf, floats } from '../formats/raw-tensors.ts';
import { close, launch, newContext, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';
import { drop, dropAll, misdeeds, prepare, ready, row, SMALL, says, steps, visit } from './visitor.ts';

let browser: Browser;
let site: Site;
let url: string;
let context: BrowserContext;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  url = `${site.isolated}demo/`;
});
beforeEach(async () => {
  context = await newContext(browser, site);
});
afterEach(async () => {
  await context.close();
  expect(misdeeds.splice(0)).toEqual([]);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});

const ENDLESS = { ...SMALL, steps: 100_000 };
const CHATS = '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]}\n'.repeat(50);

/** A page with a run that has a checkpoint and is the first of the list, which is read again behind it. */
async function trainsEndlessly(): Promise<Page> {
  const page = await ready(context, url);
  await prepare(page, TEXT, ENDLESS);
  await page.click('#train');
  await says(page, /^Training/);
  await steps(page, 25);
  await page.locator('#runs > li:first-child.shown').waitFor();
  return page;
}

test('records and a run’s zip that are dropped while the page starts are taken when it has', async () => {
  const started = deferred<void>();
  await context.route('**/trainer*.js', async (route) => {
    await started.promise;
    await route.continue();
  });
  const page = await visit(context, url);
  await drop(page, 'chats.jsonl', new TextEncoder().encode(CHATS));
  await drop(page, 'broken.zip', Uint8Array.of(1, 2, 3));
  expect(await page.isDisabled('#train')).toBe(true);
  started.resolve();
  await says(page, /broken.zip is no zip file/);
  await page.locator('#text-note', { hasText: /^chats.jsonl: [\d.]+ kB, conversations$/i }).waitFor();
});

test('a reload goes on with the run that was cut off, although another is newer', async () => {
  const page = await trainsEndlessly();
  const name = await page.locator('#runs .name').first().textContent();
  await (await row(page)).getByRole('button', { name: 'Fork' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('the fork');
  await page.keyboard.press('Enter');
  await page.locator('#runs .name', { hasText: 'the fork' }).waitFor();
  await page.reload();
  await says(page, /^Going on from step [1-9]/);
  expect(await page.locator('#runs .shown .name').textContent()).toBe(name);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
});

test('a reload goes on with its run although the page before has it for a moment still', async () => {
  const page = await trainsEndlessly();
  const id = await page.locator('#runs > li:first-child details').getAttribute('data-run');
  // In place of a worker that takes its time: it has the run's lock as soon as the worker is gone.
  const other = await context.newPage();
  await other.goto(`${url}isolation-sw.js`);
  await other.evaluate((name) => {
    const left = new Promise<void>((resolve) => addEventListener('leave', () => resolve()));
    void navigator.locks.request(name, () => left);
  }, `holdfast run ${id}`);
  await page.reload();
  await page.locator('#runs > li:first-child', { hasText: 'open in another tab' }).waitFor();
  await other.evaluate(() => dispatchEvent(new Event('leave')));
  await says(page, /^Going on from step [1-9]/);
  await page.click('#stop:enabled');
  const [, steps] = /^Stopped after (\d+) steps/.exec(await says(page, /^Stopped after/)) ?? [];
  // One that was stopped by the person waits for its button, and the page says so.
  await page.reload();
  await says(page, new RegExp(`was stopped after ${steps} of [\\d,]+ steps; press its Go on to go on$`));
});

test('a run that is cut off before its first checkpoint is taken up once, then it waits to be started', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, { ...ENDLESS, saveEvery: 50_000 });
  await page.click('#train');
  await says(page, /^Training/);
  await page.reload();
  await says(page, /^Training/);
  await page.reload();
  await says(page, /was cut off again before its first checkpoint: it is in the list, to be started$/);
  const start = (await row(page)).getByRole('button', { name: 'Start again' });
  await start.and(page.locator(':enabled')).click();
  await says(page, /^Training/);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
});

test('Stop is there while a run is prepared, and another can be trained then', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, ENDLESS);
  // Pressed as soon as it can be; then nothing else of the run can be.
  await page.evaluate(() => {
    const [stop, pause] = ['#stop', '#pause'].map((id) => document.querySelector(id) as HTMLButtonElement);
    new MutationObserver((_, observer) => {
      if (!stop || stop.disabled || stop.closest('[hidden]')) return;
      observer.disconnect();
      document.body.dataset['found'] = `pause disabled: ${pause?.disabled}`;
      stop.click();
    }).observe(document.body, { subtree: true, attributeFilter: ['disabled'] });
  });
  await page.click('#train');
  await says(page, /^Stopped (before it began to train|after \d+ steps)/);
  expect(await page.getAttribute('body', 'data-found')).toBe('pause disabled: true');
  await page.click('#train:enabled');
  await says(page, /^Training/);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
});

test('Train that is pressed as soon as it can be is not undone by what the page looks at first', async () => {
  const page = await ready(context, url);
  await prepare(page, TEXT, { ...SMALL, steps: 20 });
  await page.click('#train');
  await says(page, /^Done after 20 steps/);
  await page.addInitScript(() => {
    addEventListener('DOMContentLoaded', () => {
      const train = document.querySelector('#train') as HTMLButtonElement;
      new MutationObserver((_, observer) => {
        observer.disconnect();
        train.click();
      }).observe(train, { attributeFilter: ['disabled'] });
    });
  });
  await page.reload();
  await says(page, /^Training$/);
  await steps(page, 1);
  await page.click('#stop:enabled');
  await says(page, /^Stopped after \d+ steps/);
  const said = await page.locator('#log li').allTextContents();
  expect(said.filter((line) => /A run is (training|about)/.test(line))).toEqual([]);
});

test('a page that is loaded again shows what it would train', async () => {
  const page = await ready(context, url);
  await page.getByRole('radio', { name: 'Medium' }).check();
  await page.getByRole('radio', { name: 'Your own' }).check();
  await page.fill('#paste', TEXT);
  await page.reload();
  await page.locator('#train:enabled').waitFor();
  expect(await page.getByRole('radio', { name: 'Tiny' }).isChecked()).toBe(true);
  expect(await page.getByRole('radio', { name: 'Example' }).isChecked()).toBe(true);
  expect(await page.inputValue('#paste')).toBe('');
  // Of those that scripts make, a browser restores none.
  const restored = await page
    .locator('input:not([type=file], #fields *, .memory-view *), select:not(#fields *), textarea')
    .evaluateAll((controls) =>
      (controls as HTMLInputElement[]).filter((control) => control.autocomplete !== 'off').map((c) => c.outerHTML),
    );
  expect(restored).toEqual([]);
});

test('a model that cannot be trained yet has no figures, and not those of the one before', async () => {
  const page = await ready(context, url);
  const parameters = page.locator('#fact-parameters');
  await parameters.filter({ hasText: /^[\d,]+$/ }).waitFor();
  const config = {
    ...{ model_type: 'vit', architectures: ['ViTForImageClassification'], image_size: 4, patch_size: 2 },
    ...{ hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 },
  };
  const model = makeModel(parseConfig(config, 'the config'));
  const values = await collect(initialWeights(model, 1));
  const tensors = model.parameters.map(
    ({ name, shape }) => [name, floats([...shape], values.get(name) ?? new Float32Array())] as const,
  );
  await dropAll(page, {
    'config.json': new TextEncoder().encode(JSON.stringify(config)),
    'model.safetensors': fileOf(new Map(tensors)),
  });
  await page.locator('#model-note', { hasText: 'bring a folder of them' }).waitFor();
  expect(await page.locator('.facts dd:not([hidden] dd)').allTextContents()).toEqual(Array(5).fill('–'));
});

test.runIf(BROWSER === 'chromium')('without WebGPU, what is asked of the page says why it cannot', async () => {
  await context.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'));
  const page = await visit(context, url);
  await page.locator('#obstacle').waitFor();
  const refusal = /^this browser shows no WebGPU/;
  await page.setInputFiles('#import', { name: 'a.zip', mimeType: 'application/zip', buffer: Buffer.from([1]) });
  await says(page, refusal);
  await page.locator('label:has(#own-name)').click();
  await page.fill('#own-hub-name', 'owner/model');
  await page.click('#own-hub button');
  await page.locator('#own-note.problem', { hasText: refusal }).waitFor();
});
