// Checkpoints between the browser and Node: a run that was begun in one goes on in the other, with the same figures
// where the adapter is the same.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { unzipSync, zipSync } from 'fflate';
import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunSettings } from '../../src/browser/index.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { entry, field } from '../entry.ts';
import { close, event, forget, halted, launch, losses, newContext, open, SETTINGS, TEXT } from './driver.ts';
import { type Site, serve } from './site.ts';

let browser: Browser;
let site: Site;
let page: Page;
let folder: string;

beforeAll(async () => {
  [browser, site] = await Promise.all([launch(), serve()]);
  page = await open(await newContext(browser, site, { acceptDownloads: true }), site.isolated);
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-checkpoints-'));
  writeFileSync(path.join(folder, 'text'), TEXT);
});
afterAll(async () => {
  await close(browser, site);
  site.close();
  rmSync(folder, { recursive: true, force: true });
});

const HOLDFAST = path.resolve(import.meta.dirname, '../../dist/holdfast.js');
const holdfast = (...args: string[]) =>
  execFileSync(process.execPath, [HOLDFAST, ...args, '--adapter', 'software'], { encoding: 'utf8', cwd: folder });

/** Node's embedded adapter, which is also Chromium's here. */
const isEmbedded = process.platform === 'linux' && process.arch === 'x64';

test.runIf(isEmbedded)('begun in the browser, sampled, finished and replayed in Node', async () => {
  const id = await page.evaluate(
    async ({ settings, text }) => (await window.holdfast.trainer.start({ settings, text, name: 'my run' })).id,
    { settings: SETTINGS, text: TEXT },
  );
  await event(page, 'ended');
  const whole = await losses(page);
  // The first half anew, as a run of its own.
  await forget(page);
  const half = await halted(page, 13);
  const step = await page.evaluate(async () => {
    const { trainer } = window.holdfast;
    await trainer.stop();
    return (await trainer.runs())[0]?.savedStep ?? 0;
  });
  expect(step).toBeGreaterThanOrEqual(13);
  expect(step).toBeLessThan(40);

  const files = await download(half);
  expect(Object.keys(files).sort()).toEqual([
    'SHA256SUMS',
    'config.json',
    'holdfast_state.json',
    'model.safetensors',
    'optimizer.safetensors',
    'trainer_state.json',
  ]);
  const run = path.join(folder, 'from-browser');
  const checkpoint = path.join(run, `checkpoint-${step}`);
  mkdirSync(checkpoint, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(path.join(checkpoint, name), bytes);

  const lines = holdfast('train', '--resume', '--out', run, '--data', 'text', '--json').trim().split('\n');
  const steps = lines.map((line) => JSON.parse(line)).filter((line) => 'loss' in line && 'lr' in line);
  expect(steps).toHaveLength(40 - step);
  for (const { step, loss } of steps) expect(loss, `step ${step}`).toBeCloseTo(entry(whole, step), 4);
  const equal = steps.filter(({ step, loss }) => loss === whole.get(step)).length;
  expect(equal, 'steps with the same bits').toBe(steps.length);

  // The finished run of the browser and that of Node end in the same weights.
  const finished = await download(id);
  const ours = field(finished, 'model.safetensors');
  expect(Buffer.compare(ours, readFileSync(path.join(run, 'checkpoint-40', 'model.safetensors')))).toBe(0);
  expect(holdfast('generate', run, '--prompt', 'the ', '--tokens', '10')).toContain('the ');
  // Node trains the browser's run again from its seed, and computes the same.
  writeFileSync(path.join(folder, 'my-run.zip'), zipSync(finished));
  const verdict = holdfast('parity', 'my-run.zip', '--data', 'text', '--json');
  expect(JSON.parse(verdict)).toMatchObject({ case: 'my-run.zip', pass: true, worst: 0, sameBits: true });
});

test.runIf(isEmbedded)(
  'begun in Node, finished in the browser; a zip of the weights alone can be sampled from',
  async () => {
    const out = path.join(folder, 'from-node');
    const shape = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '16', '--batch', '2'];
    const quiet = ['--eval-every', '0', '--sample-every', '0', '--eval-windows', '4', '--warmup', '2'];
    const args = ['train', ...shape, ...quiet, '--steps', '40', '--data', 'text', '--out', out, '--json'];
    const read = (text: string) =>
      text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
        .filter((line) => 'lr' in line);
    holdfast(...args, '--until', '20');
    const checkpoint = path.join(out, 'checkpoint-20');
    const zip = zipSync(
      Object.fromEntries(
        readdirSync(checkpoint).map((name) => [`checkpoint-20/${name}`, readFileSync(path.join(checkpoint, name))]),
      ),
    );
    const wanted = read(holdfast('train', '--resume', '--out', out, '--data', 'text', '--json'));

    await forget(page);
    const imported = await upload('checkpoint-20.zip', zip);
    expect(imported).toMatchObject({
      name: 'checkpoint-20',
      status: 'imported',
      savedStep: 20,
      settings: { steps: 40 },
    });
    await page.evaluate(({ id, text }) => window.holdfast.trainer.resume(id, { text }), {
      id: imported.id,
      text: TEXT,
    });
    await event(page, 'ended');
    const found = await losses(page);
    expect([...found.keys()]).toEqual(wanted.map(({ step }) => step));
    for (const { step, loss } of wanted) expect(found.get(step), `step ${step}`).toBe(loss);

    const files = await download(imported.id);
    const alone = await upload(
      'weights.zip',
      zipSync(Object.fromEntries(['config.json', 'model.safetensors'].map((name) => [name, field(files, name)]))),
    );
    expect(alone).toMatchObject({ status: 'imported', savedStep: 0 });
    const request = { prompt: 'the ', tokens: 12, temperature: 0 };
    const texts = await page.evaluate(
      async ([request, a, b]) => [
        await window.holdfast.trainer.sample(a, request),
        await window.holdfast.trainer.sample(b, request),
      ],
      [request, imported.id, alone.id] as const,
    );
    expect(texts[0]).toBe(texts[1]);
    expect(texts[0]).toHaveLength(12);
  },
);

/** As the others, three blocks deep: of their chunks the budgets below hold a part. */
const DEEPER: RunSettings = {
  ...SETTINGS,
  config: parseConfig(
    { model_type: 'gpt2', vocab_size: 256, n_positions: 16, n_embd: 16, n_layer: 3, n_head: 2 },
    'the test',
  ),
  steps: 10,
};

test.runIf(isEmbedded).each<[string, Partial<RunSettings>]>([
  ['on the host', { optimizerDevice: 'cpu' }],
  // The embeddings and the first block's first tensors.
  ['on either', { optimizerDevice: 'auto', optimizerSplit: 6 }],
])(
  'AdamW %s, within the smallest budget and a disk: Node has the same bits, with everything on the GPU',
  async (_, change) => {
    const settings = { ...DEEPER, ...change };
    await forget(page);
    const { id, least, most } = await page.evaluate(
      async ({ settings, text }) => {
        const { trainer } = window.holdfast;
        const { unlimited: most, modelData } = await trainer.estimate(settings);
        const { smallest: least } = await trainer.estimate(settings, { gpu: most });
        const memory = { gpu: least, host: Math.round(modelData / 2), disk: 2 ** 24 };
        return { id: (await trainer.start({ settings, memory, text })).id, least, most };
      },
      { settings, text: TEXT },
    );
    expect(least).toBeLessThan(most / 2);
    await event(page, 'ended');
    const memory = await page.evaluate(() => window.events.findLast((heard) => heard.type === 'memory'));
    expect(memory?.gpuPeak).toBeLessThanOrEqual(least);
    expect(memory?.report.below.diskReadBytes).toBeGreaterThan(0);
    const zip = `${change.optimizerDevice}.zip`;
    writeFileSync(path.join(folder, zip), zipSync(await download(id)));
    const verdict = holdfast('parity', zip, '--data', 'text', '--json');
    expect(JSON.parse(verdict)).toMatchObject({ case: zip, pass: true, worst: 0, sameBits: true });
  },
);

test('a checkpoint of any size goes into a folder', async () => {
  const found = await page.evaluate(async () => {
    const { trainer } = window.holdfast;
    const id = (await trainer.runs()).find(({ savedStep }) => savedStep > 0)?.id ?? '';
    // Stands in for a folder that a person chose.
    const target = await (await navigator.storage.getDirectory()).getDirectoryHandle('chosen', { create: true });
    await trainer.exportFolder(id, target);
    const bytes = async (name: string) => (await (await target.getFileHandle(name)).getFile()).size;
    return { model: await bytes('model.safetensors'), state: await bytes('holdfast_state.json'), id };
  });
  expect(found.model).toBe((await download(found.id))['model.safetensors']?.length);
  expect(found.state).toBeGreaterThan(0);
});

test('what is no checkpoint is refused, and leaves nothing behind', async () => {
  const count = () => page.evaluate(async () => (await window.holdfast.trainer.runs()).length);
  const before = await count();
  const refusal = (name: string, bytes: Uint8Array) =>
    upload(name, bytes).then(String, (error: Error) => error.message.split('\n')[0]);
  expect(await refusal('a.zip', new Uint8Array(100))).toMatch(/a.zip is no zip file, or it is cut short/);
  expect(await refusal('config.json', new TextEncoder().encode('{}'))).toMatch(
    /there is no model.safetensors among the 1 files/,
  );
  const broken = zipSync({ 'config.json': new TextEncoder().encode('{}'), 'model.safetensors': new Uint8Array(9) });
  expect(await refusal('b.zip', broken)).toMatch(/config.json: model_type/);
  expect(await count()).toBe(before);
});

/** The files of a run's zip, as a person downloads it. */
async function download(id: string): Promise<Record<string, Uint8Array>> {
  const waiting = page.waitForEvent('download');
  await page.evaluate(async (id) => {
    const file = await window.holdfast.trainer.exportZip(id);
    const link = document.createElement('a');
    link.href = URL.createObjectURL(file);
    link.download = file.name;
    link.click();
  }, id);
  return unzipSync(readFileSync(await (await waiting).path()));
}

function upload(name: string, bytes: Uint8Array) {
  return page.evaluate(
    ({ name, bytes }) => window.holdfast.trainer.importRun([new File([Uint8Array.from(bytes)], name)]),
    { name, bytes: [...bytes] },
  );
}
