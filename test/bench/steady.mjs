// Whether a run in Chromium stays as fast and as small as it began: the default model for 2,000 steps on the built
// library, its speed and its memory by tenths of the run. By hand; it takes some minutes.
//
//   npm run bench:steady -- [--steps 2000] [--json]

import { parseArgs } from 'node:util';
import { chromium } from 'playwright';
import { findChromium } from '../../scripts/chromium.mjs';
import { serveLibrary } from './library-server.mjs';

const TENTHS = 10;
const { values: options } = parseArgs({
  options: { steps: { type: 'string', default: '2000' }, json: { type: 'boolean', default: false } },
});
const steps = Number(options.steps);
const settings = {
  config: { model_type: 'gpt2', vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 2, n_head: 4 },
  ...{ data: [], batch: 8, seq: 64, accumulate: 1, steps },
  ...{ lr: 0.006, minLr: 0.0006, schedule: 'cosine', warmup: 100, clip: 1, weightDecay: 0.1, seed: 1 },
  ...{ evalEvery: 250, evalWindows: 64, sampleEvery: 250, sampleTokens: 160, saveEvery: 250 },
};

const found = await findChromium();
if ('reason' in found) throw new Error(found.reason);
const server = await serveLibrary();
const browser = await chromium.launch(found.launch);
try {
  const page = await browser.newPage();
  await page.goto(server.address);
  const heaps = await openHeaps(page);
  const tenths = [];
  await page.exposeFunction('tenth', async (tenth) => {
    tenths.push(Object.assign(tenth, await heaps()));
  });
  await page.evaluate(train, { settings, tenths: TENTHS });
  report(tenths);
} finally {
  await browser.close();
  server.close();
}

/** In the page: tells of each tenth of the run its speeds, and the GPU memory at its end. */
async function train({ settings, tenths }) {
  const { openHoldfast, parseConfig } = await import('./index.js');
  const told = [];
  let speeds = [];
  let gpu;
  let ended = () => {};
  const end = new Promise((resolve) => {
    ended = resolve;
  });
  const onEvents = (events) => {
    for (const event of events) {
      if (event.type === 'memory') gpu = event.gpuBytes;
      if (event.type === 'ended' || event.type === 'failed') ended(event);
      if (event.type !== 'step') continue;
      speeds.push(event.tokensPerSecond);
      if (((event.step + 1) * tenths) % settings.steps !== 0) continue;
      told.push(window.tenth({ speeds, gpu }));
      speeds = [];
    }
  };
  const { trainer } = await openHoldfast({ onEvents });
  await trainer.start({ settings: { ...settings, config: parseConfig(settings.config, 'bench') } });
  const last = await end;
  await Promise.all(told);
  if (last.type === 'failed') throw new Error(last.message);
}

/** What the page's and the trainer's JavaScript holds, in bytes, after garbage collection. */
async function openHeaps(page) {
  const session = await page.context().newCDPSession(page);
  const answers = new Map();
  let worker;
  let last = 0;
  session.on('Target.attachedToTarget', ({ sessionId }) => {
    worker ??= sessionId;
  });
  session.on('Target.receivedMessageFromTarget', ({ message }) => {
    const { id, result } = JSON.parse(message);
    answers.get(id)?.(result);
  });
  await session.send('Target.setAutoAttach', { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const ask = (method) =>
    new Promise((resolve) => {
      answers.set(++last, resolve);
      const message = JSON.stringify({ id: last, method });
      session.send('Target.sendMessageToTarget', { sessionId: worker, message });
    });
  return async () => {
    await session.send('HeapProfiler.collectGarbage');
    await ask('HeapProfiler.collectGarbage');
    const [own, its] = [await session.send('Runtime.getHeapUsage'), await ask('Runtime.getHeapUsage')];
    return { page: own.usedSize, worker: its.usedSize };
  };
}

function report(tenths) {
  const rows = tenths.map(({ speeds, ...memory }) => {
    const sorted = speeds.toSorted((a, b) => a - b);
    return { median: sorted[sorted.length >> 1], best: sorted.at(-1), ...memory };
  });
  const ratio = rows.at(-1).median / rows[0].best;
  if (options.json) {
    console.log(JSON.stringify({ steps, tenths: rows, ratio }));
    return;
  }
  const mb = (bytes) => (bytes / 1e6).toFixed(2).padStart(8);
  console.log('tenth  tokens/s: median    best   MB: GPU    page   worker');
  rows.forEach(({ median, best, gpu, page, worker }, i) => {
    const speeds = `${Math.round(median).toString().padStart(16)}${Math.round(best).toString().padStart(8)}`;
    console.log(`${String(i + 1).padStart(5)}${speeds}  ${mb(gpu)}${mb(page)} ${mb(worker)}`);
  });
  console.log(`the last tenth's median is ${ratio.toFixed(3)} of the first tenth's best`);
}
