// A tokenizer of one's own on a page: made of a text, trained and written with, kept with the run, its zip and the runs that
// begin from its weights. While a text is tokenized, the worker answers.

import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { close, event, launch, losses, newContext, open, SETTINGS, start, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
let page: Page;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  page = await open(await newContext(browser, site), site.isolated);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});

const VOCABULARY = 300;
const settings = { ...SETTINGS, config: { ...SETTINGS.config, vocab_size: VOCABULARY }, steps: 6 };

test('a run in tokens of its text’s own, exported, imported, and begun from, writes in them', async () => {
  const made = await page.evaluate(
    async ({ settings, text, vocabulary }) => {
      const { trainer } = window.holdfast;
      const files = await trainer.trainTokenizer(vocabulary, text);
      const found = await trainer.vocabularyOf(files);
      const { id } = await trainer.start({ settings, text, tokenizer: files });
      return { id, found, names: files.map(({ name }) => name) };
    },
    { settings, text: TEXT, vocabulary: 280 },
  );
  expect(made.found).toBeLessThanOrEqual(280);
  expect(made.names).toContain('tokenizer.json');
  await event(page, 'ended');
  const first = await losses(page);
  expect(first.size).toBe(6);
  expect(first.get(0)).toBeCloseTo(Math.log(VOCABULARY), 0);
  const written = await page.evaluate(async (id) => {
    const { trainer } = window.holdfast;
    const texts: string[] = [await trainer.sample(id, { prompt: 'the small', tokens: 8 })];
    const copy = await trainer.importRun([await trainer.exportZip(id)]);
    texts.push(await trainer.sample(copy.id, { prompt: 'the small', tokens: 8 }));
    const [run] = await trainer.runs();
    return { texts, kind: run?.settings?.tokenizer?.kind, tokens: (await trainer.next(id, 'the ', 3)).length };
  }, made.id);
  expect(written.texts[0]).not.toBe('');
  expect(written.texts[1]).toBe(written.texts[0]);
  expect(written).toMatchObject({ kind: 'huggingface', tokens: 3 });

  // The weights bring their tokenizer along, after a reload too.
  await page.reload();
  await start(page);
  const from = await page.evaluate(
    async ({ id, settings, text }) => {
      const { trainer } = window.holdfast;
      const { settings: begun } = await trainer.start({
        settings: { ...settings, from: await trainer.weightsOf(id) },
        text,
      });
      return begun?.tokenizer?.kind;
    },
    { id: made.id, settings, text: TEXT },
  );
  expect(from).toBe('huggingface');
  await event(page, 'ended');
  expect((await losses(page)).get(0)).toBeLessThan(first.get(0) ?? 0);
});

test('two tokenizers that are made at the same time are each of its own text, and none is of nothing', async () => {
  const found = await page.evaluate(async () => {
    const { trainer } = window.holdfast;
    // Longer than the pieces in which a text is read.
    const texts = ['one text of many words. ', 'another, with others in it; '].map((text) => text.repeat(200_000));
    const made = async (text: string) => {
      const files = await trainer.trainTokenizer(290, text);
      return files.find(({ name }) => name === 'tokenizer.json')?.text();
    };
    const together = await Promise.all(texts.map(made));
    const apart: typeof together = [];
    for (const text of texts) apart.push(await made(text));
    const nothing = await made('').catch((error: Error) => error.message);
    return { together, apart, nothing };
  });
  expect(found.together).toEqual(found.apart);
  expect(found.apart[0]).not.toBe(found.apart[1]);
  expect(found.nothing).toBe('the text is empty; give another');
});

test('while a text is tokenized, progress is told and the worker answers', async () => {
  await page.reload();
  await start(page);
  const { heard, shorter } = await page.evaluate(
    async ({ settings, text }) => {
      const { trainer } = window.holdfast;
      const files = await trainer.trainTokenizer(280, text);
      // Minutes of work: it is not over before the worker has answered.
      const { id } = await trainer.start({ settings, text: new Blob(Array(2000).fill(text)), tokenizer: files });
      await window.until(() => window.events.some(({ type }) => type === 'tokenizing'));
      await trainer.runs();
      const heard = window.events.map(({ type }) => type);
      await trainer.stop();
      await trainer.remove(id);
      const { id: shorter } = await trainer.start({ settings, text: text.repeat(200), tokenizer: files });
      return { heard, shorter };
    },
    { settings: { ...settings, steps: 1 }, text: TEXT },
  );
  expect(heard).toContain('tokenizing');
  expect(heard).not.toContain('ready');
  expect(await event(page, 'ended')).toMatchObject({ run: shorter });
  const told = await page.evaluate((run) => window.events.filter((each) => each.run === run), shorter);
  expect(told.map(({ type }) => type)).toContain('tokenizing');
});

test('a model with no room for the tokens is refused, and so are files without a tokenizer', async () => {
  const refusals = await page.evaluate(
    async ({ settings, text }) => {
      const { trainer } = window.holdfast;
      const files = await trainer.trainTokenizer(280, text);
      const config = { ...settings.config, vocab_size: 256 };
      const message = (work: Promise<unknown>) =>
        work.then(
          () => '',
          (error: Error) => error.message,
        );
      return [
        await message(trainer.start({ settings: { ...settings, config }, text, tokenizer: files })),
        await message(trainer.start({ settings, text, tokenizer: [new File(['x'], 'x.txt')] })),
      ];
    },
    { settings, text: TEXT },
  );
  expect(refusals[0]).toMatch(/its tokens go up to \d+, the vocabulary of the model ends at 255/);
  expect(refusals[1]).toContain('there is no tokenizer.json among the 1 files');
});
