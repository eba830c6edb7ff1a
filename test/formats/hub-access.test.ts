// Models on the hub that ask for an account: two servers of this machine play the hub and the place that it sends to for files. The
// token goes to the hub and to nothing else, lies nowhere afterwards, and where it is missing the line says what to do.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { asAccount, endpointFrom } from '../../src/formats/remote/hub-access.ts';
import { openHubModel } from '../../src/formats/remote/hub-model.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { MemoryFiles } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { config, parameters } from './checkpoints.ts';
import { FileServer } from './file-server.ts';
import { fileOf, floats } from './raw-tensors.ts';

const root = mkdtempSync(path.join(os.tmpdir(), 'holdfast-hub-access-'));
const at = (...names: string[]) => path.join(root, ...names);
const SHA = 'd'.repeat(40);
const TOKEN = 'hf_TheTokenOfAnAccount';
const MODEL = {
  'config.json': JSON.stringify(config),
  'model.safetensors': fileOf(
    new Map(
      parameters.map(({ name, shape }) => [name, floats(shape, new Float32Array(shape.reduce((a, b) => a * b, 1)))]),
    ),
  ),
};
const siblings = Object.keys(MODEL).map((rfilename) => ({ rfilename }));
const info = JSON.stringify({ id: 'org/gated', _id: '1', sha: SHA, siblings });
const hub = new FileServer({ 'api/models/org/gated/revision/main': info });
const cdn = new FileServer(
  Object.fromEntries(Object.entries(MODEL).map(([name, file]): [string, string | Uint8Array] => [`cdn/${name}`, file])),
);
let endpoint: string;

beforeAll(async () => {
  endpoint = await hub.listen();
  const server = await cdn.listen();
  hub.behaviour = {
    gated: { path: 'org/gated/resolve/', token: TOKEN },
    redirect: { from: `org/gated/resolve/${SHA}/`, to: 'cdn/', server },
  };
});
afterEach(() => {
  vi.unstubAllEnvs();
  Object.assign(hub, { requests: [], accounts: [] });
  Object.assign(cdn, { requests: [], accounts: [] });
});
afterAll(async () => {
  await hub.close();
  await cdn.close();
  rmSync(root, { recursive: true, force: true });
});

/** Without what the environment of the tests has. */
function environment(set: Record<string, string>): void {
  for (const name of ['HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN', 'HF_HUB_DISABLE_IMPLICIT_TOKEN', 'HF_ENDPOINT'])
    vi.stubEnv(name, '');
  for (const name of ['HF_TOKEN_PATH', 'XDG_CACHE_HOME']) vi.stubEnv(name, '');
  vi.stubEnv('HF_HOME', at('nothing'));
  for (const [name, value] of Object.entries(set)) vi.stubEnv(name, value);
}

let exports = 0;
async function exported(name: string) {
  const terminal = recordedTerminal();
  const host = { ...headlessHost(), cacheFolder: at('cache'), terminal };
  const status = await run({ ...host, args: ['export', name, '--out', at(`exported-${++exports}`)] });
  return { status, said: terminal.said, out: terminal.out };
}

/** All files below a folder that have a text in them. */
const filesWith = (text: string) =>
  readdirSync(root, { recursive: true, encoding: 'utf8', withFileTypes: true })
    .filter((entry) => entry.isFile() && readFileSync(path.join(entry.parentPath, entry.name)).includes(text))
    .map(({ name }) => name);

describe('a model that asks for an account', () => {
  test.each(['hf://org/gated', 'ENDPOINT/org/gated', 'ENDPOINT/org/gated/tree/main'])(
    'as %s, comes with the token of the environment, which only the hub sees and nothing keeps',
    async (name) => {
      environment({ HF_ENDPOINT: `${endpoint}/`, HF_TOKEN: ` ${TOKEN}\n` });
      rmSync(at('cache'), { recursive: true, force: true });
      expect(await exported(name.replace('ENDPOINT', endpoint))).toMatchObject({ status: 0, said: '' });
      expect(new Set(hub.accounts)).toEqual(new Set([`Bearer ${TOKEN}`]));
      expect(hub.accounts.length).toBeGreaterThan(2);
      expect(cdn.requests.some((asked) => asked.startsWith('cdn/model.safetensors'))).toBe(true);
      expect(new Set(cdn.accounts)).toEqual(new Set([undefined]));
      expect(filesWith(TOKEN)).toEqual([]);
    },
  );

  test('and so do files by their own address, and none of another host', async () => {
    environment({ HF_ENDPOINT: endpoint, HF_TOKEN: TOKEN });
    expect(await exported(`${endpoint}/org/gated/resolve/${SHA}/`)).toMatchObject({ status: 0, said: '' });
    expect(new Set(hub.accounts)).toEqual(new Set([`Bearer ${TOKEN}`]));
    expect(new Set(cdn.accounts)).toEqual(new Set([undefined]));
    Object.assign(cdn, { accounts: [] });
    environment({ HF_TOKEN: TOKEN });
    const { server = '' } = hub.behaviour.redirect ?? {};
    expect(await exported(`${server}/cdn/`)).toMatchObject({ status: 0 });
    expect(new Set(cdn.accounts)).toEqual(new Set([undefined]));
    expect(filesWith(TOKEN)).toEqual([]);
  });

  test.each([401, 403] as const)('is refused with %i in one line that says how to get in', async (status) => {
    Object.assign(hub.behaviour.gated ?? {}, { status });
    rmSync(at('cache'), { recursive: true, force: true });
    environment({ HF_ENDPOINT: endpoint });
    const resolve = `${endpoint}/org/gated/resolve/${SHA}`;
    for (const [name, place, refuses] of [
      ['hf://org/gated', 'hf://org/gated/config.json', 'the hub answers'],
      [`${resolve}/`, `${resolve}/config.json`, 'the server answers'],
    ] as const) {
      expect(await exported(name)).toMatchObject({
        status: 2,
        said: `holdfast: ${place}: ${refuses} ${status}; accept its licence at ${endpoint}/org/gated and set HF_TOKEN, or see whether the name is right\n`,
      });
    }
    expect(new Set(hub.accounts)).toEqual(new Set([undefined]));
    environment({ HF_ENDPOINT: endpoint, HF_TOKEN: 'hf_another' });
    expect((await exported('hf://org/gated')).said).toBe(
      `holdfast: hf://org/gated/config.json: the hub answers ${status}; accept its licence at ${endpoint}/org/gated with the account of the access token that was given, or see whether the name is right\n`,
    );
    Object.assign(hub.behaviour.gated ?? {}, { status: 401 });
  });

  test('in a page comes with the token that a person gives, and says so without', async () => {
    const sha256 = () => new MemoryFiles().sha256();
    const { files, name } = await openHubModel({ hub: 'org/gated', endpoint, token: TOKEN }, sha256);
    expect((await files.read(`${name}/config.json`)).length).toBe(MODEL['config.json'].length);
    expect(new Set(hub.accounts)).toEqual(new Set([`Bearer ${TOKEN}`]));
    expect(new Set(cdn.accounts)).toEqual(new Set([undefined]));
    await expect(openHubModel({ hub: 'org/gated', endpoint }, sha256)).rejects.toThrow(
      `config.json: the server answers 401; accept its licence at ${endpoint}/org/gated and give an access token of yours beside the name, or`,
    );
  });
});

test('the token is that of the environment, or the one that a login wrote, as Python’s library finds it', async () => {
  const token = () => headlessHost().hub?.token();
  mkdirSync(at('home', 'huggingface'), { recursive: true });
  writeFileSync(at('home', 'huggingface', 'token'), 'hf_of_a_cache\n');
  mkdirSync(at('hf'));
  writeFileSync(at('hf', 'token'), 'hf_of_a_login\n');
  writeFileSync(at('elsewhere'), 'hf_elsewhere');
  environment({});
  expect(await token()).toBeUndefined();
  environment({ HF_HOME: '', XDG_CACHE_HOME: at('home') });
  expect(await token()).toBe('hf_of_a_cache');
  environment({ HF_HOME: at('hf') });
  expect(await token()).toBe('hf_of_a_login');
  environment({ HF_HOME: at('hf'), HF_TOKEN_PATH: at('elsewhere') });
  expect(await token()).toBe('hf_elsewhere');
  writeFileSync(at('huge'), 'x'.repeat(1e6));
  environment({ HF_HOME: at('hf'), HF_TOKEN_PATH: at('huge') });
  expect(await token()).toBeUndefined();
  environment({ HF_HOME: at('hf'), HUGGING_FACE_HUB_TOKEN: 'hf_older' });
  expect(await token()).toBe('hf_older');
  environment({ HF_HOME: at('hf'), HUGGING_FACE_HUB_TOKEN: 'hf_older', HF_TOKEN: 'hf_named' });
  expect(await token()).toBe('hf_named');
  environment({ HF_TOKEN: 'hf_named', HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' });
  expect(await token()).toBeUndefined();
});

test('a header that is there stays, and what cannot be a token is in no message', async () => {
  const asked: (string | null)[] = [];
  const request: typeof fetch = async (_, init) => {
    asked.push(new Headers(init?.headers).get('authorization'));
    return new Response('');
  };
  const asking = asAccount({ endpoint: 'https://hub.example', token: TOKEN }, request);
  const own = { headers: { authorization: 'Bearer own' } };
  await asking('https://hub.example/a');
  await asking(new Request('https://hub.example/a'));
  await asking(new URL('https://hub.example/a'), own);
  await asking(new Request('https://hub.example/a', own));
  for (const other of [
    'http://hub.example/a',
    'https://hub.example:8443/a',
    'https://sub.hub.example/',
    'https://hub.example.org/',
  ])
    await asking(other);
  expect(asked).toEqual([
    ...[`Bearer ${TOKEN}`, `Bearer ${TOKEN}`, 'Bearer own', 'Bearer own'],
    ...[null, null, null, null],
  ]);
  for (const token of ['hf_a b', 'hf_\u0000x', 'hf_é'])
    expect(() => asAccount({ endpoint: 'https://hub.example', token }, request)).toThrow(
      /^the access token of the hub has/,
    );
});

test('an endpoint that is none is one line, and only where the hub is asked', async () => {
  expect(endpointFrom(undefined, 'HF_ENDPOINT')).toBe('https://huggingface.co');
  expect(endpointFrom('https://mirror.example/hf//', 'HF_ENDPOINT')).toBe('https://mirror.example/hf');
  environment({ HF_ENDPOINT: 'hf-mirror.example' });
  expect(await exported('hf://org/gated')).toMatchObject({
    status: 2,
    said: 'holdfast: HF_ENDPOINT: hf-mirror.example is no address of a hub; it must be like https://huggingface.co\n',
  });
  expect((await exported(at('nowhere'))).said).toContain('no such folder');
});
