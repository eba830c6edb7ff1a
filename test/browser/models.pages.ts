// Models that a person brings to a page: looked into before their weights are read, trained whole or by a low-rank update,
// talked to, exported. First the library's service, then the demo page.

import { unzipSync } from 'fflate';
import type { Browser, BrowserContext, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ModelExport, ModelInfo, NewRun } from '../../src/browser/index.ts';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { collect } from '../../src/util/tensor-source.ts';
import { readGGUF } from '../formats/gguf/reader.ts';
import { MemoryFiles } from '../memory-files.ts';
import { event, launch, open, SETTINGS } from './driver.ts';
import { bytesOf, CHATS, type Folder, publishedAdapter, publishedModel } from './published.ts';
import { type Site, serve } from './site.ts';

const TEXT = 'what says the cat? the cat says meow. what says the dog? the dog says woof. '.repeat(60);

let browser: Browser;
let site: Site;
let context: BrowserContext;
let model: Folder;
const adapter = publishedAdapter();

beforeAll(async () => {
  [browser, site, model] = await Promise.all([launch(), serve(), publishedModel(TEXT)]);
  context = await browser.newContext();
});
afterAll(async () => {
  await browser.close();
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
    const { id: base, from, config } = await keep(page, { 'tiny-llama': model });
    const settings = {
      ...{ ...SETTINGS, config, lora: LORA, steps: 12, lr: 0.02, evalWindows: 2, seq: 64 },
      ...(from !== undefined && { from }),
    };
    const id = await train(page, { settings, text: CHATS, records: {}, name: 'animals' });
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
    expect(asked.voice).toEqual({ chats: true, adapter: true });
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
  ] as [string, (files: Folder) => Folder, RegExp][])('%s: one line, and nothing changes', async (_, change, line) => {
    const page = await open(await browser.newContext(), site.isolated);
    const said = await inspect(page, { 'tiny-llama': change(model) });
    expect(said).toMatch(line);
    expect(said).not.toContain('\n');
    const kept = await page.evaluate(() => window.holdfast.trainer.runs());
    expect(kept).toEqual([]);
    await page.context().close();
  });

  test('an adapter alone, and one of another model', async () => {
    const page = await open(context, site.isolated);
    expect(await inspect(page, { mine: adapter })).toContain('this is an adapter without its model');
    const other = {
      ...adapter,
      'adapter_config.json': bytesOf({ peft_type: 'LORA', r: 3, target_modules: ['q_proj'] }),
    };
    expect(await inspect(page, { 'tiny-llama': model, mine: other })).toMatch(/^mine: /);
  });
});

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

function truncated(files: Folder): Folder {
  const name = 'model-00001-of-00002.safetensors';
  return { ...files, [name]: files[name]?.subarray(0, 300) ?? new Uint8Array() };
}
