// What a step takes whose optimizer runs on the host, beside the same step with the optimizer on the GPU, in the same memory: on
// paper for machines of docs/hardware.md, with all of a model offloaded, its values in host memory or most of them on disk; and
// measured here, in turns. By hand; it takes some minutes. It asks for built `dist/`.
//
//   npm run bench:optimizer -- [--rounds 5] [--steps 40] [--adapter NAME] [--json]
//
// On paper an aim is met where what the GPU computes is long enough to hide what the host does: each row says how long that is.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    steps: { type: 'string', default: '40' },
    adapter: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});
const [rounds, steps] = [options.rounds, options.steps].map(Number);
const DEVICES = ['gpu', 'cpu'];

/** GPT-2 124M: 2 GB of model data, in a fifth of it on the GPU, and in all or a half of it in host memory. */
const MACHINES = ['rtx-3050-laptop', 'rtx-3060', 'rtx-4070', 'rtx-4090', 'a100-80gb'];
const BATCHES = [4, 16];
const GPU = ['--gpu-memory', '1GB', '--activations', 'recompute'];
const TIERS = [
  { name: 'in host memory', flags: ['--host-memory', '8GB'] },
  { name: 'half on disk', flags: ['--host-memory', '1GB', '--disk', 'tiers'] },
];

/** Large enough that the host has something to do, small enough for a processor that runs shaders. */
const SHAPE = ['--layers', '4', '--width', '128', '--heads', '4', '--context', '64', '--batch', '8'];
const HERE = [
  { name: 'in host memory', flags: () => ['--gpu-memory', '6MB', '--host-memory', '64MB'] },
  { name: 'half on disk', flags: (folder) => ['--gpu-memory', '6MB', '--host-memory', '8MB', '--disk', folder] },
];

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
let runs = 0;
const env = { ...process.env, XDG_CACHE_HOME: path.join(folder, 'cache') };
try {
  const rows = { paper: onPaper(), here: measured() };
  if (options.json) console.log(JSON.stringify({ rounds, steps, ...rows }));
  else print(rows);
} finally {
  rmSync(folder, { recursive: true });
}

function command(...args) {
  const program = fileURLToPath(new URL('../../dist/holdfast.js', import.meta.url));
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...args], { env, encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

function onPaper() {
  return TIERS.flatMap((tier) =>
    MACHINES.flatMap((machine) =>
      BATCHES.map((batch) => {
        const flags = ['--hardware', machine, '--batch', `${batch}`, ...GPU, ...tier.flags, '--json'];
        const [gpu, cpu] = DEVICES.map((device) => JSON.parse(command('plan', ...flags, '--optimizer-device', device)));
        const { computeSeconds, waits } = cpu;
        return {
          ...{ name: `${machine}, batch ${batch}`, tier: tier.name, gpu: gpu.seconds, cpu: cpu.seconds },
          ...{ ratio: cpu.seconds / gpu.seconds, computeSeconds, waitsForHost: waits.host },
        };
      }),
    ),
  );
}

/** Each round trains with both, one after the other. */
function measured() {
  return HERE.map(({ name, flags }) => {
    const pairs = Array.from({ length: rounds }, (_, round) =>
      (round % 2 === 0 ? DEVICES : DEVICES.toReversed()).map((device) => [device, secondsOf(device, flags(folder))]),
    ).map(Object.fromEntries);
    const [gpu, cpu] = DEVICES.map((device) => median(pairs.map((pair) => pair[device])));
    return { name, gpu, cpu, ratio: median(pairs.map((pair) => pair.cpu / pair.gpu)) };
  });
}

function secondsOf(device, flags) {
  const out = ['--out', path.join(folder, `${runs++}`)];
  const adapter = options.adapter ? ['--adapter', options.adapter] : [];
  const own = ['--steps', `${steps}`, '--eval-windows', '1', '--optimizer-device', device, '--json'];
  const lines = command('train', ...SHAPE, ...flags, ...adapter, ...own, ...out)
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  return 1 / median(lines.flatMap(({ step, tokensPerSecond }) => (step === undefined ? [] : (tokensPerSecond ?? []))));
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

function print({ paper, here }) {
  const cells = (...texts) =>
    console.log(texts.map((text, i) => (i === 0 ? text.padEnd(44) : text.padStart(12))).join(''));
  const ms = (seconds) => (1000 * seconds).toFixed(0);
  cells('on paper, GPT-2 124M', 'GPU, ms', 'host, ms', 'ratio', 'arithmetic', 'for host');
  for (const { name, tier, gpu, cpu, ratio, computeSeconds, waitsForHost } of paper) {
    cells(`${name}, ${tier}`, ms(gpu), ms(cpu), ratio.toFixed(2), ms(computeSeconds), ms(waitsForHost));
  }
  cells(`here, ${rounds} pairs of ${steps} steps`, '', '', 'ratio');
  for (const { name, ratio } of here) cells(name, '', '', ratio.toFixed(2));
}
