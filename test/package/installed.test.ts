// What works where the package was installed, with nothing of this repository around: the command line, the README's
// example, its types in a user's project.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bin, install, type Project, readmeExample, root } from './install.ts';

let project: Project;
beforeAll(() => {
  project = install();
});
afterAll(() => project?.remove());

const installed = (...names: string[]) => path.join(project.folder, 'node_modules', 'holdfast', ...names);

test('the command line trains on the default corpus, byte for byte, and says nothing on standard error', () => {
  const { stdout, stderr } = project.run('npx', '--no', 'holdfast', 'train', '--steps', '2', '--adapter', 'software');
  expect(stdout).toContain('corpus: 3,784,293 bytes');
  expect(stdout).toMatch(/done after 2 steps/);
  expect(stderr.replace(/^npm warn .*\n/gm, '')).toBe('');
  const state = JSON.parse(
    readFileSync(path.join(project.folder, 'runs/run-1/checkpoint-2/holdfast_state.json'), 'utf8'),
  );
  expect(state.corpus).toEqual({
    bytes: 3_784_293,
    sha256: '0623bc0bdba11eec8a241859abf73503bf748f53448d7e0043722e1fc1c4450d',
  });
});

test('the README’s library example runs', () => {
  // One step of its sixty: what it learns is test/platform/readme.test.ts's.
  project.write('example.mjs', readmeExample('ts').replace('step < 60', 'step < 1'));
  const { stdout } = project.run(process.execPath, 'example.mjs');
  expect(stdout).toMatch(/^0 [\d.]+\nvalidation [\d.]+\n$/);
});

test('the process is left as it was found: no globals, and the same setImmediate when the device is closed', () => {
  project.write(
    'globals.mjs',
    `const names = () => Object.getOwnPropertyNames(globalThis).sort().join();
const before = { names: names(), setImmediate };
const { openDevice } = await import('holdfast');
const { headlessHost } = await import('holdfast/headless');
const device = await openDevice(headlessHost(), { adapter: 'software' });
console.log(names() === before.names);
device.close();
await device.gpu.lost;
console.log(setImmediate === before.setImmediate);`,
  );
  expect(project.run(process.execPath, 'globals.mjs').stdout).toBe('true\ntrue\n');
});

describe('types', () => {
  const USE = `
import { type Batch, configOfShape, defaultSettings, HoldfastError, type LoraOptions, makeModel, openDevice, type RunOptions,
  type RunSettings, type RunSummary, type StepHooks, type StepMetrics, Trainer, type TrainerOptions, trainRun, withLora } from 'holdfast';
import { headlessHost } from 'holdfast/headless';
import { type Holdfast, openHoldfast, type RunEvent } from 'holdfast/browser';

const settings: RunSettings = defaultSettings({ steps: 2, config: configOfShape({ family: 'llama', kvHeads: 2 }) });
const lora: LoraOptions = { rank: 4, alpha: 8, targets: ['q_proj'] };
const hooks: StepHooks = { inspect: async (gradients) => void gradients.names.map((name) => name.length) };
const options: TrainerOptions = { batch: 4, seq: 32, schedule: { decay: 'cosine', peak: 1, min: 0, warmup: 0, steps: 1 } };

export async function train(batch: Batch): Promise<StepMetrics> {
  const device = await openDevice(headlessHost());
  const trainer = await Trainer.create(device, withLora(makeModel(configOfShape()), lora), options);
  const limit: number = device.gpu.limits.maxBufferSize;
  if (limit < 0) throw new HoldfastError('no room');
  return trainer.start([batch], hooks);
}
export function run(signal: AbortSignal): Promise<RunSummary> {
  const options: RunOptions = { signal, events: { step: ({ loss }) => console.log(loss.toFixed(3)) } };
  return openDevice(headlessHost()).then((device) => trainRun(headlessHost(), device, settings, 'out', options));
}
export async function page(): Promise<string> {
  const holdfast: Holdfast = await openHoldfast({ onEvents: (events: RunEvent[]) => console.log(events.length) });
  const { id } = await holdfast.trainer.start({ settings, memory: { gpu: 64e6 } });
  return holdfast.trainer.sample(id, { prompt: 'interface ' });
}
// @ts-expect-error: a misspelt setting is an error, so these are not \`any\`
defaultSettings({ stepz: 2 });
// @ts-expect-error: the loss is a number
export const wrong: Promise<{ loss: string }> = train({} as Batch);
`;

  // With every declaration checked; and without WebGPU's names, as a project for Node has it.
  test.each([
    ['bundler', 'esnext', { skipLibCheck: false }],
    ['nodenext', 'nodenext', { skipLibCheck: false }],
    ['nodenext', 'nodenext', { skipLibCheck: true, lib: ['es2023'] }],
  ])('resolve in a strict project: moduleResolution %s, module %s, %o', (moduleResolution, module, libraries) => {
    project.write('use.ts', USE);
    const types = { typeRoots: [path.join(root, 'node_modules/@types')], types: ['node'] };
    const strict = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true };
    const compilerOptions = { target: 'es2023', module, moduleResolution, ...libraries, ...strict, ...types };
    project.write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['use.ts'] }));
    expect(project.run(bin('tsc'), '-p', '.').stdout).toBe('');
  });
});

test('nothing is packed that an importer does not need', () => {
  expect(readdirSync(installed()).sort()).toEqual([
    'CHANGELOG.md',
    'LICENSE',
    'README.md',
    'assets',
    'dist',
    'package.json',
  ]);
  expect(existsSync(installed('dist', 'site'))).toBe(false);
  expect(existsSync(installed('dist', 'docs'))).toBe(false);
});

test('what the package depends on is what it imports', () => {
  const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(
    readFileSync(installed('package.json'), 'utf8'),
  );
  const names = readdirSync(installed('dist'), { recursive: true, encoding: 'utf8' });
  const text = (ending: RegExp) =>
    names.flatMap((name) => (ending.test(name) ? [readFileSync(installed('dist', name), 'utf8')] : [])).join('\n');
  const specifiers = [
    ...text(/^[^/\\]+\.js$/).matchAll(
      /(?:\bfrom |\bimport\(|require\.resolve\()["']((?:@[\w.-]+\/)?[a-z][\w.-]*)(?:\/[\w./-]+)?["']/g,
    ),
    ...text(/\.d\.ts$/).matchAll(/\bfrom ["']((?:@[\w.-]+\/)?[a-z][\w.-]*)(?:\/[\w./-]+)?["']/g),
  ].map(([, name]) => name);
  const known = { ...dependencies, ...optionalDependencies, ...peerDependencies };
  expect([...new Set(specifiers)].sort()).toEqual(Object.keys(known).sort());
});
