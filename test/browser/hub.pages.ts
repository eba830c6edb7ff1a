// Models by their names on the hub, in a page: a server of another origin plays the hub, with real ranges. What it needs is known
// from headers alone; what is kept came whole, and is the model that its files are. The demo page reaches the hub and
// nothing else, and says so where it cannot.

import type { Browser, BrowserContext } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { policyOf } from '../../demo/policy.ts';
import type { HubSource } from '../../src/formats/remote/hub-model.ts';
import { deferred } from '../../src/util/deferred.ts';
import { FileServer } from '../formats/file-server.ts';
import { launch, newContext, open, start } from './driver.ts';
import { type Folder, publishedModel } from './published.ts';
import { type Site, serve } from './site.ts';
import { overflow, prepare, ready, row, SMALL, says, steps, visit } from './visitor.ts';

const TEXT = 'what says the cat? the cat says meow. '.repeat(60);
const SHA = 'b'.repeat(40);

let browser: Browser;
let site: Site;
let context: BrowserContext;
let model: Folder;
let hub: FileServer;
let endpoint: string;

beforeAll(async () => {
  [browser, site, model] = await Promise.all([launch(), serve(), publishedModel(TEXT)]);
  context = await browser.newContext();
  const siblings = Object.keys(model).map((rfilename) => ({ rfilename }));
  hub = new FileServer({
    'api/models/owner/tiny-llama/revision/main': JSON.stringify({ sha: SHA, siblings }),
    ...Object.fromEntries(
      Object.entries(model).map(([name, bytes]) => [`owner/tiny-llama/resolve/${SHA}/${name}`, bytes]),
    ),
  });
  hub.behaviour.cors = true;
  endpoint = await hub.listen();
});
afterAll(async () => {
  await browser.close();
  site.close();
  await hub.close();
});

const weights = () => Object.entries(model).flatMap(([name, { length }]) => (/safetensors/.test(name) ? [length] : []));

test('the service looks into it, keeps it with progress, and has the model of its files', async () => {
  const page = await open(context, site.isolated);
  const source = { hub: 'owner/tiny-llama', endpoint };
  const found = await page.evaluate((source) => window.holdfast.trainer.inspectModel(source), source);
  expect(found).toMatchObject({ name: 'tiny-llama', tokens: 312, chats: true });
  expect(new Set(Object.values(found.stored))).toEqual(new Set(['bf16']));
  expect(found.bytes).toBe(weights().reduce((a, b) => a + b, 0));
  const asked = () => hub.requests.filter((request) => /-of-0000\d\.safetensors bytes=\d+-\d+$/.test(request));
  // Of each shard its first byte, eight bytes and the header.
  expect(asked()).toHaveLength(3 * 2);
  const kept = await page.evaluate(async (source) => {
    const { trainer } = window.holdfast;
    const seen: [number, number][] = [];
    const progress = (done: number, total: number) => void seen.push([done, total]);
    const { id } = await trainer.importModel(source, undefined, progress);
    return { seen, info: await trainer.inspectModel(id) };
  }, source);
  const total = Object.entries(model).reduce((sum, [, { length }]) => sum + length, 0);
  expect(kept.seen.at(-1)?.[1]).toBeGreaterThan(found.bytes);
  expect(kept.seen.at(-1)?.[1]).toBeLessThanOrEqual(total);
  expect(kept.seen.at(-1)?.[0]).toBe(kept.seen.at(-1)?.[1]);
  expect(kept.info).toMatchObject({ ...found, from: expect.any(String) });
  const missing = page.evaluate((source) => window.holdfast.trainer.inspectModel(source), { hub: 'a/b', endpoint });
  await expect(missing).rejects.toThrow(/a\/b: 127\.0\.0\.1:\d+ shows no such model; accept its licence at/);
});

test('one that asks for an account comes with the token that is given, which the hub alone sees, and nothing keeps', async () => {
  const own = await browser.newContext();
  const page = await open(own, site.isolated);
  const files = `owner/tiny-llama/resolve/${SHA}/`;
  const cdn = new FileServer(Object.fromEntries(Object.entries(model).map(([name, bytes]) => [`cdn/${name}`, bytes])));
  cdn.behaviour.cors = true;
  const token = 'hf_of_a_person';
  try {
    const redirect = { from: files, to: 'cdn/', server: await cdn.listen() };
    hub.behaviour = { cors: true, gated: { path: files, token }, redirect };
    const inspect = (source: HubSource) =>
      page.evaluate((source) => window.holdfast.trainer.inspectModel(source), source);
    const source = { hub: 'owner/tiny-llama', endpoint };
    hub.accounts = [];
    expect(await inspect({ ...source, token })).toMatchObject({ name: 'tiny-llama', tokens: 312 });
    expect(new Set(hub.accounts)).toEqual(new Set([`Bearer ${token}`]));
    expect(cdn.requests.length).toBeGreaterThan(3);
    expect(new Set(cdn.accounts)).toEqual(new Set([undefined]));
    await page.evaluate((source) => window.holdfast.trainer.importModel(source), { ...source, token });
    const runs = await page.evaluate(() => window.holdfast.trainer.runs());
    expect(JSON.stringify(runs)).not.toContain(token);
    expect(JSON.stringify(await own.storageState({ indexedDB: true }))).not.toContain(token);
    await expect(inspect(source)).rejects.toThrow(/answers 401; accept its licence at .* beside the name/);
  } finally {
    hub.behaviour = { cors: true };
    await own.close();
    await cdn.close();
  }
});

test('reloaded in the middle of a download, a page asks for the rest of it alone', async () => {
  const own = await browser.newContext();
  const page = await open(own, site.isolated);
  const source = { hub: 'owner/tiny-llama', endpoint };
  const [first, second] = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
  const [last, after] = [(model[second]?.length ?? 0) - 1, 8000];
  hub.requests = [];
  hub.behaviour.stall = { file: second, after };
  await page.evaluate((source) => void window.holdfast.trainer.importModel(source), source);
  await expect
    .poll(() => page.evaluate(filesHere))
    .toContainEqual([expect.stringMatching(/2\.saf.*\.incoming$/), after]);
  hub.behaviour.stall = undefined;
  await page.reload();
  // The worker from before holds its place until it has ended.
  await expect.poll(() => page.evaluate(async () => (await navigator.locks.query()).held)).toEqual([]);
  await start(page);
  const kept = await page.evaluate(async (source) => {
    const { trainer } = window.holdfast;
    const before = await trainer.runs();
    const { id } = await trainer.importModel(source);
    return { id, before, after: await trainer.runs(), info: await trainer.inspectModel(id) };
  }, source);
  expect(kept.before).toEqual([]);
  expect(kept.after).toMatchObject([{ id: kept.id, status: 'imported' }]);
  expect(kept.info).toMatchObject({ name: 'tiny-llama', tokens: 312, chats: true });
  const whole = hub.requests.filter(
    (request) => request.includes(first) && request.endsWith(`-${(model[first]?.length ?? 0) - 1}`),
  );
  expect(whole).toHaveLength(1);
  const asked = hub.requests.filter((request) => request.includes(second) && request.endsWith(`-${last}`));
  expect(asked.map((request) => request.replace(/.* bytes=/, ''))).toEqual([`0-${last}`, `${after}-${last}`]);
  const there = (await page.evaluate(filesHere)).filter(([path]) => !path.startsWith('cache/'));
  expect(there.map(([path]) => path.replace(`runs/${kept.id}/`, '')).sort()).toEqual(
    Object.keys(model)
      .filter((name) => name !== 'README.md')
      .sort(),
  );
  expect(there).toContainEqual([`runs/${kept.id}/${second}`, last + 1]);
  await own.close();
});

/** In a page: the files of its site, with their bytes. */
async function filesHere(): Promise<[path: string, bytes: number][]> {
  const found: [string, number][] = [];
  const look = async (folder: FileSystemDirectoryHandle, path: string) => {
    for await (const entry of folder.values()) {
      if (entry.kind === 'directory') await look(entry, `${path}${entry.name}/`);
      else found.push([`${path}${entry.name}`, (await entry.getFile()).size]);
    }
  };
  await look(await (await navigator.storage.getDirectory()).getDirectoryHandle('holdfast'), '');
  return found;
}

test('what is chosen while a model is fetched is not trained in its name, and no other run begins', async () => {
  const own = await newContext(browser, site);
  let answer: Promise<'whole' | 'none'> = Promise.resolve('whole');
  await own.route('https://huggingface.co/**', async (route) => {
    if ((await answer) === 'none') return route.abort('internetdisconnected');
    const { pathname, search } = new URL(route.request().url());
    await route.fulfill({ response: await route.fetch({ url: `${endpoint}${pathname}${search}` }) });
  });
  const page = await ready(own, `${site.isolated}demo/`);
  await prepare(page, TEXT.repeat(3), { ...SMALL, steps: 100_000 });
  await page.click('#train');
  await says(page, /^Training/);
  await steps(page, 1);
  await page.click('#stop:enabled');
  await says(page, /^Stopped/);
  const names = () => page.locator('#runs .name').allTextContents();
  const former = await page.locator('#runs .name').textContent();
  await page.locator('label:has(#own-name)').click();
  const note = page.locator('#own-note', { hasText: /^[\d.]+ \wB to keep here; .* are free\.$/ });
  const lookUp = async () => {
    answer = Promise.resolve('whole');
    await page.fill('#own-hub-name', 'owner/tiny-llama');
    await page.click('#own-hub button');
    await note.waitFor();
  };
  await lookUp();
  // Where it fails, what it takes is said again.
  answer = Promise.resolve('none');
  await page.click('#train');
  await says(page, /cannot be reached from here/);
  await note.waitFor();

  const held = deferred<'whole'>();
  answer = held.promise;
  await page.click('#train:enabled');
  await says(page, /^Preparing: the model is kept/);
  await (await row(page)).getByRole('button', { name: 'Go on' }).click();
  await says(page, /^A run is about to begin/);
  await page.getByRole('radio', { name: /^Tiny/ }).check();
  held.resolve('whole');
  await says(page, /^“tiny-llama” is kept here, and another model was chosen meanwhile/);
  expect(await names()).toEqual(['tiny-llama', former]);
  await own.close();
});

test('the page fetches by name: what it takes is said first, and offline why not', async () => {
  const own = await browser.newContext();
  // The hub's name leads to the server: what the page may connect to is decided before.
  await own.route('https://huggingface.co/**', async (route) => {
    const { pathname, search } = new URL(route.request().url());
    const response = await route.fetch({ url: `${endpoint}${pathname}${search}` });
    await route.fulfill({ response });
  });
  const page = await visit(own, `${site.isolated}demo/`);
  await page.locator('#train:enabled').waitFor();
  await page.locator('label:has(#own-name)').click();
  await page.fill('#own-hub-name', 'owner/tiny-llama');
  await page.click('#own-hub button');
  await page.locator('#own-note', { hasText: /^[\d.]+ \wB to keep here; .* are free\.$/ }).waitFor();
  expect(await page.textContent('#own-name')).toBe('tiny-llama');
  expect(await page.textContent('#own-facts')).toContain('312 tokens of its own');
  for (const width of [390, 1280]) expect(await overflow(page, width)).toBe(0);
  hub.behaviour.gated = { path: 'owner/tiny-llama/resolve/', token: 'hf_of_a_person' };
  await page.click('#own-hub button');
  await page.locator('#own-note', { hasText: /answers 401; accept its licence at https:/ }).waitFor();
  await page.fill('#own-hub-token', 'hf_of_a_person');
  await page.click('#own-hub button');
  await page.locator('#own-note', { hasText: /^[\d.]+ \wB to keep here; .* are free\.$/ }).waitFor();
  delete hub.behaviour.gated;
  await page.fill('#own-hub-token', '');
  await own.unroute('https://huggingface.co/**');
  await own.route('https://huggingface.co/**', (route) => route.abort('internetdisconnected'));
  await page.fill('#own-hub-name', 'owner/other');
  await page.click('#own-hub button');
  const note = page.locator('#own-note', { hasText: 'cannot be reached from here' });
  await note.waitFor();
  expect(await note.textContent()).toMatch(/^owner\/other: huggingface\.co cannot .* without it drop its folder$/);
  expect(await page.textContent('#own-name')).toBe('tiny-llama');
  await own.close();
});

test('workers may connect to the hub’s hosts, the page and reports to nothing but their own site', () => {
  const connect = (path: string) => /connect-src ([^;]+)/.exec(policyOf(path))?.[1];
  expect(connect('/')).toBe("'self'");
  expect(connect('/report.html')).toBe(undefined);
  expect(connect('/assets/trainer.js')).toBe("'self' https://huggingface.co https://*.huggingface.co https://*.hf.co");
});
