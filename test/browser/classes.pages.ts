// Classifiers on the demo page: texts with labels for a BERT that has told none yet, and a folder of images for a ViT with the
// mean and deviation of its own. Each is trained there, says what share it tells right, and is taken elsewhere.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { unzipSync } from 'fflate';
import type { Browser, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { lines, published } from '../cli/published-bert.ts';
import { png } from '../data/png-writer.ts';
import { holdfast } from '../e2e/cli.ts';
import { fileOf, floats } from '../formats/raw-tensors.ts';
import { EVERY_CASE } from '../host.ts';
import { close, launch, newContext, open } from './driver.ts';
import { type Site, serve } from './site.ts';
import { download, fillSettings, misdeeds, overflow, ready, row, says } from './visitor.ts';

let browser: Browser;
let site: Site;
const folder = mkdtempSync(path.join(tmpdir(), 'classes-'));

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
  rmSync(folder, { recursive: true });
});
afterEach(() => expect(misdeeds.splice(0)).toEqual([]));

function write(files: Readonly<Record<string, string | Uint8Array>>): void {
  for (const [name, bytes] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), bytes);
  }
}

/** What is told by one word among others. */
function reviews(count: number): string {
  const random = new Random(3, 'reviews');
  const words = ['the', 'cat', '日', '.'];
  return lines(
    ...Array.from({ length: count }, (_, i) => {
      const list = Array.from({ length: 1 + random.below(4) }, () => words[random.below(4)] ?? '');
      list.splice(random.below(list.length + 1), 0, i % 2 === 0 ? 's' : 'cafe');
      return { text: list.join(' '), label: i % 2 === 0 ? 'short' : 'long' };
    }),
  );
}

const TRAINING = { batch: 6, steps: 30, warmup: 2, evalEvery: 10, evalWindows: 16, saveEvery: 30 };

/** Waits until the run that is shown is the first in the list, which is read again behind its end: until then its model is. */
const newestListed = (page: Page): Promise<void> => page.locator('#runs > li:first-child.shown').waitFor();

/** The model of the newest run, as it is exported, in a folder called `name`. */
async function taken(page: Page, name: string): Promise<void> {
  await (await row(page)).getByRole('button', { name: 'Export model' }).click();
  await page.locator('#dialog select').selectOption('model f32');
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.locator('#dialog').getByRole('button', { name: 'Export' }).click(),
  ]);
  const files = unzipSync(readFileSync(await file.path()));
  write(Object.fromEntries(Object.entries(files).map(([each, bytes]) => [`${name}/${each}`, bytes])));
}

/** What the command line measures of it. */
async function measured(model: string, data: string): Promise<string> {
  const { status, stdout, stderr } = await holdfast(['eval', model, '--data', data], { cwd: folder });
  expect(`${status} ${stderr}`).toBe('0 ');
  return stdout;
}

test('a BERT learns to tell texts apart, with a new head; its model does so elsewhere', async () => {
  const { files } = published('BertModel');
  write(Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name.replace('m/', 'tiny-bert/'), bytes])));
  write({ 'reviews.jsonl': reviews(120), 'broken.jsonl': '{"text":"a","label":"x"}\n{"text":"b"}' });
  const page = await ready(await newContext(browser, site), `${site.isolated}demo/`);
  await page.setInputFiles('#own-folder', path.join(folder, 'tiny-bert'));
  await page.locator('#own-facts', { hasText: 'BERT 2 × 12 · 16 tokens of its own' }).waitFor();
  await page.setInputFiles('#files', path.join(folder, 'broken.jsonl'));
  await page.locator('#classes-note.problem', { hasText: ':2: label is missing; it must be a name' }).waitFor();
  write({
    'pairs.jsonl': lines(
      { sentence1: 'a', sentence2: 'b', label: 'x' },
      { sentence1: 'b', sentence2: 'a', label: 'y' },
    ),
  });
  await page.setInputFiles('#files', path.join(folder, 'pairs.jsonl'));
  await page.locator('#text-note:not(.problem)', { hasText: /^pairs\.jsonl: \d+ B, records with labels$/ }).waitFor();
  await page.setInputFiles('#files', path.join(folder, 'reviews.jsonl'));
  await page.locator('#classes-note', { hasText: '2 classes: long, short; a new head learns to tell them' }).waitFor();
  await page.getByRole('radio', { name: /^All of it/ }).check();
  await fillSettings(page, { ...TRAINING, lr: 0.01 });
  expect(await page.locator('#field-sampleEvery').isVisible()).toBe(false);
  for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
  await page.click('#train');
  await says(page, /^Done after 30 steps/);
  await expect.poll(() => page.textContent('#now-validated')).toBe('100 % of unseen right');
  await page.locator('#chart-accuracy').waitFor();
  expect(await page.locator('#writing').isVisible()).toBe(false);
  await newestListed(page);
  await page.fill('#telling-text', 'the cat s .');
  await page.getByRole('button', { name: 'Tell' }).click();
  await page.locator('#telling-note', { hasText: '“short” is the likeliest of 2 classes.' }).waitFor();
  await page.fill('#telling-text', 'the cafe');
  expect(await page.locator('#classes li').count()).toBe(0);
  await page.press('#telling-text', 'Enter');
  await expect.poll(() => page.textContent('#classes')).toMatch(/^long\d+\.\d %short[\d.]+ %$/);
  for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
  await taken(page, 'told');
  const shown = async () =>
    (await page.textContent('#classes'))?.replace(/^(\S+?)([\d.]+ %)(\S+?)([\d.]+ %)$/, '$1 $2, $3 $4\n');
  const asked = ['generate', 'told', '--prompt', 'the cafe'];
  expect((await holdfast(asked, { cwd: folder })).stdout).toBe(await shown());
  expect(await measured('told', 'reviews.jsonl')).toContain('accuracy 100.00 % (120 of 120 texts)');
  // Its weights alone are a classifier still; whether they learned pairs nothing says.
  await page.setInputFiles(
    '#import',
    ['config.json', 'model.safetensors', 'tokenizer.json'].map((name) => path.join(folder, 'told', name)),
  );
  await says(page, /^Imported “imported”/);
  await (await row(page)).getByRole('button', { name: 'imported', exact: true }).click();
  await page.locator('#telling-note', { hasText: 'A model that learned pairs needs the second one, too.' }).waitFor();
  expect(await page.locator('#writing').isVisible()).toBe(false);
  await page.fill('#telling-text', 'the cafe');
  await page.fill('#telling-pair', 'the cat .');
  for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
  await page.getByRole('button', { name: 'Tell' }).click();
  await page.locator('#classes li').first().waitFor();
  expect((await holdfast([...asked, '--pair', 'the cat .'], { cwd: folder })).stdout).toBe(await shown());
  await page.context().close();
});

const VIT = {
  ...{ model_type: 'vit', architectures: ['ViTForImageClassification'], image_size: 4, patch_size: 2 },
  ...{ hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 },
};

test('a ViT learns pictures of a canvas and tells them as it tells PNG files; on the page one is drawn for it', async () => {
  const context = await newContext(browser, site);
  const page = await open(context, site.isolated);
  const config = parseConfig({ ...VIT, id2label: { 0: 'dark', 1: 'light' } }, 'the config');
  const settings = { config, seq: config.model_type === 'vit' ? 5 : 0, ...TRAINING, steps: 40, lr: 0.05, seed: 1 };
  const told = await page.evaluate(async (given) => {
    const { imageFile, defaultSettings } = window.library;
    const { trainer } = window.holdfast;
    const canvas = new OffscreenCanvas(6, 5);
    const context = canvas.getContext('2d') as OffscreenCanvasRenderingContext2D;
    const filled = (color: string) => {
      context.fillStyle = color;
      context.fillRect(0, 0, 6, 5);
      context.fillStyle = 'rgb(90 120 130)';
      context.fillRect(1, 2, 3, 1);
      return context.getImageData(0, 0, 6, 5);
    };
    const shade = (value: number) => `rgb(${value} ${value} ${255 - value / 9})`;
    const files = Array.from({ length: 24 }, (_, i) => {
      const [label, value] = i % 2 === 0 ? ['dark', 3 * i] : ['light', 255 - 3 * i];
      return imageFile(`all/${label}/${i}.png`, filled(shade(value as number)));
    });
    const id = await window.standing({ settings: defaultSettings(given), images: await Promise.all(files) });
    const during = await trainer.classify(id, filled(shade(20))).catch((error: Error) => error.message);
    await trainer.unpause();
    await window.until(() => window.events.some(({ type }) => type === 'ended' || type === 'failed'));
    const pixels = filled(shade(33));
    const drawn = await trainer.classify(id, pixels);
    const file = await trainer.classify(id, await canvas.convertToBlob({ type: 'image/png' }));
    const wrong = await trainer.classify(id, new Blob(['no picture'])).catch((error: Error) => error.message);
    const writes = await trainer.sample(id, { prompt: 'a' }).catch((error: Error) => error.message);
    return { during, drawn, file, wrong, writes };
  }, settings);
  expect(told.drawn.map(({ name }) => name)).toEqual(['dark', 'light']);
  expect(told.drawn.reduce((sum, { probability }) => sum + probability, 0)).toBeCloseTo(1, 12);
  expect(told.file).toEqual(told.drawn);
  expect(told.during).toMatch(/is open here; stop it before classes are told$/);
  expect(told.wrong).toBe('the picture: is no PNG image; copy it again');
  expect(told.writes).toBe('this model tells classes apart and writes no text');
  await page.close();

  const shown = await ready(context, `${site.isolated}demo/`);
  const picture = shown.locator('#picture');
  await picture.waitFor();
  expect(await shown.locator('#writing').isVisible()).toBe(false);
  const guesses = shown.locator('#guesses li');
  // Where it is then: what is above it may still grow.
  await picture.hover({ position: { x: 60, y: 60 } });
  await shown.mouse.down();
  await picture.hover({ position: { x: 110, y: 140 } });
  await shown.mouse.up();
  await expect.poll(async () => (await shown.textContent('.seeing')) ?? '').toMatch(/light[\d.]+ %\s*dark[\d.]+ %/);
  expect(await guesses.count()).toBe(2);
  await shown.getByRole('button', { name: 'Invert' }).click();
  await guesses.first().filter({ hasText: 'dark' }).waitFor();
  for (const width of [360, 1280]) expect(await overflow(shown, width), `${width} pixels`).toBeLessThanOrEqual(0);
  // Of a file, whatever browsers read.
  write({ 'white.png': png(new Uint8Array(12).fill(255), { width: 2, height: 2, kind: 2 }) });
  await shown.setInputFiles('#picture-file', path.join(folder, 'white.png'));
  await guesses.first().filter({ hasText: 'light' }).waitFor();
  await shown.getByRole('button', { name: 'Clear' }).click();
  await expect.poll(() => guesses.count()).toBe(0);
  await context.close();
});

test.runIf(EVERY_CASE)(
  'a ViT learns images of a folder, by LoRA, as its own preprocessor_config.json makes them ready',
  async () => {
    const model = makeModel(parseConfig(VIT, 'the config'));
    const values = await collect(initialWeights(model, 1));
    const tensors = model.parameters.map(
      ({ name, shape }) => [name, floats([...shape], values.get(name) ?? new Float32Array())] as const,
    );
    const preprocessor = {
      ...{ do_normalize: true, do_resize: true, image_mean: [0.485, 0.456, 0.406], image_std: [0.229, 0.224, 0.225] },
      ...{ feature_extractor_type: 'ViTFeatureExtractor', resample: 3, size: 4 },
    };
    write({
      'tiny-vit/config.json': JSON.stringify(VIT),
      'tiny-vit/model.safetensors': fileOf(new Map(tensors)),
      'tiny-vit/preprocessor_config.json': JSON.stringify(preprocessor),
    });
    const image = (value: number) => png(new Uint8Array(5 * 6 * 3).fill(value), { width: 5, height: 6, kind: 2 });
    for (const [i, label] of ['dark', 'light'].entries())
      for (let n = 0; n < 12; n++) write({ [`pictures/${label}/${n}.png`]: image(200 * i + 4 * n) });
    const page = await ready(await newContext(browser, site), `${site.isolated}demo/`);
    await page.setInputFiles('#own-folder', path.join(folder, 'tiny-vit'));
    await page.locator('#own-facts', { hasText: 'ViT 1 × 8 · looks at images · 2 classes' }).waitFor();
    await page.locator('#model-note', { hasText: 'bring a folder of them, with a folder for each class' }).waitFor();
    await page.setInputFiles('#image-folder', path.join(folder, 'pictures'));
    await page.locator('#text-note', { hasText: /^24 files: [\d.]+ KB$/ }).waitFor();
    await page.locator('#classes-note', { hasText: '2 classes: dark, light; a new head' }).waitFor();
    await fillSettings(page, { ...TRAINING, lr: 0.05, rank: 2, alpha: 4 });
    expect(await page.locator('#field-context').isVisible()).toBe(false);
    await page.click('#train');
    await says(page, /^Done after 30 steps/);
    await expect.poll(() => page.textContent('#now-validated')).toBe('100 % of unseen right');
    await newestListed(page);
    const list = page.locator('#runs > li');
    const remove = async () => {
      const before = await list.count();
      await (await row(page)).getByRole('button', { name: 'Remove' }).click();
      await page.locator('#dialog').getByRole('button', { name: 'Remove' }).click();
      await expect.poll(() => list.count()).toBe(before - 1);
    };
    // A fork has the images, and what was imported is given them.
    await (await row(page)).getByRole('button', { name: 'Fork' }).click();
    await page.locator('#dialog').getByLabel('Name').fill('further');
    await page.locator('#dialog').getByLabel('Steps in all').fill('33');
    await page.locator('#dialog').getByRole('button', { name: 'Fork' }).click();
    await says(page, /^“further” goes on from step 30/);
    await list.first().locator('.name', { hasText: 'further' }).waitFor();
    const further = await row(page);
    const zip = path.join(folder, 'elsewhere.zip');
    writeFileSync(zip, await download(page, further));
    await further.getByRole('button', { name: 'Go on' }).click();
    await says(page, /^Done after 33 steps/);
    await remove();
    await page.setInputFiles('#import', zip);
    await says(page, /^Imported “elsewhere”/);
    const imported = await row(page);
    await page.getByRole('radio', { name: 'Example' }).check();
    await imported.getByRole('button', { name: 'Go on' }).click();
    await says(
      page,
      /“elsewhere” learns from runs\/\w+\/images, which is not in this browser; choose that folder of images/,
    );
    write({ 'wrong/dark/1.png': image(20), 'wrong/light/1.png': image(210) });
    await page.setInputFiles('#image-folder', path.join(folder, 'wrong'));
    await imported.getByRole('button', { name: 'Go on' }).click();
    await says(page, /^“elsewhere” learned from other images than these/);
    await page.setInputFiles('#image-folder', path.join(folder, 'pictures'));
    await imported.getByRole('button', { name: 'Go on' }).click();
    await says(page, /^Done after 33 steps/);
    await remove();
    await taken(page, 'seen');
    const found = JSON.parse(readFileSync(path.join(folder, 'seen/preprocessor_config.json'), 'utf8')) as object;
    expect(found).toMatchObject({ image_mean: preprocessor.image_mean, resample: 3 });
    write({ 'others/dark/1.png': image(10), 'others/light/1.png': image(230) });
    expect(await measured('seen', 'others')).toContain('accuracy 100.00 % (2 of 2 images)');
    await page.context().close();
  },
);
