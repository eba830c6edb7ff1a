// Models that a person brings to a page: looked into before their weights are read, trained whole or by a low-rank update,
// talked to, exported. First the library's service, then the demo page.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { unzipSync, zipSync } from 'fflate';
import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ModelExport, ModelInfo, NewRun } from '../../src/browser/index.ts';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { exportGGUF } from '../../src/formats/gguf/export.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { readGGUF } from '../formats/gguf/reader.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { close, event, forget, launch, newContext, open, SETTINGS } from './driver.ts';
import { bytesOf, CHATS, type Folder, publishedAdapter, publishedModel } from './published.ts';
import { type Site, serve } from './site.ts';
import { dropAll, fillSettings, misdeeds, overflow, ready, row, says, steps } from './visitor.ts';

const TEXT = 'what says the cat? the cat says meow. what says the dog? the dog says woof. '.repeat(60);

let browser: Browser;
let site: Site;
let context: BrowserContext;
let model: Folder;
const adapter = publishedAdapter();

beforeAll(async () => {
  [browser, site, model] = await Promise.all([launch(), serve(), publishedModel(TEXT)]);
  context = await newContext(browser, site);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
});
afterEach(() => Promise.all(context.pages().map((page) => page.close())));

/** For the page: files by their paths. */
const carried = (folders: Readonly<Record<string, Folder>>): [string, number[]][] =>
  Object.entries(folders).flatMap(([folder, files]) =>
    Object.entries(files).map(([name, bytes]): [string, number[]] => [
      folder === '' ? name : `${folder}/${name}`,
      [...bytes],
    ]),
  );

/** What the service says of files that were chosen, or why it takes none of them. */
const inspect = (page: Page, folders: Readonly<Record<string, Folder>>): Promise<ModelInfo | string> =>
  page.evaluate(async (files) => {
    const chosen = files.map(([path, bytes]) => ({
      path,
      file: new File([Uint8Array.from(bytes)], path.replace(/^.*\//, '')),
    }));
    return window.holdfast.trainer.inspectModel(chosen).catch((error: Error) => error.message);
  }, carried(folders));

/** Keeps a model; returns what it is then. */
const keep = (page: Page, folders: Readonly<Record<string, Folder>>): Promise<ModelInfo & { id: string }> =>
  page.evaluate(async (files) => {
    const { trainer } = window.holdfast;
    const chosen = files.map(([path, bytes]) => ({
      path,
      file: new File([Uint8Array.from(bytes)], path.replace(/^.*\//, '')),
    }));
    const { id } = await trainer.importModel(chosen);
    return { id, ...(await trainer.inspectModel(id)) };
  }, carried(folders));

const exported = async (page: Page, id: string, wanted: ModelExport): Promise<{ name: string; bytes: Uint8Array }> => {
  const { name, bytes } = await page.evaluate(
    async ([id, wanted]) => {
      const file = await window.holdfast.trainer.exportModel(id, wanted);
      return { name: file.name, bytes: [...new Uint8Array(await file.arrayBuffer())] };
    },
    [id, wanted] as const,
  );
  return { name, bytes: Uint8Array.from(bytes) };
};

const LORA = { rank: 4, alpha: 8, targets: ['all-linear'], dropout: 0, rslora: false };

async function train(page: Page, run: NewRun): Promise<string> {
  const { id } = await page.evaluate((run) => window.holdfast.trainer.start(run), run);
  await event(page, 'ended');
  return id;
}

describe('the service', () => {
  test('a model of shards with an adapter beside it is known before it is kept', async () => {
    const page = await open(context, site.isolated);
    const found = await inspect(page, { 'tiny-llama': model, mine: adapter });
    expect(found).toMatchObject({
      ...{
        name: 'tiny-llama',
        tokens: 312,
        chats: true,
        adapter: { rank: 2, alpha: 4, targets: ['q_proj', 'v_proj'] },
      },
      config: { model_type: 'llama', vocab_size: 320 },
    });
    const { parameters, bytes } = found as ModelInfo;
    expect(bytes).toBeGreaterThan(2 * parameters);
    expect(await page.evaluate(() => window.holdfast.trainer.runs())).toEqual([]);
  });

  test('a low-rank update of it learns conversations, answers with and without, and is exported', async () => {
    const page = await open(context, site.isolated);
    const { id: base, from, config, stored } = await keep(page, { 'tiny-llama': model });
    expect(new Set(Object.values(stored))).toEqual(new Set(['bf16']));
    const settings = {
      ...{
        ...SETTINGS,
        config,
        lora: LORA,
        steps: 6,
        lr: 0.02,
        evalWindows: 2,
        seq: 64,
      },
      ...(from !== undefined && { from }),
    };
    // Within a budget it writes, too.
    const needs = await page.evaluate((settings) => window.holdfast.trainer.estimate(settings), settings);
    expect(needs.trained).toBeLessThan(needs.parameters);
    const memory = { gpu: Math.ceil((needs.smallest + needs.unlimited) / 2) };
    const run: NewRun = { settings, text: CHATS, records: {}, name: 'animals', memory };
    const [id, kinds] = await page.evaluate(async (run) => {
      const { trainer } = window.holdfast;
      const id = await window.standing(run);
      const recorded = trainer.recordStep();
      await trainer.unpause();
      const picture = await recorded;
      return [id, picture?.history.lists.map(({ kind }) => kind) ?? []] as const;
    }, run);
    // What the memory view draws has the model's own chunks, as its files have them.
    expect(kinds).toContain('frozenBF16');
    await event(page, 'ended');
    const { fit } = await page.evaluate(([settings, memory]) => window.holdfast.trainer.estimate(settings, memory), [
      { ...settings, records: { trainOn: 'answers' as const, pack: 'yes' as const } },
      memory,
    ] as const);
    expect((await event(page, 'ended')).summary.peakGpuBytes).toBe(fit?.peak);
    const asked = await page.evaluate(
      async ([id, base]) => {
        const { trainer } = window.holdfast;
        const messages = [{ role: 'user', content: 'what says the cat?' }];
        const ask = (run: string, adapter?: 'none') =>
          trainer.chat(run, { messages, temperature: 0, tokens: 12, ...(adapter && { adapter }) });
        return {
          voice: await trainer.voiceOf(id),
          with: await ask(id),
          without: await ask(id, 'none'),
          base: await ask(base),
          removed: await trainer.remove(base).catch((error: Error) => error.message),
          records: (await trainer.runs()).find((run) => run.id === id)?.settings?.records,
        };
      },
      [id, base] as const,
    );
    expect(asked.voice).toEqual({ writes: true, chats: true, adapter: true });
    expect(asked.without).toBe(asked.base);
    expect(asked.with).not.toBe(asked.without);
    expect(asked.removed).toBe('“animals” needs its weights; remove that first, or keep both');
    expect(asked.records).toMatchObject({ trainOn: 'answers', pack: 'yes', template: { name: expect.any(String) } });

    const low = unzipSync((await exported(page, id, { form: 'adapter' })).bytes);
    expect(JSON.parse(new TextDecoder().decode(low['adapter_config.json']))).toMatchObject({
      ...{ peft_type: 'LORA', r: 4, lora_alpha: 8, base_model_name_or_path: 'tiny-llama' },
    });
    expect(low['adapter_model.safetensors']?.length).toBeGreaterThan(1000);
    // An adapter that came from here goes with the model again.
    expect(await inspect(page, { 'tiny-llama': model, low })).toMatchObject({ adapter: { rank: 4, alpha: 8 } });

    const merged = unzipSync((await exported(page, id, { form: 'model' })).bytes);
    const files = new MemoryFiles(
      Object.fromEntries(Object.entries(merged).map(([name, bytes]) => [`m/${name}`, bytes])),
    );
    const weights = await loadWeights(files, 'm');
    const gguf = await exported(page, id, { form: 'gguf', type: 'F32' });
    expect(gguf.name).toBe('animals-F32.gguf');
    const { tensors } = await readGGUF(gguf.bytes as Uint8Array<ArrayBuffer>);
    expect(tensors.size).toBe(weights.weights.names.length);
    expect((await collect(weights.weights)).size).toBe(tensors.size);
    expect(Object.keys(merged)).toContain('tokenizer.json');
  });

  test.runIf(EVERY_CASE)(
    'a GGUF file is a model as well: known before it is kept, tuned in its own blocks, and talked to',
    async () => {
      const page = await open(await newContext(browser, site), site.isolated);
      const { id } = await keep(page, { 'tiny-llama': model });
      const q8 = await exported(page, id, { form: 'gguf', type: 'Q8_0' });
      const own = await inspect(page, { 'tiny-llama': model });
      const found = await inspect(page, { '': { 'some-Q8_0.gguf': q8.bytes } });
      const { config: _, stored: __, ...facts } = own as ModelInfo;
      expect(found).toMatchObject({ ...facts, name: 'some-Q8_0', bytes: q8.bytes.length });
      // Beside the blocks, norms are F32, and F16 what has rows of no whole block.
      expect(new Set(Object.values((found as ModelInfo).stored))).toEqual(new Set(['q8_0', 'f16', 'f32']));
      expect(await inspect(page, { '': { 'some.gguf': q8.bytes }, mine: adapter })).toMatchObject({
        adapter: { rank: 2 },
      });
      const { id: base, from, config } = await keep(page, { '': { 'some-Q8_0.gguf': q8.bytes } });
      const settings = {
        ...{ ...SETTINGS, config, lora: LORA, steps: 6, lr: 0.02, evalWindows: 2, seq: 64 },
        ...(from !== undefined && { from }),
      };
      const records = { trainOn: 'answers' as const, pack: 'yes' as const };
      const needs = await page.evaluate((s) => window.holdfast.trainer.estimate(s), { ...settings, records });
      const tuned = await train(page, { settings, text: CHATS, records: {}, name: 'tuned' });
      expect((await event(page, 'ended')).summary.peakGpuBytes).toBe(needs.unlimited);
      const said = await page.evaluate(
        async ([base, tuned]) => {
          const ask = (run: string, adapter?: 'none') =>
            window.holdfast.trainer.sample(run, {
              prompt: 'the ',
              tokens: 9,
              temperature: 0,
              ...(adapter && { adapter }),
            });
          return [await ask(base), await ask(tuned, 'none'), await ask(tuned)];
        },
        [base, tuned] as const,
      );
      expect(said[1]).toBe(said[0]);
      expect(said[2]).not.toBe(said[0]);
      // What comes out of it again is what went in.
      expect((await exported(page, base, { form: 'gguf', type: 'Q8_0' })).bytes.length).toBe(q8.bytes.length);
      await page.context().close();
    },
  );

  test('files of which a GGUF file is none, cut short or one of two: one line, and nothing is kept', async () => {
    const page = await open(await newContext(browser, site), site.isolated);
    const { id } = await keep(page, { 'tiny-llama': model });
    const { bytes } = await exported(page, id, { form: 'gguf', type: 'F16' });
    for (const [files, line] of [
      [{ 'a.gguf': bytes.subarray(0, 200) }, /^a\.gguf/],
      [{ 'a.gguf': bytes.subarray(0, bytes.length - 40) }, /^a\.gguf/],
      [{ 'a.gguf': bytesOf('no such file') }, /^a\.gguf/],
      [{ 'a.gguf': bytes, 'b.gguf': bytes }, /there are 2 GGUF files \(.*a\.gguf, .*b\.gguf\); choose one of them/],
    ] as const) {
      const said = await inspect(page, { '': files });
      expect(said).toMatch(line);
      expect(said).not.toContain('\n');
      await expect(keep(page, { '': files })).rejects.toThrow((said as string).slice(0, 40));
    }
    expect(await page.evaluate(async () => (await window.holdfast.trainer.runs()).length)).toBe(1);
    await page.context().close();
  });

  // The page's own test has most of it, too.
  test.runIf(EVERY_CASE)(
    'a run that trains an adapter goes out as a zip and comes in again, where its model is',
    async () => {
      const first = await open(await newContext(browser, site), site.isolated);
      const { id: base, from, config } = await keep(first, { 'tiny-llama': model });
      const settings = {
        ...{ ...SETTINGS, config, lora: LORA, steps: 8, lr: 0.02, evalWindows: 2, seq: 64 },
        ...(from !== undefined && { from }),
      };
      const id = await train(first, { settings, text: TEXT, name: 'animals' });
      const zipped = (page: Page, id: string) =>
        page.evaluate(async (id) => {
          const file = await window.holdfast.trainer.exportZip(id);
          return { name: file.name, bytes: [...new Uint8Array(await file.arrayBuffer())] };
        }, id);
      const zip = await zipped(first, id);
      const baseZip = await zipped(first, base);
      const bring = (page: Page, zip: { name: string; bytes: number[] }) =>
        page.evaluate(
          ({ name, bytes }) =>
            window.holdfast.trainer
              .importRun([new File([Uint8Array.from(bytes)], name)])
              .catch((error: Error) => error.message),
          zip,
        );
      /** Goes on for four steps; their losses, and what is written then. */
      const goOn = async (page: Page, id: string) => {
        await forget(page);
        await page.evaluate(([id, text]) => window.holdfast.trainer.resume(id, { steps: 12, text }), [
          id,
          TEXT,
        ] as const);
        await event(page, 'ended');
        return page.evaluate(async (id) => {
          const { trainer } = window.holdfast;
          const { steps } = await trainer.history(id);
          const written = await trainer.sample(id, { prompt: 'what ', tokens: 9, temperature: 0 });
          return { losses: steps.map(({ loss }) => loss), written };
        }, id);
      };
      const wanted = await goOn(first, id);

      const other = await open(await newContext(browser, site), site.isolated);
      const alone = await bring(other, zip);
      expect(alone).toMatch(
        /^this run trains a low-rank update of a model that is not here \(Llama of 2 layers, width 32\); bring that model/,
      );
      // One of the same shape is another.
      const stranger = await publishedModel(TEXT, { rms_norm_eps: 1e-6 });
      const wrong = { ...stranger, 'config.json': model['config.json'] ?? bytesOf('') };
      const changedModel = { ...wrong, 'model-00001-of-00002.safetensors': flipped(wrong) };
      await keep(other, { strange: changedModel });
      expect(await bring(other, zip)).toMatch(/, and “strange” has other weights; bring that model/);
      expect(await other.evaluate(async () => (await window.holdfast.trainer.runs()).length)).toBe(1);

      const here = (await bring(other, baseZip)) as { id: string };
      const run = await bring(other, zip);
      expect(run).toMatchObject({ name: 'animals', status: 'imported', savedStep: 8, settings: { lora: LORA } });
      const { id: again, settings: found } = run as unknown as { id: string; settings: { from: string } };
      expect(found.from).toBe(await other.evaluate((id) => window.holdfast.trainer.weightsOf(id), here.id));
      expect(await goOn(other, again)).toEqual(wanted);
      await Promise.all([first, other].map((page) => page.context().close()));
    },
  );

  describe('files that are no model that it can train', () => {
    let page: Page;
    beforeAll(async () => {
      page = await open(await newContext(browser, site), site.isolated);
    });
    afterAll(() => page.context().close());

    test.each([
      ['no config', without('config.json'), /config\.json/],
      ['no weights', without('model.safetensors.index.json'), /there is no model\.safetensors/],
      ['a missing shard', without('model-00002-of-00002.safetensors'), /model-00002-of-00002\.safetensors is missing/],
      ['no tokenizer', without('tokenizer.json'), /its vocabulary has 320 tokens, of a tokenizer that is not there/],
      ['an unknown architecture', changed({ model_type: 'mamba', architectures: ['MambaForCausalLM'] }), /mamba/],
      ['a field that would change the result', changed({ attention_multiplier: 2 }), /attention_multiplier/],
      [
        'a tokenizer of another vocabulary',
        withToken,
        /its tokens go up to 500, the vocabulary of tiny-llama ends at 319/,
      ],
      ['a header that promises more than there is', truncated, /model-00001-of-00002\.safetensors/],
      ['a config that is no JSON', (files) => ({ ...files, 'config.json': bytesOf('{') }), /config\.json/],
    ] as [string, (files: Folder) => Folder, RegExp][])(
      '%s: one line, and nothing changes',
      async (_, change, line) => {
        const said = await inspect(page, { 'tiny-llama': change(model) });
        expect(said).toMatch(line);
        expect(said).not.toContain('\n');
        const kept = await page.evaluate(() => window.holdfast.trainer.runs());
        expect(kept).toEqual([]);
      },
    );
  });

  test('an adapter alone, and one of another model', async () => {
    const page = await open(context, site.isolated);
    const zip = zipSync({ ...adapter });
    for (const alone of [{ mine: adapter }, { '': { 'mine.zip': zip } }] as const)
      expect(await inspect(page, alone)).toContain('this is an adapter without its model');
    // As a zip it is none of a run, and goes with a model that is in files or in a zip of its own.
    const asRun = await page.evaluate(
      async (bytes) => {
        const file = new File([Uint8Array.from(bytes)], 'mine.zip');
        const { trainer } = window.holdfast;
        return [
          await trainer.isAdapterZip(file),
          await trainer.importRun([file]).catch((error: Error) => error.message),
        ];
      },
      [...zip],
    );
    expect(asRun).toEqual([
      true,
      'this is an adapter without its model; bring the model first, and then the adapter beside it',
    ]);
    const zipped = { 'tiny.zip': zipSync({ ...model }), 'mine.zip': zip };
    for (const both of [{ 'tiny-llama': model, '': { 'mine.zip': zip } }, { '': zipped }] as const)
      expect(await inspect(page, both)).toMatchObject({ adapter: { rank: 2 }, tokens: 312 });
    expect(await inspect(page, { '': { ...zipped, 'other.zip': zip } })).toContain('there are 2 adapters');
    const other = {
      ...adapter,
      'adapter_config.json': bytesOf({ peft_type: 'LORA', r: 3, target_modules: ['q_proj'] }),
    };
    expect(await inspect(page, { 'tiny-llama': model, mine: other })).toMatch(/^mine: /);
  });
});

describe('the page', () => {
  const TRAINING = { context: 64, batch: 2, lr: 0.02, evalEvery: 10, evalWindows: 2, sampleEvery: 10, saveEvery: 10 };
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'published-'));
    mkdirSync(path.join(folder, 'tiny-llama'));
    for (const [name, bytes] of Object.entries(model)) writeFileSync(path.join(folder, 'tiny-llama', name), bytes);
    writeFileSync(path.join(folder, 'chats.jsonl'), CHATS);
  });
  afterAll(() => rmSync(folder, { recursive: true }));
  afterEach(() => expect(misdeeds.splice(0)).toEqual([]));

  const demo = async () => ready(await newContext(browser, site), `${site.isolated}demo/`);
  const own = (page: Page) => page.locator('#own-facts', { hasText: 'Llama 2 × 32' }).waitFor();
  const kept = (page: Page) =>
    page.evaluate(async () => {
      const names: string[] = [];
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast');
      for await (const name of root.keys()) if (name === 'runs') names.push(name);
      return names;
    });

  test('a folder is chosen, learns conversations by LoRA, is asked with its adapter and without, and exported', async () => {
    const page = await demo();
    // In too little room first.
    const quota = await quotaOf(page);
    await quota(20_000);
    await page.setInputFiles('#own-folder', path.join(folder, 'tiny-llama'));
    await own(page);
    expect(await page.textContent('#own-facts')).toBe('Llama 2 × 32 · 312 tokens of its own · chat template');
    expect(await page.textContent('#own-note')).toMatch(
      /^[\d.]+ KB to keep here, and this site may keep [\d.]+ KB more: remove runs, or make room\.$/,
    );
    expect(await page.locator('#own-note').getAttribute('class')).toContain('problem');
    const refused = page.locator('#own-verdict.problem');
    await refused.filter({ hasText: /^It does not fit: on disk it takes up to [\d.]+ [KM]B, and/ }).waitFor();
    await quota();
    expect(await page.getByRole('radio', { name: /^tiny-llama [\d.]+k parameters$/ }).isChecked()).toBe(true);
    // What it needs is said, and nothing of it is here yet.
    await page.locator('#fact-parameters', { hasText: '40,' }).waitFor();
    expect(await page.textContent('#fact-smallest')).toMatch(/KB$/);
    const trained = await page.textContent('#fact-trained');
    expect(await kept(page)).toEqual([]);

    await page.setInputFiles('#files', path.join(folder, 'chats.jsonl'));
    await page.locator('#text-note', { hasText: /^chats\.jsonl: [\d.]+ KB, conversations$/ }).waitFor();
    await fillSettings(page, { ...TRAINING, steps: 20, rank: 4, alpha: 8 });
    // Of what is written, not of a field that is half written.
    const others = ['–', trained];
    await expect.poll(async () => others.includes(await page.textContent('#fact-trained'))).toBe(false);
    const verdict = page.locator('#own-verdict:not(.problem)');
    await verdict.filter({ hasText: /^It fits: it takes [\d.]+ [KM]B of GPU memory without a budget/ }).waitFor();
    expect(await page.textContent('#own-note')).toMatch(/^[\d.]+ KB to keep here; [\d.]+ [KMGT]B are free\.$/);
    // The least budget that an adapter trains in is too small for all of it.
    await page.locator('#budget').press('Home');
    await verdict.filter({ hasText: /^It fits: the GPU budget is ([\d.]+ KB), and \1 are enough/ }).waitFor();
    await page.getByRole('radio', { name: 'All of it every weight' }).check();
    await refused.filter({ hasText: 'the least that works: train by LoRA, raise the budget' }).waitFor();
    for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
    await page.getByRole('radio', { name: 'LoRA a small adapter' }).check();
    await page.locator('#budget').press('End');
    await verdict.filter({ hasText: /^It fits: it takes/ }).waitFor();
    await fillSettings(page, { lr: 0.02 });
    for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
    await page.click('#train');
    await says(page, /^Done after 20 steps/);
    const names = () => page.locator('#runs .name').allTextContents();
    await expect.poll(names).toEqual(['tiny-llama, LoRA', 'tiny-llama']);
    expect(await page.textContent('#own-note')).toMatch(/^[\d.]+ KB, kept here\.$/);

    await page.getByRole('radio', { name: 'Both' }).check();
    await page.fill('#prompt', 'what says the cat?');
    await page.fill('#temperature', '0');
    await page.fill('#length', '12');
    await page.click('#write');
    await page.locator('#sample-title', { hasText: 'a conversation' }).waitFor();
    expect(await page.locator('#chat .question').allTextContents()).toEqual(['what says the cat?']);
    expect(await page.locator('#chat h4').allTextContents()).toEqual(['with the adapter', 'without']);
    const [low, base] = await page.locator('#chat .answers p').allTextContents();
    expect(low).not.toBe(base);
    for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
    // A text that would take long is stopped, and only by its button; another may be asked for. At temperature 0 it
    // repeats itself: a drawn one may end by itself before it is stopped.
    await page.getByRole('radio', { name: 'Text', exact: true }).check();
    await page.fill('#prompt', 'what ');
    // More than a person may ask for: no machine is so busy that it is written before it is stopped.
    await page.locator('#length').evaluate((input) => input.removeAttribute('max'));
    await page.fill('#length', '100000');
    await page.fill('#temperature', '0');
    await page.click('#write');
    await page.locator('#sample p', { hasText: /./ }).first().waitFor();
    await page.press('#prompt', 'Enter');
    await page.getByRole('button', { name: 'Stop', exact: true }).and(page.locator('#write')).click();
    await page.locator('#sample-title', { hasText: /^asked for, at temperature 0, stopped$/ }).waitFor();
    await page.locator('#write', { hasText: /^Write$/ }).waitFor();
    // The other side was not begun.
    expect(await page.locator('#sample p').allTextContents()).toEqual([expect.stringMatching(/./), '']);

    const tuned = await row(page);
    for (const [form, name] of [
      ['adapter', 'tiny-llama-LoRA-adapter.zip'],
      ['model bf16', 'tiny-llama-LoRA-model.zip'],
      ['gguf Q8_0', 'tiny-llama-LoRA-Q8_0.gguf'],
    ] as const) {
      await tuned.getByRole('button', { name: 'Export model' }).click();
      await page.locator('#dialog select').selectOption(form);
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.locator('#dialog').getByRole('button', { name: 'Export' }).click(),
      ]);
      expect(file.suggestedFilename()).toBe(name);
    }
    // What it goes back to stays.
    const other = await row(page, 1);
    await other.getByRole('button', { name: 'Remove' }).click();
    await page.locator('#dialog').getByRole('button', { name: 'Remove' }).click();
    await says(page, /needs its weights/);
    await page.context().close();
  });

  test('loose files are dropped, all of the model trains on text in its own tokens, and it goes on after a reload', async () => {
    const page = await demo();
    await page.getByRole('radio', { name: 'Your own', exact: true }).check();
    await page.fill('#paste', TEXT);
    await dropAll(page, model);
    await own(page);
    await page.getByRole('radio', { name: 'All of it every weight' }).check();
    await expect.poll(() => page.locator('#trained').isHidden()).toBe(true);
    await fillSettings(page, { ...TRAINING, steps: 100_000 });
    await page.click('#train');
    await says(page, /^Training/);
    await steps(page, 12);
    await page.reload();
    await says(page, /^Going on from step [1-9]\d*0/);
    await steps(page, 21);
    await page.click('#stop:enabled');
    await says(page, /^Stopped after \d+ steps/);
    // 5.77 nats where each of its 320 tokens is as likely.
    expect(Number(await page.textContent('#now-loss'))).toBeLessThan(4.5);
    expect(await page.locator('#runs .name').first().textContent()).toBe('Llama 2 × 32, tuned');
    expect(await page.locator('#adapters').isHidden()).toBe(true);
    // The model itself is chosen anew from what is kept.
    await (await row(page, 1)).getByRole('button', { name: 'Use as model' }).click();
    await page.locator('#own-note', { hasText: 'kept here' }).waitFor();
    await page.context().close();
  });

  test('a GGUF file is dropped and tuned; the run goes out as a zip and, where its model is, comes in again', async () => {
    const page = await demo();
    const files = new MemoryFiles(
      Object.fromEntries(Object.entries(model).map(([name, bytes]) => [`m/${name}`, bytes])),
    );
    const exported = { ...(await loadWeights(files, 'm')), files, folder: 'm', name: 'm' };
    await exportGGUF(files, 'm.gguf', exported, { type: 'Q8_0', modelfile: false });
    await dropAll(page, { 'some-Q8_0.gguf': await files.read('m.gguf') });
    await own(page);
    expect(await page.textContent('#own-facts')).toBe('Llama 2 × 32 · 312 tokens of its own · chat template');
    expect(await page.textContent('#own-name')).toBe('some-Q8_0');
    for (const width of [360, 1280]) expect(await overflow(page, width), `${width} pixels`).toBeLessThanOrEqual(0);
    await page.getByRole('radio', { name: 'Your own', exact: true }).check();
    await page.fill('#paste', TEXT);
    await fillSettings(page, { ...TRAINING, steps: 6, rank: 2, alpha: 4 });
    await page.click('#train');
    await says(page, /^Done after 6 steps/);
    const names = () => page.locator('#runs .name').allTextContents();
    await expect.poll(names).toEqual(['some-Q8_0, LoRA', 'some-Q8_0']);
    const tuned = await row(page);
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      tuned.getByRole('button', { name: 'Export zip' }).click(),
    ]);
    const zip = path.join(folder, file.suggestedFilename());
    await file.saveAs(zip);
    await tuned.getByRole('button', { name: 'Remove' }).click();
    await page.locator('#dialog').getByRole('button', { name: 'Remove' }).click();
    await expect.poll(names).toEqual(['some-Q8_0']);
    await page.setInputFiles('#import', zip);
    await says(page, /^Imported “some-Q8_0-LoRA”/);
    await expect.poll(names).toEqual(['some-Q8_0-LoRA', 'some-Q8_0']);
    // Without its model it stays outside, and says what it needs.
    const empty = await demo();
    await empty.setInputFiles('#import', zip);
    expect(await says(empty, /a low-rank update of a model that is not here/)).not.toContain('\n');
    await Promise.all([page, empty].map((each) => each.context().close()));
  });

  test('what cannot be used is one line, and what was chosen stays', async () => {
    const page = await demo();
    await dropAll(page, { ...model, 'config.json': bytesOf({ model_type: 'mamba' }) });
    expect(await says(page, /mamba/)).not.toContain('\n');
    expect(await page.getByRole('radio', { name: 'Tiny' }).isChecked()).toBe(true);
    await page.setInputFiles('#own-folder', path.join(folder, 'tiny-llama'));
    await own(page);
    await dropAll(page, { 'config.json': model['config.json'] ?? bytesOf('') });
    await page.locator('#own-note.problem', { hasText: 'there is no model.safetensors' }).waitFor();
    expect(await page.textContent('#own-name')).toBe('tiny-llama');
    // An adapter goes with the model that is there, in a zip as the page exports it, too.
    await dropAll(page, { 'mine-adapter.zip': zipSync({ ...adapter }) });
    await page.locator('#own-facts', { hasText: 'adapter of rank 2' }).waitFor();
    expect(await page.locator('#field-rank').inputValue()).toBe('2');
    expect(await page.locator('#field-rank').isDisabled()).toBe(true);
    expect(await kept(page)).toEqual([]);
    await page.context().close();
  });
});

/** Sets what the page's site may keep, in bytes; without a number, what it may by itself. */
async function quotaOf(page: Page): Promise<(bytes?: number) => Promise<unknown>> {
  const client = await page.context().newCDPSession(page);
  const { origin } = new URL(page.url());
  return (bytes) =>
    client.send('Storage.overrideQuotaForOrigin', { origin, ...(bytes !== undefined && { quotaSize: bytes }) });
}

function without(name: string) {
  return (files: Folder): Folder => Object.fromEntries(Object.entries(files).filter(([other]) => other !== name));
}

function changed(changes: Readonly<Record<string, unknown>>) {
  return (files: Folder): Folder => {
    const config = JSON.parse(new TextDecoder().decode(files['config.json']));
    return { ...files, 'config.json': bytesOf({ ...config, ...changes }) };
  };
}

/** A token that the model has no row for. */
function withToken(files: Folder): Folder {
  const tokenizer = JSON.parse(new TextDecoder().decode(files['tokenizer.json']));
  tokenizer.added_tokens.push({ ...tokenizer.added_tokens[0], id: 500, content: '<|other|>' });
  return { ...files, 'tokenizer.json': bytesOf(tokenizer) };
}

/** Its first shard with another bit. */
function flipped(files: Folder): Uint8Array {
  const bytes = files['model-00001-of-00002.safetensors']?.slice() ?? new Uint8Array();
  bytes[bytes.length - 2] = (bytes.at(-2) ?? 0) ^ 1;
  return bytes;
}

function truncated(files: Folder): Folder {
  const name = 'model-00001-of-00002.safetensors';
  return { ...files, [name]: files[name]?.subarray(0, 300) ?? new Uint8Array() };
}
