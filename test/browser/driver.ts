// A person at a page, for tests: opens it, has the library in `window.holdfast`, gathers the events of its runs.

import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  firefox,
  type Page,
} from 'playwright';
import { BROWSER, findBrowser } from '../../scripts/browsers.mjs';
import type { Holdfast, MemorySettings, NewRun, RunEvent, RunSettings } from '../../src/browser/index.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Site } from './site.ts';

declare global {
  interface Window {
    library: typeof import('../../src/browser/index.ts');
    holdfast: Holdfast;
    events: RunEvent[];
    /** Waits for as long as it takes. */
    until(holds: () => unknown): Promise<void>;
    /** Starts a run that stands still from its beginning on; its id. */
    standing(run: NewRun): Promise<string>;
  }
}

/** A browser stops giving WebGPU to a site, and at all, when its GPU process crashes too often. */
const ANY_NUMBER_OF_CRASHES = ['--disable-domain-blocking-for-3d-apis', '--disable-gpu-process-crash-limit'];

/** What comes is waited for on a busy machine too: almost as long as a test may take. */
export const PATIENCE_MS = 280_000;

/** With other arguments than those that give WebGPU, if some are given. */
export async function launch(args?: string[]): Promise<Browser> {
  const found = await findBrowser();
  if ('reason' in found) throw new Error(found.reason);
  const options = { ...found.launch, timeout: PATIENCE_MS };
  if (BROWSER === 'firefox') return firefox.launch(options);
  return chromium.launch({ ...options, args: args ?? [...(found.launch.args ?? []), ...ANY_NUMBER_OF_CRASHES] });
}

/** A file with the kernel choices of contexts before, by adapter; `npm test` has one for all test files. @default none are kept */
const KNOWN_CHOICES = process.env['HOLDFAST_PAGE_CHOICES'];

/** What dispatches and arithmetic cost in seconds, made up. */
const COSTS = { dispatch: 1e-5, flop: 1e-9 };

/**
 * A storage of its own, with the kernel choices of those before it, and costs of steps if `costs` is not false: measuring them
 * takes longer than most runs of these tests. Which they are changes no test: none compares runs of two contexts, and what is not
 * known is measured.
 */
export async function newContext(
  browser: Browser,
  site: Site,
  { costs = true, ...options }: BrowserContextOptions & { readonly costs?: boolean } = {},
): Promise<BrowserContext> {
  await keepChoices(browser, site);
  const context = await browser.newContext(options);
  // Of pages that pages open, too.
  context.setDefaultTimeout(PATIENCE_MS);
  if (!KNOWN_CHOICES) return context;
  const choices = choicesIn(KNOWN_CHOICES);
  const known = Object.fromEntries(Object.keys(choices).map((adapter) => [adapter, { costs: COSTS, runs: {} }]));
  const page = await pageOf(context, site);
  await page.evaluate(
    async (caches) => {
      const root = await navigator.storage.getDirectory();
      const files = await root.getDirectoryHandle('holdfast', { create: true });
      const folder = await files.getDirectoryHandle('cache', { create: true });
      for (const [name, contents] of Object.entries(caches)) {
        const file = await folder.getFileHandle(name, { create: true });
        const writer = await file.createWritable();
        await writer.write(JSON.stringify(contents));
        await writer.close();
      }
    },
    { 'kernel-choices.json': choices, ...(costs && { 'step-times.json': known }) },
  );
  await page.close();
  return context;
}

/** Ends a browser, whose kernel choices later contexts have. */
export async function close(browser: Browser, site: Site): Promise<void> {
  await keepChoices(browser, site);
  await browser.close();
}

type Choices = Record<string, { readonly kernels: string; readonly choices: Record<string, string> }>;

function choicesIn(file: string): Choices {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Choices;
  } catch {
    return {};
  }
}

async function keepChoices(browser: Browser, site: Site): Promise<void> {
  if (!KNOWN_CHOICES) return;
  for (const context of browser.contexts()) {
    const page = await pageOf(context, site);
    const measured = await page.evaluate(async () => {
      try {
        const root = await navigator.storage.getDirectory();
        const folder = await (await root.getDirectoryHandle('holdfast')).getDirectoryHandle('cache');
        const file = await (await folder.getFileHandle('kernel-choices.json')).getFile();
        return JSON.parse(await file.text()) as Choices;
      } catch {
        return {};
      }
    });
    await page.close();
    const all = choicesIn(KNOWN_CHOICES);
    for (const [adapter, { kernels, choices }] of Object.entries(measured)) {
      const before = all[adapter]?.kernels === kernels ? all[adapter].choices : {};
      all[adapter] = { kernels, choices: { ...choices, ...before } };
    }
    // Two files may do this at once.
    writeFileSync(`${KNOWN_CHOICES}.${process.pid}`, JSON.stringify(all));
    renameSync(`${KNOWN_CHOICES}.${process.pid}`, KNOWN_CHOICES);
  }
}

/** A page of the site's origin that shows and runs nothing. */
async function pageOf(context: BrowserContext, site: Site): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(new URL('/nothing', site.isolated).href);
  return page;
}

/** Opens a page and the library in it. Errors: what `openHoldfast` says. */
export async function open(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => console.error(`page: ${error.message}`));
  await page.goto(url);
  await start(page);
  return page;
}

/** In a page that was loaded, or reloaded. */
export async function start(page: Page): Promise<void> {
  await page.evaluate(async () => {
    window.events = [];
    window.until = async (holds) => {
      while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
    };
    window.standing = async (run) => {
      const { trainer } = window.holdfast;
      const starting = trainer.start(run);
      let isRefused = false;
      starting.catch(() => {
        isRefused = true;
      });
      // Before it is heard that it has begun: by then it may be over.
      const isPaused = () =>
        trainer.pause().then(
          () => true,
          (error: Error) => {
            if (!error.message.startsWith('no run is open')) throw error;
            return false;
          },
        );
      while (!isRefused && !(await isPaused())) await new Promise((resolve) => setTimeout(resolve, 1));
      return (await starting).id;
    };
    window.holdfast = await window.library.openHoldfast({ onEvents: (events) => window.events.push(...events) });
  });
}

/** The first event of a kind since the page was loaded, waited for; a failed run is an error. */
export async function event<T extends RunEvent['type']>(
  page: Page,
  type: T,
  past = -1,
): Promise<Extract<RunEvent, { type: T }>> {
  const handle = await page.waitForFunction(
    ([type, past]) =>
      window.events.find(
        (event) => (event.type === type || event.type === 'failed') && !('step' in event && event.step <= past),
      ),
    [type, past] as const,
    // As long as a test may take.
    { timeout: 0 },
  );
  const found = (await handle.jsonValue()) as RunEvent;
  if (found.type === 'failed' && type !== 'failed') throw new Error(`the run failed: ${found.message}`);
  return found as Extract<RunEvent, { type: T }>;
}

/**
 * Starts a run and has it stand still after so many steps: what is done next is done before its end, however busy the
 * machine is. Returns its id.
 */
export async function halted(
  page: Page,
  steps: number,
  settings: RunSettings = SETTINGS,
  memory: MemorySettings = {},
): Promise<string> {
  return page.evaluate(
    async ({ steps, settings, memory, text }) => {
      const { trainer } = window.holdfast;
      const id = await window.standing({ settings, memory, text });
      const found = () => window.events.findLast((event) => event.type === 'paused' && event.run === id);
      await window.until(found);
      const paused = found();
      const done = paused?.type === 'paused' ? paused.step : 0;
      for (let n = done; n < steps; n++) await trainer.step();
      const last = Math.max(done, steps) - 1;
      await window.until(() => window.events.some((e) => e.type === 'step' && e.run === id && e.step >= last));
      return id;
    },
    { steps, settings, memory, text: TEXT },
  );
}

/** What was heard so far is another run's. */
export async function forget(page: Page): Promise<void> {
  await page.evaluate(() => {
    window.events = [];
  });
}

/** Loss by step, as the page heard it. */
export async function losses(page: Page): Promise<Map<number, number>> {
  const steps = await page.evaluate(() =>
    window.events.flatMap((e) => (e.type === 'step' ? [[e.step, e.loss] as const] : [])),
  );
  return new Map(steps);
}

/** A small model that learns a small text. */
export const SETTINGS: RunSettings = {
  config: parseConfig(
    { model_type: 'gpt2', vocab_size: 256, n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2 },
    'the test',
  ),
  data: [],
  batch: 2,
  seq: 16,
  accumulate: 1,
  steps: 40,
  lr: 0.01,
  minLr: 0.001,
  schedule: 'cosine',
  warmup: 2,
  clip: 1,
  weightDecay: 0.1,
  seed: 1,
  evalEvery: 0,
  sampleEvery: 0,
  sampleTokens: 20,
  saveEvery: 10,
  evalWindows: 4,
};

export const TEXT = 'the small model reads and writes again and again, and holds fast.\n'.repeat(150);
