// Adapters and their bases by names on the hub: a base that was named so is named so in the adapter's files, where PEFT finds
// it; and an adapter there is used with the base that it names. In process, on the adapter under test.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { join } from '../../src/runtime/host.ts';
import { chooseVariants } from '../choose-variants.ts';
import { FileServer } from '../formats/file-server.ts';
import { ADAPTER } from '../host.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { sharedGPUSources } from '../shared-gpu.ts';

const root = mkdtempSync(path.join(os.tmpdir(), 'holdfast-hub-adapter-'));
const at = (name: string) => path.join(root, name);
const server = new FileServer({});
let address: string;
afterAll(async () => {
  await server.close();
  rmSync(root, { recursive: true, force: true });
});
afterEach(() => vi.unstubAllGlobals());
chooseVariants(3);

const { files } = headlessHost();
const network = fetch;
const SHA = 'c'.repeat(40);
/** Models whose commit was asked for, and of which revision. */
const asked: string[] = [];

/** The hub's addresses, on the server here. */
function online(): void {
  vi.stubGlobal('fetch', (input: string | URL | Request, init?: RequestInit) => {
    const { pathname } = new URL(String(input instanceof Request ? input.url : input));
    const [, name, revision] = /^\/api\/models\/(org\/\w+)\/revision\/(\w+)/.exec(pathname) ?? [];
    if (name !== undefined) {
      asked.push(`${name} ${revision}`);
      return Promise.resolve(Response.json({ id: name, sha: SHA, _id: '1' }));
    }
    return network(`${address}${pathname.replace(`/resolve/${SHA}/`, '/')}`, init);
  });
}

function offline(): void {
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('fetch failed')));
}

async function holdfast(...args: string[]): Promise<string> {
  const terminal = recordedTerminal();
  const adapter = args[0] === 'export' ? [] : ['--adapter', ADAPTER];
  const host = { ...headlessHost(), cacheFolder: at('cache'), terminal, gpuSources: sharedGPUSources };
  const status = await run({ ...host, args: [...args, ...adapter] });
  expect(`${status} ${terminal.said}`).toBe('0 ');
  return terminal.out;
}

async function refused(name: string) {
  const terminal = recordedTerminal();
  const host = { ...headlessHost(), cacheFolder: at('cache'), terminal, gpuSources: sharedGPUSources };
  const args = ['generate', name, '--prompt', 'hold', '--tokens', '1', '--adapter', ADAPTER];
  return { status: await run({ ...host, args }), said: terminal.said };
}

const write = (...args: string[]) =>
  holdfast('generate', ...args, '--prompt', 'hold', '--tokens', '16', '--temperature', '1');

/** Puts the files of a folder on the hub. */
async function publish(folder: string, name: string, chosen: (file: string) => boolean): Promise<void> {
  for (const file of (await files.list(folder)).filter(chosen))
    server.files.set(`${name}/${file}`, await files.read(join(folder, file)));
}

const TRAINING = [
  ...['--data', at('text.txt'), '--steps', '2', '--batch', '2', '--warmup', '0', '--lr', '0.05'],
  ...['--eval-windows', '2', '--sample-tokens', '0'],
];

beforeAll(async () => {
  address = await server.listen();
  writeFileSync(at('text.txt'), 'hold fast, and then hold on; '.repeat(100));
  const shape = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12'];
  await holdfast('train', ...shape, ...TRAINING, '--out', at('base'));
  await publish(at('base/checkpoint-2'), 'org/base', (file) => /^(config\.json|model\.safetensors)$/.test(file));
});

test('a GGUF file of the hub is a model by its name', async () => {
  await holdfast('export', at('base'), '--gguf', 'F32', '--out', at('base.gguf'));
  server.files.set('org/files/base.gguf', await files.read(at('base.gguf')));
  online();
  asked.length = 0;
  expect(await write('hf://org/files/base.gguf@v2')).toBe(await write(at('base.gguf')));
  expect(asked).toEqual(['org/files v2']);
});

test('a model is the one at its address as a browser shows it, and goes by its name', async () => {
  online();
  const named = await write('hf://org/base@v1');
  for (const shown of ['https://huggingface.co/org/base', 'https://hf.co/org/base/tree/v1?library=transformers#main']) {
    asked.length = 0;
    expect(await write(shown), shown).toBe(named);
    expect(asked).toEqual([`org/base ${shown.includes('v1') ? 'v1' : 'main'}`]);
  }
  await holdfast('finetune', 'https://huggingface.co/org/base/tree/v1', ...TRAINING, '--out', at('shown'));
  const { settings } = JSON.parse(
    new TextDecoder().decode(await files.read(at('shown/checkpoint-2/holdfast_state.json'))),
  );
  expect(settings.fromHub).toBe('org/base@v1');
  offline();
  expect((await refused('https://huggingface.co/org/base')).status).toBe(0);
});

test('an address on the hub that is no model is one line and status 2', async () => {
  online();
  for (const [shown, said] of [
    ['https://huggingface.co/datasets/org', 'is no name on the hub'],
    [
      'https://huggingface.co/org/base/blob/main/config.json',
      'is a part of a model; name the model, hf://org/base@main',
    ],
  ] as const) {
    const { status, said: line } = await refused(shown);
    expect([status, line]).toEqual([2, expect.stringMatching(/^holdfast: https:[^\n]+\n$/)]);
    expect(line).toContain(said);
  }
});

describe('a run that trains an adapter of a model from the hub', () => {
  const checkpoint = at('tuned/checkpoint-2');

  beforeAll(async () => {
    online();
    await holdfast('finetune', 'hf://org/base', ...TRAINING, '--lora-rank', '2', '--out', at('tuned'));
    vi.unstubAllGlobals();
    await publish(checkpoint, 'org/adapter', (file) => file.startsWith('adapter_'));
  });

  test('names its base as the hub does', async () => {
    const fields = JSON.parse(new TextDecoder().decode(await files.read(join(checkpoint, 'adapter_config.json'))));
    expect([fields.base_model_name_or_path, fields.revision]).toEqual(['org/base', null]);
  });

  test('and the base itself is there without the network, once it was brought', async () => {
    offline();
    const terminal = recordedTerminal();
    const args = ['generate', 'hf://org/base', '--prompt', 'hold', '--tokens', '16', '--temperature', '1'];
    const host = { ...headlessHost(), cacheFolder: at('cache'), gpuSources: sharedGPUSources };
    expect(await run({ ...host, terminal, args: [...args, '--adapter', ADAPTER] })).toBe(0);
    expect(terminal.said).toBe(
      'holdfast: hf://org/base: the hub cannot be reached; it is taken as it was brought before\n',
    );
    expect(terminal.out).toBe(await write(at('base')));
    const other = recordedTerminal();
    expect(await run({ ...host, terminal: other, args: ['generate', 'hf://org/base@v9'] })).toBe(2);
    expect(other.said).toMatch(
      /^holdfast: hf:\/\/org\/base@v9: cannot be reached \(.*\); try again, or name a folder\n$/,
    );
  });

  test('of a revision, names that, too, and gets it again', async () => {
    online();
    await holdfast('finetune', 'hf://org/base@v1', ...TRAINING, '--lora-rank', '2', '--out', at('of-v1'));
    const checkpoint = at('of-v1/checkpoint-2');
    const fields = JSON.parse(new TextDecoder().decode(await files.read(join(checkpoint, 'adapter_config.json'))));
    expect([fields.base_model_name_or_path, fields.revision]).toEqual(['org/base', 'v1']);
    await publish(checkpoint, 'org/adapter1', (file) => file.startsWith('adapter_'));
    asked.length = 0;
    await write('hf://org/adapter1');
    expect(asked).toEqual(['org/adapter1 main', 'org/base v1']);
  });

  test('finds the base where it was brought to, without the network', async () => {
    offline();
    const tuned = await write(at('tuned'));
    expect(await write(at('tuned'), '--lora', 'none')).not.toBe(tuned);
    expect(await write(at('tuned'), '--base', at('base'))).toBe(tuned);
    await holdfast('finetune', '--resume', '--out', at('tuned'));
  });

  test('and its adapter on the hub brings its base along', async () => {
    const tuned = await write(at('tuned'));
    online();
    expect(await write('hf://org/adapter')).toBe(tuned);
    expect(await write('hf://org/base', '--lora', 'hf://org/adapter')).toBe(tuned);
    expect(await write('hf://org/adapter', '--base', at('base'))).toBe(tuned);
    await holdfast('export', 'hf://org/adapter', '--merge', '--out', at('merged'));
    expect(await write(at('merged'))).toMatch(/^hold/);
  });
});
