// What a bundler makes of the installed package: a Vite project that imports `holdfast/browser` is built, served, and
// trains in a page, with the workers and the default corpus that Vite found by itself.

import { readdirSync } from 'node:fs';
import path from 'node:path';
import type { Browser } from 'playwright';
import { build, type PreviewServer, preview } from 'vite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { launch } from '../browser/driver.ts';
import { install, type Project } from './install.ts';

const MAIN = `
import { configOfShape, defaultSettings, drawing, openHoldfast } from 'holdfast/browser';
import 'holdfast/browser/memory-colors.css';

const config = configOfShape({ layers: 1, width: 16, heads: 2, context: 16 });
const settings = defaultSettings({ config, batch: 2, steps: 2, evalWindows: 4, sampleTokens: 0 });
const ended = new Promise((resolve, reject) => {
  const onEvents = (events) => {
    for (const event of events) {
      if (event.type === 'ready') document.title = String(event.corpusBytes);
      if (event.type === 'failed') reject(new Error(event.message));
      if (event.type === 'ended') resolve(event.summary);
    }
  };
  openHoldfast({ onEvents }).then(({ trainer }) => trainer.start({ settings, memory: { gpu: 4e6, disk: 1e7 } })).catch(reject);
});
window.colors = drawing.readColors(document.documentElement);
window.summary = ended.catch((error) => ({ error: String(error) }));
`;

let project: Project;
let browser: Browser;
let server: PreviewServer;
beforeAll(async () => {
  project = install('--omit=optional');
  project.write(
    'index.html',
    '<!doctype html><link rel="icon" href="data:,"><script type="module" src="main.js"></script>',
  );
  project.write('main.js', MAIN);
  const config = { root: project.folder, configFile: false, logLevel: 'error' } as const;
  await build({ ...config, base: './', build: { target: 'es2023' } });
  server = await preview({ ...config, preview: { host: '127.0.0.1', port: 0 } });
  browser = await launch();
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  project?.remove();
});

test('a Vite project trains in a page, on the default corpus, within a budget', async () => {
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on('pageerror', ({ message }) => errors.push(message));
  await page.goto(server.resolvedUrls?.local[0] ?? server.resolvedUrls?.network[0] ?? '');
  const summary = await page.evaluate(() => (window as unknown as { summary: Promise<object> }).summary);
  expect(errors).toEqual([]);
  expect(summary).toMatchObject({ steps: 2, interrupted: false, skippedSteps: 0 });
  expect(await page.title()).toBe('3784293');
});

test('what Vite makes holds the text and the workers once each', () => {
  const names = readdirSync(path.join(project.folder, 'dist', 'assets')).map((name) =>
    name.replace(/-[\w-]{8}\./, '.'),
  );
  expect(names.filter((name) => /\.gz$|\.wasm$|trainer|disk/.test(name)).sort()).toEqual([
    'disk.js',
    'example.txt.gz',
    'highs.wasm',
    'trainer.js',
  ]);
});

test('and has the report’s colours of memory, dark where the page is', async () => {
  const page = await browser.newPage();
  const colors = async () => {
    await page.goto(server.resolvedUrls?.local[0] ?? server.resolvedUrls?.network[0] ?? '');
    return page.evaluate(() => (window as unknown as { colors: object }).colors);
  };
  const light = await colors();
  expect(light).toMatchObject({ gpu: '#2f7ea6', host: '#e6b25c', disk: '#9a8fae', unused: '#efefea' });
  await page.emulateMedia({ colorScheme: 'dark' });
  expect(await colors()).toMatchObject({ gpu: '#3f8fb5', unused: '#202427' });
});
