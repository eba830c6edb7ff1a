// Models by their names on a hub that this machine plays: real HTTP with ranges, redirects and connections that drop. What
// is looked into takes headers alone; what is streamed is whole; and what cannot be had says why in one line.

import { afterEach, describe, expect, test } from 'vitest';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { exportGGUF } from '../../src/formats/gguf/export.ts';
import { openHubModel } from '../../src/formats/remote/hub-model.ts';
import { makeModel } from '../../src/nn/index.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { MemoryFiles } from '../memory-files.ts';
import { FileServer } from './file-server.ts';
import { modelOf, randomValues } from './gguf/models.ts';
import { fileOf, floats, shardedFolder } from './raw-tensors.ts';

const CONFIG = { model_type: 'gpt2', vocab_size: 256, n_positions: 16, n_embd: 64, n_layer: 1, n_head: 2 } as const;
const config = parseConfig(CONFIG, 'test');
const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));
const values = randomValues(shapes);
const stored = new Map([...values].map(([name, data]) => [name, floats(shapes.get(name) ?? [], data)]));
const [first, second] = [new Map([...stored].slice(0, 3)), new Map([...stored].slice(3))];

const SHA = 'a'.repeat(40);
const REPOS = {
  'owner/one': { 'config.json': JSON.stringify(CONFIG), 'model.safetensors': fileOf(stored), 'README.md': '#' },
  'owner/two': {
    'config.json': JSON.stringify(CONFIG),
    ...Object.fromEntries(
      Object.entries(shardedFolder('m', { 'a.safetensors': first, 'b.safetensors': second })).map(([path, file]) => [
        path.slice(2),
        file,
      ]),
    ),
  },
  'owner/ggufs': { 'x-Q4_K_M.gguf': '', 'x-Q8_0.gguf': '', 'README.md': '#' },
  'owner/adapter': { 'adapter_config.json': '{}', 'adapter_model.safetensors': '' },
} as const;

const servers: FileServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

/** A hub with these, where the files lie on another path that it sends to. */
async function hub(repos: Readonly<Record<string, Readonly<Record<string, string | Uint8Array>>>> = REPOS) {
  const server = new FileServer(
    Object.fromEntries(
      Object.entries(repos).flatMap(([repo, files]) => [
        [
          `api/models/${repo}/revision/main`,
          JSON.stringify({ sha: SHA, siblings: Object.keys(files).map((rfilename) => ({ rfilename })), likes: 3 }),
        ],
        ...Object.entries(files).map(([name, file]): [string, string | Uint8Array] => [`cdn/${repo}/${name}`, file]),
      ]),
    ),
  );
  for (const repo of Object.keys(repos))
    server.behaviour.redirect = { from: `${repo}/resolve/${SHA}/`, to: `cdn/${repo}/` };
  servers.push(server);
  return { server, endpoint: await server.listen() };
}

const sha256 = () => new MemoryFiles().sha256();
const open = async (name: string, repo: keyof typeof REPOS) => {
  const { server, endpoint } = await hub({ [repo]: REPOS[repo] });
  return { server, ...(await openHubModel({ hub: name, endpoint }, sha256)) };
};

describe.each(['owner/one', 'owner/two'] as const)('%s', (repo) => {
  test.each([`https://huggingface.co/${repo}`, `hf://${repo}`, `https://huggingface.co/${repo}/tree/main`])(
    'as %s, is looked into by its headers, and read tensor by tensor',
    async (address) => {
      const { server, files, name } = await open(address, repo);
      expect(name).toBe(repo.slice(6));
      const found = await loadWeights(files, name);
      expect(found.config).toEqual(config);
      const weights = [...stored.values()].reduce((sum, { bytes }) => sum + bytes.length, 0);
      expect(server.sent).toBeLessThan(weights / 10);
      expect(await collect(found.weights)).toEqual(values);
      expect(server.requests.every((asked) => !asked.includes('resolve/main'))).toBe(true);
      expect(server.requests.some((asked) => asked.includes('README'))).toBe(false);
    },
  );

  test('its files are streams that survive lost connections', async () => {
    const { server, files, name } = await open(repo, repo);
    server.behaviour = { ...server.behaviour, dropAfter: 1000, drops: 3 };
    for (const file of files.files(name)) {
      const bytes = new Uint8Array(await new Response(file.open()).arrayBuffer());
      const wanted = (REPOS[repo] as Readonly<Record<string, string | Uint8Array>>)[file.name] ?? '';
      const own = typeof wanted === 'string' ? new TextEncoder().encode(wanted) : wanted;
      expect(Buffer.from(bytes).equals(own), file.name).toBe(true);
    }
    expect(server.behaviour.drops).toBe(0);
  });
});

test('a GGUF file by its name is a model', async () => {
  const here = new MemoryFiles();
  const model = modelOf(config as Parameters<typeof modelOf>[0], values, shapes);
  await exportGGUF(here, 'm.gguf', model, { type: 'F32', modelfile: false });
  const { endpoint, server } = await hub({ 'owner/g': { 'm.gguf': await here.read('m.gguf') } });
  const { files, gguf, name } = await openHubModel({ hub: 'owner/g/m.gguf', endpoint }, sha256);
  expect([name, gguf?.bytes]).toEqual(['m.gguf', (await here.read('m.gguf')).length]);
  expect(server.requests.length).toBeLessThan(6);
  expect(await collect((await loadWeights(files, 'm.gguf')).weights)).toEqual(values);
});

describe('in one line', () => {
  test.each([
    ['gpt2', 'is no name on the hub; it must be like hf://ORG/NAME'],
    ['owner/../etc', 'is no name on the hub'],
    ['https://elsewhere.example/owner/one', 'is no name on the hub'],
    ['owner/missing', 'owner/missing: 127.0.0.1:PORT shows no such model; accept its licence at'],
    ['owner/one@v2', 'owner/one: 127.0.0.1:PORT shows no such model with a revision v2; accept'],
    ['owner/ggufs', 'has GGUF files; name one of them: owner/ggufs/x-Q4_K_M.gguf, owner/ggufs/x-Q8_0.gguf'],
    ['owner/adapter', 'owner/adapter: is an adapter without its model'],
  ])('%s', async (name, message) => {
    const { endpoint } = await hub();
    const said = await openHubModel({ hub: name, endpoint }, sha256).catch((error: Error) => error.message);
    expect(said).toContain(message.replace('127.0.0.1:PORT', new URL(endpoint).host));
    expect(said).not.toContain('\n');
  });

  test('a hub that cannot be reached, is no hub, or takes no ranges', async () => {
    const { endpoint, server } = await hub({ 'owner/one': REPOS['owner/one'] });
    const said = () => openHubModel({ hub: 'owner/one', endpoint }, sha256).catch((error: Error) => error.message);
    server.behaviour.ranges = false;
    expect(await said()).toMatch(/config\.json: the server takes no range requests; download it and drop its folder$/);
    server.behaviour = {};
    server.files.set('api/models/owner/one/revision/main', new TextEncoder().encode('<html>'));
    expect(await said()).toMatch(
      /^owner\/one: 127\.0\.0\.1:\d+ answers with no JSON; see whether the address of the hub is right$/,
    );
    await server.close();
    expect(await said()).toMatch(
      /^owner\/one: 127\.0\.0\.1:\d+ cannot be reached from here \(fetch failed: .*\); .*drop its folder$/,
    );
  });
});
