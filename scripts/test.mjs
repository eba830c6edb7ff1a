// `npm test`: lint, types, then the test suites: all of them on the embedded software adapter in Node, in Deno those that
// depend on the runtime, the device suites once more on every other adapter that is there, in Chromium, and in Firefox where the
// system has one, with what only a browser does. Says what ran where and what was skipped, and why; the last line counts.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChromium } from './chromium.mjs';
import { findFirefox } from './firefox.mjs';
import { missingTokenizers } from './published-tokenizers.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const bin = (name) => path.join(root, 'node_modules', '.bin', name);
const scratch = mkdtempSync(path.join(os.tmpdir(), 'holdfast-test-'));
const results = [];
let started = 0;

/** `npm run test:all`: faults at every single call, all random cases, everywhere. Takes hours. */
const all = process.argv.includes('--all');
if (all) process.env.HOLDFAST_TESTS = 'all';
/** Files named at the end. */
const SLOWEST = 12;
/** Of the suites that ask an adapter for answers, those that take minutes, and find the same code everywhere: they run on the first adapter. */
const LONG_SUITES = all
  ? []
  : [
      ...['losses', 'lost-for-good', 'moves', 'disk-faults', 'host-optimizer-faults', 'traces'],
      ...['accumulate-order', 'late-commits', 'narrow', 'stored', 'updates-ahead'],
    ].map((name) => `test/model/${name}.test.ts`);
/** The others of them. */
const DEVICE_SUITES = ['test/kernels', 'test/model', 'test/platform'].flatMap((folder) =>
  readdirSync(path.join(root, folder))
    .map((name) => `${folder}/${name}`)
    .filter((file) => file.endsWith('.test.ts') && !LONG_SUITES.includes(file)),
);
/**
 * What depends on the runtime: shaders through another compiler, devices and their loss, files, threads, processes, MPI.
 * The rest is the same code on the same JavaScript engine: it runs in Node.
 */
const RUNTIME_SUITES = [
  'test/platform/',
  ...['chat', 'kills', 'lost', 'train'].map((name) => `test/e2e/${name}.test.ts`),
  ...['kernels', 'reference', 'matmul', 'stored', 'host-adamw'].map((name) => `test/kernels/${name}.test.ts`),
  ...['parity', 'activations', 'step-order', 'gguf-generation'].map((name) => `test/model/${name}.test.ts`),
  ...['host-optimizer', 'host-threads'].map((name) => `test/model/${name}.test.ts`),
  ...['files', 'kept-checkpoints', 'living-run'].map((name) => `test/formats/${name}.test.ts`),
  ...['power-loss', 'remote', 'zip'].map((name) => `test/formats/${name}.test.ts`),
  ...['collectives', 'launcher', 'mpiexec'].map((name) => `test/ranks/${name}.test.ts`),
  'test/data/encoding-threads.test.ts',
];

check('lint', bin('biome'), ['check', '--error-on-warnings']);
check('types', bin('tsc'), []);

const missing = missingTokenizers(all);
if (missing) record({ name: 'tokenizers as published', note: `skipped: ${missing}` });

const { adapters } = JSON.parse(output(process.execPath, ['dist/holdfast.js', 'devices', '--json']));
const found = adapters.filter(({ name }) => name !== undefined);
const first = found.find(({ embedded }) => embedded) ?? found[0];
if (!first) record({ name: 'suites', failed: 1, note: 'no WebGPU adapter works here, not even the embedded one' });
else {
  await suites(`Node ${process.versions.node}, ${first.name}`, process.execPath, [], [], { adapter: first });
  for (const adapter of found) {
    if (adapter !== first) await suites(`Node, ${adapter.name}`, process.execPath, [], DEVICE_SUITES, { adapter });
  }
}
// Deno waits for its polls and Chromium runs one file at a time: side by side they fill two cores.
await Promise.all([inDeno(), inBrowser('Chromium', findChromium)]);
await inBrowser('Firefox', findFirefox);
if (!found.some(({ software }) => !software)) record({ name: 'GPU', note: 'skipped: this machine has none' });
if (!found.some(({ name }) => /llvmpipe/i.test(name))) {
  record({ name: 'llvmpipe', note: 'skipped: not installed, or older than Dawn accepts (Mesa 25 works)' });
}

rmSync(scratch, { recursive: true, force: true });
console.log('\nWhat ran where');
for (const { name, passed = 0, failed = 0, skipped = 0, seconds, note = '' } of results) {
  const counts = note.startsWith('skipped') ? '' : `${passed} passed, ${failed} failed, ${skipped} skipped`;
  console.log(`  ${name.padEnd(44)} ${counts}${seconds === undefined ? '' : `  (${seconds} s)`}  ${note}`.trimEnd());
}
for (const { name, slowest } of results) if (slowest) console.log(`  slowest in ${name}, s: ${slowest}`);
const total = (field) => results.reduce((sum, result) => sum + (result[field] ?? 0), 0);
console.log(`${total('passed')} passed, ${total('failed')} failed, ${total('skipped')} skipped`);
process.exit(total('failed') > 0 ? 1 : 0);

/** A tool that passes or fails as a whole. */
function check(name, command, args) {
  console.log(`\n== ${name}`);
  const start = Date.now();
  const { status } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  record({ name, passed: status === 0 ? 1 : 0, failed: status === 0 ? 0 : 1, seconds: since(start) });
}

async function inDeno() {
  const deno = bin('deno');
  if (!first) return;
  if (!existsSync(deno)) record({ name: 'Deno', skipped: 1, note: 'npm brought no Deno for this platform' });
  else {
    const filters = all ? [] : RUNTIME_SUITES;
    await suites(`Deno, ${first.name}`, deno, ['run', '-A', '--unstable-webgpu'], filters, { adapter: first });
  }
}

async function inBrowser(name, find) {
  const found = await find();
  if ('reason' in found) record({ name, note: `skipped: ${found.reason}` });
  else {
    const config = ['--config', 'config/vitest.browsers.ts'];
    await suites(`${name}, WebGPU`, process.execPath, [], config, { browser: name.toLowerCase(), aside: true });
  }
}

/** The test suites under one runtime on one adapter. `aside`: what they print is shown when they are done. */
async function suites(name, runtime, runtimeArgs, filters, { adapter, browser, aside = false } = {}) {
  console.log(`\n== ${name}${aside ? ', shown when it is done' : ''}`);
  const start = Date.now();
  const report = path.join(scratch, `${started++}.json`);
  const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const reporters = ['--reporter=dot', '--reporter=json', `--outputFile.json=${report}`];
  const plain = process.stdout.isTTY ? {} : { NO_COLOR: '1' };
  const wanted = adapter && { HOLDFAST_ADAPTER: adapter.embedded ? 'software' : adapter.name };
  const pages = browser && { HOLDFAST_BROWSER: browser, HOLDFAST_PAGE_CHOICES: path.join(scratch, `${browser}.json`) };
  const env = { ...process.env, ...plain, ...wanted, ...pages };
  const stdio = aside ? 'pipe' : 'inherit';
  const child = spawn(runtime, [...runtimeArgs, vitest, 'run', ...reporters, ...filters], { cwd: root, env, stdio });
  const printed = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (bytes) => printed.push(bytes));
  const [status] = await once(child, 'close');
  const seconds = since(start);
  if (aside) process.stdout.write(Buffer.concat([Buffer.from(`\n== ${name}\n`), ...printed]));
  if (!existsSync(report)) {
    record({ name, failed: 1, seconds, note: `the runner ended with status ${status} and no report` });
    return;
  }
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, success, testResults } = JSON.parse(
    readFileSync(report, 'utf8'),
  );
  const failed = numFailedTests + filesThatFailed(testResults) || (success && status === 0 ? 0 : 1);
  const skipped = numPendingTests + numTodoTests;
  record({ name, passed: numPassedTests, failed, skipped, seconds, slowest: slowestOf(testResults) });
}

/** Those of which no test failed: they could not be loaded, or what comes before their tests failed. */
function filesThatFailed(files) {
  const isFailed = ({ status }) => status === 'failed';
  return files.filter((file) => isFailed(file) && !file.assertionResults.some(isFailed)).length;
}

/** The files that took the longest, several of which run at once. */
function slowestOf(files) {
  return files
    .map(({ name, startTime, endTime }) => ({ file: path.relative(root, name), ms: endTime - startTime }))
    .sort((a, b) => b.ms - a.ms)
    .slice(0, SLOWEST)
    .map(({ file, ms }) => `${file.replace(/^test\//, '')} ${Math.round(ms / 1000)}`)
    .join(', ');
}

function record(result) {
  results.push(result);
}

function output(command, args) {
  const { stdout, stderr, status } = spawnSync(command, args, { cwd: root, encoding: 'utf8' });
  if (status === 0 || stdout) return stdout;
  console.error(stderr);
  return '{"adapters":[]}';
}

function since(start) {
  return Math.round((Date.now() - start) / 1000);
}
