// Holdfast beside its peers: the same GPT, weights and batches, on the same adapter through the same WebGPU,
// each library in a process of its own, in turn, round after round. Only ratios within one run mean anything; those of processor
// time depend less on what else runs than those of tokens a second.
//
//   npm run bench:peers -- [--adapter auto|software|NAME] [--rounds 3] [--seconds 5] [--json]

import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));
const peers = fileURLToPath(new URL('peers', import.meta.url));
const LIBRARIES = [
  { name: 'holdfast', file: 'holdfast.mjs' },
  { name: 'jax-js 0.1.25', file: 'jax.mjs' },
  { name: 'tfjs-webgpu 4.22.0', file: 'tfjs.mjs' },
];
/** The peers agree to 1e-6 on these losses; another order of sums moves them less than this. */
const LOSS_TOLERANCE = 1e-4;

const { values: options } = parseArgs({
  options: {
    adapter: { type: 'string', default: 'auto' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
  },
});
const { adapter, seconds } = options;
const rounds = Number(options.rounds);

if (!existsSync(`${root}/dist/index.js`)) run('npx', ['vite', 'build'], root);
if (!existsSync(`${peers}/node_modules`)) run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], peers);

const results = new Map(LIBRARIES.map(({ name }) => [name, []]));
for (let round = 1; round <= rounds; round++) {
  for (const { name, file } of LIBRARIES) {
    const result = await measure(file);
    results.get(name).push(result);
    process.stderr.write(
      `round ${round}: ${name}, ${Math.round(result.tokensPerSecond)} tokens/s on ${result.adapter}\n`,
    );
  }
}

const adapters = [...new Set([...results.values()].flat().map((result) => result.adapter))];
if (adapters.length > 1) throw new Error(`the libraries ran on different adapters: ${adapters.join(', ')}`);
const [, ...others] = LIBRARIES.map(({ name }) => ({ name, tokensPerSecond: median(tokensOf(name)) }));
const faster = others.reduce((best, peer) => (peer.tokensPerSecond > best.tokensPerSecond ? peer : best)).name;
const summaries = LIBRARIES.map(({ name }) => summary(name));
const difference = Math.max(
  ...summaries.flatMap(({ losses }) => losses.map((loss, i) => Math.abs(loss - summaries[1].losses[i]))),
);

if (options.json)
  console.log(JSON.stringify({ adapter: adapters[0], rounds, seconds: Number(seconds), summaries, difference }));
else print();
if (!(difference <= LOSS_TOLERANCE)) {
  console.error(
    `the losses differ by ${difference.toExponential(1)}, more than ${LOSS_TOLERANCE}: not the same training`,
  );
  process.exitCode = 1;
}

function run(command, args, cwd) {
  execFileSync(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** One library in a process of its own. Errors: what it wrote before it failed. */
function measure(file) {
  const child = spawn(process.execPath, [`${peers}/${file}`, adapter, seconds], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let errors = '';
  child.stdout.on('data', (text) => (output += text));
  child.stderr.on('data', (text) => (errors += text));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => {
      if (status === 0) resolve(JSON.parse(output.trim().split('\n').at(-1)));
      else reject(new Error(`${file} ended with status ${status}:\n${errors}${output}`));
    });
  });
}

function tokensOf(name) {
  return results.get(name).map(({ tokensPerSecond }) => tokensPerSecond);
}

/**
 * Medians over the rounds. The ratio is taken within each round, whose runs are neighbours in time. The losses
 * are the same in every round of a library, up to its kernel choices.
 */
function summary(name) {
  const list = results.get(name);
  const tokens = tokensOf(name);
  return {
    name,
    firstStepMilliseconds: median(list.map(({ firstStepMilliseconds }) => firstStepMilliseconds)),
    tokensPerSecond: median(tokens),
    least: Math.min(...tokens),
    most: Math.max(...tokens),
    ratio: median(tokensOf(faster).map((peer, round) => tokens[round] / peer)),
    processorMilliseconds: median(list.map(({ processorMilliseconds }) => processorMilliseconds)),
    processorRatio: median(
      results.get(faster).map((peer, round) => peer.processorMilliseconds / list[round].processorMilliseconds),
    ),
    losses: list[0].losses,
  };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

function print() {
  const to = `to ${faster}`;
  const header = ['', 'tokens/s', 'range', to, 'CPU ms/step', to, 'first step', 'losses of steps 1 and 8'];
  const rows = summaries.map((s) => [
    s.name,
    String(Math.round(s.tokensPerSecond)),
    `${Math.round(s.least)} - ${Math.round(s.most)}`,
    `${s.ratio.toFixed(2)} x`,
    s.processorMilliseconds.toFixed(1),
    `${s.processorRatio.toFixed(2)} x`,
    `${(s.firstStepMilliseconds / 1000).toFixed(2)} s`,
    `${s.losses[0].toFixed(5)} ${s.losses.at(-1).toFixed(5)}`,
  ]);
  const widths = header.map((_, i) => Math.max(...[header, ...rows].map((row) => row[i].length)));
  console.log(`${adapters[0]}; medians of ${rounds} rounds of ${seconds} s`);
  for (const row of [header, ...rows]) {
    console.log(
      row
        .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])))
        .join('  ')
        .trimEnd(),
    );
  }
  console.log(`largest difference between the losses of the first steps: ${difference.toExponential(1)}`);
}
