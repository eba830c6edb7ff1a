// What a step of the default model takes within budgets, beside one of the same run without a budget, and what was predicted
// of it before such a run was there; and four times the batch in the memory of one. In Node, or in a page. By hand; it takes some minutes.
//
//   npm run bench:budgets -- [--rounds 3] [--steps 60] [--adapter NAME] [--measured | --page] [--json]
//
// --measured: behind `holdfast bench`, which measures what a dispatch and the link take; a page measures that itself.
// HOLDFAST_BROWSER=firefox: the page is Firefox's.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium, firefox } from 'playwright';
import { BROWSER, findBrowser } from '../../scripts/browsers.mjs';
import { serveLibrary } from './library-server.mjs';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    steps: { type: 'string', default: '60' },
    adapter: { type: 'string' },
    measured: { type: 'boolean', default: false },
    page: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const [rounds, steps] = [options.rounds, options.steps].map(Number);
const [BATCH, SEQ] = [8, 64];
/** Bytes of GPU memory that the default model took without a budget when the aims were set; it takes 7.9 MB now. */
const ALL = 8_233_184;
const CASES = [
  { name: 'without a budget', batch: BATCH },
  { name: 'a half', batch: BATCH, budget: Math.round(ALL / 2) },
  { name: 'a quarter', batch: BATCH, budget: Math.round(ALL / 4) },
  { name: 'a sixth', batch: BATCH, budget: Math.round(ALL / 6) },
  { name: 'four times the batch', batch: 4 * BATCH, budget: ALL },
];

const rows = CASES.map((one) => ({ ...one, seconds: [], predicted: [] }));
for (let round = 0; round < rounds; round++) {
  const timer = options.page ? await inPage() : inNode();
  try {
    for (const row of rows) {
      const { predicted, seconds } = await timer.time(row);
      row.seconds.push(seconds);
      if (predicted) row.predicted.push(predicted);
    }
  } finally {
    await timer.close();
  }
}
report();

/** Runs of the command line. Nothing is known in its cache folder but the adapter, what kernels were chosen, and runs before. */
function inNode() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  const env = { ...process.env, XDG_CACHE_HOME: path.join(folder, 'cache') };
  const command = (...args) => {
    const program = fileURLToPath(new URL('../../dist/holdfast.js', import.meta.url));
    const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...args], { env, encoding: 'utf8' });
    if (status !== 0) throw new Error(stderr);
    return stdout;
  };
  const shape = ['--layers', '2', '--width', '64', '--heads', '4', '--context', `${SEQ}`];
  const adapter = options.adapter ? ['--adapter', options.adapter] : [];
  if (options.measured) command('bench', ...adapter);
  let runs = 0;
  return {
    time({ batch, budget }) {
      const memory = ['--batch', `${batch}`, ...(budget ? ['--gpu-memory', `${budget}`] : [])];
      const plan = () =>
        JSON.parse(command('plan', ...adapter, ...shape, '--vocab-size', '256', ...memory, '--json')).step;
      const predicted = runs > 0 ? plan()?.seconds : undefined;
      const out = ['--out', path.join(folder, `${runs++}`)];
      const own = [...adapter, '--steps', `${steps}`, '--eval-windows', '1', '--json'];
      const lines = command('train', ...shape, ...memory, ...own, ...out)
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
      const speeds = lines.flatMap(({ step, tokensPerSecond }) => (step === undefined ? [] : (tokensPerSecond ?? [])));
      return { predicted, seconds: (batch * SEQ) / median(speeds) };
    },
    close: () => rmSync(folder, { recursive: true }),
  };
}

/** Runs in a page of a new browser. */
async function inPage() {
  const found = await findBrowser();
  if ('reason' in found) throw new Error(found.reason);
  const server = await serveLibrary();
  const browser = await { chromium, firefox }[BROWSER].launch(found.launch);
  const page = await (await browser.newContext()).newPage();
  await page.goto(server.address);
  let runs = 0;
  return {
    async time({ batch, budget }) {
      const { before, speeds } = await page.evaluate(trainInPage, { batch, budget, seq: SEQ, steps });
      const predicted = runs++ > 0 && before ? (batch * SEQ) / before : undefined;
      return { predicted, seconds: (batch * SEQ) / median(speeds) };
    },
    async close() {
      await browser.close();
      server.close();
    },
  };
}

/** In the page: what is expected of a run, and what each of its steps reached, in tokens a second. */
async function trainInPage({ batch, budget, seq, steps }) {
  const { openHoldfast, parseConfig } = await import('./index.js');
  const { promise, resolve, reject } = Promise.withResolvers();
  const speeds = [];
  const { trainer } = await openHoldfast({
    onEvents(events) {
      for (const event of events) {
        if (event.type === 'step') speeds.push(event.tokensPerSecond);
        if (event.type === 'ended') resolve();
        if (event.type === 'failed') reject(new Error(event.message));
      }
    },
  });
  const config = { model_type: 'gpt2', vocab_size: 256, n_positions: seq, n_embd: 64, n_layer: 2, n_head: 4 };
  const settings = {
    ...{ config: parseConfig(config, 'bench'), data: [], batch, seq, accumulate: 1, steps },
    ...{ lr: 0.006, minLr: 0.0006, schedule: 'cosine', warmup: 10, clip: 1, weightDecay: 0.1, seed: 1 },
    ...{ evalEvery: 0, evalWindows: 1, sampleEvery: 0, sampleTokens: 160, saveEvery: 0 },
  };
  const memory = budget ? { gpu: budget } : {};
  const before = (await trainer.estimate(settings, memory)).tokensPerSecond?.value;
  await trainer.start({ settings, memory });
  await promise;
  return { before, speeds };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

function report() {
  const base = median(rows[0].seconds) / BATCH;
  const all = rows.map(({ name, batch, budget, seconds, predicted }) => ({
    ...{ name, batch, budget, milliseconds: 1000 * median(seconds), ratio: median(seconds) / batch / base },
    ...(predicted.length > 0 && { off: median(predicted.map((one, i) => one / seconds[i])) - 1 }),
  }));
  if (options.json) {
    console.log(JSON.stringify({ rounds, steps, rows: all }));
    return;
  }
  console.log('                          MB   ms a step   a token, to the first   predicted');
  for (const { name, budget = ALL, milliseconds, ratio, off } of all) {
    const predicted = off === undefined ? '' : `${off < 0 ? '' : '+'}${(100 * off).toFixed(0)} %`;
    const cells = [(budget / 1e6).toFixed(2), milliseconds.toFixed(1), ratio.toFixed(2)];
    console.log(
      `${name.padEnd(22)}${cells[0].padStart(6)}${cells[1].padStart(12)}${cells[2].padStart(24)}${predicted.padStart(12)}`,
    );
  }
}
