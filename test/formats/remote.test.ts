// Models from a server and from the hub, into the cache: by ranges and without, over connections that drop and processes
// that end; what arrives is what lies there, or one line says why not.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as hub from '@huggingface/hub';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { hubFolder } from '../../src/formats/remote/hub.ts';
import { fetchFile, fetchModel } from '../../src/formats/remote/remote.ts';
import { urlFolder } from '../../src/formats/remote/url.ts';
import { writeZip } from '../../src/formats/zip.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { ResumedFile } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { MemoryFiles } from '../memory-files.ts';
import { config, parameters, valuesOf } from './checkpoints.ts';
import { FileServer } from './file-server.ts';
import { fileOf, floats, shardedFolder } from './raw-tensors.ts';

const values = valuesOf(0, 1);
const tensors = new Map(
  parameters.map(({ name, shape }) => [name, floats(shape, values.get(name) ?? new Float32Array())]),
);
const half = Math.floor(parameters.length / 2);
const MODEL: Record<string, string | Uint8Array> = {
  'm/config.json': JSON.stringify(config),
  'm/tokenizer.json': '{}',
  'm/notes.txt': 'not a part of it',
  ...shardedFolder('m', {
    'model-1.safetensors': new Map([...tensors].slice(0, half)),
    'model-2.safetensors': new Map([...tensors].slice(half)),
  }),
};
const shard = (number: number) => MODEL[`m/model-${number}.safetensors`] as Uint8Array;

const root = mkdtempSync(path.join(os.tmpdir(), 'holdfast-remote-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let caches = 0;
let host = headlessHost();
let server: FileServer;
let address: string;

beforeEach(async () => {
  host = { ...headlessHost(), cacheFolder: path.join(root, `cache-${++caches}`) };
  server = new FileServer(MODEL);
  address = await server.listen();
  const { setTimeout } = globalThis;
  // Short pauses before another try.
  const sooner = (ms: number) => (ms < 10_000 ? ms / 20 : ms);
  vi.stubGlobal('setTimeout', (work: () => void, ms = 0, ...args: []) => setTimeout(work, sooner(ms), ...args));
});
afterEach(async () => {
  vi.unstubAllGlobals();
  await server.close();
});

const fetched = (at = 'm/') => fetchModel(host, urlFolder(`${address}/${at}`));
const expectModel = async (folder: string) => {
  expect(await collect((await loadWeights(host.files, folder)).weights)).toEqual(values);
  expect(readFileSync(path.join(folder, 'tokenizer.json'), 'utf8')).toBe('{}');
  expect(existsSync(path.join(folder, 'notes.txt'))).toBe(false);
};

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (error) => error,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).toMatch(/^.{1,500}$/);
  return error.message;
}

describe('from a server', () => {
  test.each([
    ['with ranges', {}],
    ['without ranges', { ranges: false }],
    ['whose connections drop', { dropAfter: 150, drops: 9 }],
    ['whose connections drop at once, some times', { dropAfter: 0, drops: 5 }],
    ['that is busy at first', { busy: { status: 503, times: 3 } }],
    ['that has too much to do', { busy: { status: 429, times: 2 } }],
    ['without ranges, whose connection drops once', { ranges: false, dropAfter: 150, drops: 1 }],
    ['without tags', { etag: undefined }],
  ])('%s', async (_, behaviour) => {
    server.behaviour = behaviour;
    await expectModel(await fetched());
  });

  test('by a redirect, and with or without the slash', async () => {
    server.behaviour = { redirect: { from: 'resolve/main/', to: 'm/' } };
    await expectModel(await fetched('resolve/main'));
    await expectModel(await fetched('resolve/main/'));
  });

  test('a second time nothing is sent but the answers that it is the same', async () => {
    const folder = await fetched();
    server.sent = 0;
    expect(await fetched()).toBe(folder);
    expect(server.sent).toBeLessThan(20);
    await expectModel(folder);
  });

  test('another version replaces the files', async () => {
    const folder = await fetched();
    server.behaviour = { etag: '"2"' };
    server.files.set('m/tokenizer.json', new TextEncoder().encode('[]'));
    await fetched();
    expect(readFileSync(path.join(folder, 'tokenizer.json'), 'utf8')).toBe('[]');
  });

  test('a download that was cut off goes on from there, by another process too', async () => {
    const remote = urlFolder(`${address}/m/`);
    const cut = {
      ...remote,
      async find(name: string) {
        const file = await remote.find(name);
        if (!file || name !== 'model-2.safetensors') return file;
        return {
          ...file,
          async *read(from: number) {
            for await (const piece of file.read(from)) {
              yield piece.subarray(0, 200);
              throw new HoldfastError('the process ends');
            }
          },
        };
      },
    };
    const { resumeFile } = host;
    const resumed = async (path: string) => {
      const file = (await resumeFile?.(path)) as ResumedFile;
      const close = async () => {
        await file.close();
        throw new HoldfastError('it cannot be closed');
      };
      return { ...file, close };
    };
    expect(await refusal(fetchModel({ ...host, resumeFile: resumed }, cut))).toBe('the process ends');
    const folder = path.join(host.cacheFolder, 'models', remote.cacheName);
    expect(statSync(path.join(folder, 'model-2.safetensors.incoming')).size).toBe(200);
    expect(existsSync(path.join(folder, 'model-2.safetensors'))).toBe(false);
    server.requests = [];
    await expectModel(await fetched());
    expect(server.requests.filter((request) => /^m\/model-2.*bytes=\d+-$/.test(request))).toEqual([
      'm/model-2.safetensors bytes=200-',
    ]);
  });

  test('what was begun of another version is begun anew', async () => {
    const remote = urlFolder(`${address}/m/`);
    const folder = await fetchModel(host, remote);
    server.behaviour = { etag: '"2"' };
    rmSync(path.join(folder, 'model-2.safetensors'));
    writeFileSync(path.join(folder, 'model-2.safetensors.incoming'), new Uint8Array(300).fill(7));
    await expectModel(await fetched());
  });

  test('two that fetch at the same time take turns, and each file comes once', async () => {
    const told: string[] = [];
    const fetch = () => fetchModel(host, urlFolder(`${address}/m/`), undefined, (why) => told.push(why));
    const [one, two] = await Promise.all([fetch(), fetch()]);
    expect(one).toBe(two);
    await expectModel(one);
    expect(told).toEqual([expect.stringContaining(`${one}: process ${process.pid} on `)]);
    const whole = server.requests.filter((request) => request === 'm/model-2.safetensors bytes=0-');
    expect(whole).toHaveLength(1);
  });

  test('a folder whose lock names no process is refused', async () => {
    const folder = path.join(host.cacheFolder, 'models', urlFolder(`${address}/m/`).cacheName);
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'run.lock'), 'not one');
    expect(await refusal(fetched())).toMatch(/run\.lock names no process; remove that file/);
  });

  test('progress is told, and ends with all bytes', async () => {
    const told = new Map<string, number>();
    await fetchModel(host, urlFolder(`${address}/m/`), (name, bytes, of) => {
      expect(bytes).toBeGreaterThan(told.get(name) ?? 0);
      expect(bytes).toBeLessThanOrEqual(of);
      told.set(name, bytes);
    });
    expect(told.get('model-2.safetensors')).toBe(shard(2).length);
  });

  test('of which nothing comes leaves no folder behind', async () => {
    server.files.clear();
    await expect(fetchModel(host, urlFolder(`${address}/m/`))).rejects.toThrow(/there is no config\.json/);
    expect(existsSync(host.cacheFolder)).toBe(false);
  });

  test.each<[string, () => void, RegExp]>([
    ['a folder that is none', () => server.files.clear(), /there is no config\.json/],
    ['a missing shard', () => server.files.delete('m/model-2.safetensors'), /\/m\/: there is no model-2\.safetensors/],
    [
      'no weights',
      () => server.files.delete('m/model.safetensors.index.json'),
      /there is no model\.safetensors, and no model\.safetensors\.index\.json/,
    ],
    [
      'an index that leads elsewhere',
      () =>
        server.files.set(
          'm/model.safetensors.index.json',
          new TextEncoder().encode('{"weight_map":{"a":"../b.safetensors"}}'),
        ),
      /is no name of a safetensors file in the same folder/,
    ],
    [
      'an account',
      () => Object.assign(server.behaviour, { busy: { status: 401, times: 99 } }),
      /answers 401; it asks for an account/,
    ],
    [
      'a wrong request',
      () => Object.assign(server.behaviour, { busy: { status: 400, times: 99 } }),
      /answers 400; see whether/,
    ],
    [
      'a server that stays busy',
      () => Object.assign(server.behaviour, { busy: { status: 503, times: 99 } }),
      /cannot get config\.json \(the server answers 503\)/,
    ],
    [
      'a length that is not met',
      () => Object.assign(server.behaviour, { longer: 10 }),
      /config\.json: .* times in a row; try again/,
    ],
    [
      'connections that always drop, without ranges',
      () => Object.assign(server.behaviour, { ranges: false, dropAfter: 20, drops: 1e9 }),
      /it takes no range requests/,
    ],
    [
      'no length',
      () => Object.assign(server.behaviour, { ranges: false, chunked: true }),
      /does not say how long it is/,
    ],
  ])('refused: %s', async (_, change, message) => {
    change();
    expect(await refusal(fetched())).toMatch(message);
    const folder = path.join(host.cacheFolder, 'models', urlFolder(`${address}/m/`).cacheName);
    expect(existsSync(path.join(folder, 'model-2.safetensors'))).toBe(false);
  });

  test('a model that is not supported is refused before its weights are asked for', async () => {
    server.files.set(
      'm/config.json',
      new TextEncoder().encode(JSON.stringify({ ...config, scale_attn_weights: false })),
    );
    expect(await refusal(fetched())).toMatch(/\/m\/config\.json: scale_attn_weights/);
    expect(server.requests.filter((request) => request.includes('safetensors'))).toEqual([]);
  });

  test('a field that is not known is taken out in a folder of one’s own: in the cache, it comes back', async () => {
    const encoded = (json: object) => new TextEncoder().encode(JSON.stringify(json));
    server.files.set('m/config.json', encoded({ ...config, nova: 1 }));
    const advice = /config\.json: nova is 1; .* download its folder, remove it there and give that folder/;
    expect(await refusal(fetched())).toMatch(advice);
    const cached = path.join(host.cacheFolder, 'models', urlFolder(`${address}/m/`).cacheName);
    writeFileSync(path.join(cached, 'config.json'), encoded(config));
    expect(await refusal(fetched())).toMatch(advice);
    const own = path.join(root, 'own');
    mkdirSync(own);
    for (const [name, content] of Object.entries({ ...MODEL, 'm/config.json': encoded(config) }))
      writeFileSync(path.join(own, path.basename(name)), content);
    expect(await collect((await loadWeights(host.files, own)).weights)).toEqual(values);
  });

  test.each(['model.safetensors', 'model.gguf', 'run.ZIP'])(
    '%s may be large, and what is beside weights may not',
    async (large) => {
      const file = {
        ...{ place: 'there', bytes: 2 ** 28 + 1, hasRanges: true },
        // biome-ignore lint/correctness/useYield: it fails before
        async *read(): AsyncGenerator<Uint8Array> {
          throw new HoldfastError('it is read');
        },
      };
      const remote = { place: 'there/', cacheName: 'large', find: async () => file };
      expect(await refusal(fetchFile(host, remote, large))).toBe('it is read');
      expect(await refusal(fetchFile(host, remote, 'tokenizer.json'))).toMatch(/such a file has at most 268 MB/);
    },
  );

  test('an adapter without its model, with what lies beside it', async () => {
    const files = {
      'adapter_config.json': '{"peft_type":"LORA"}',
      'adapter_model.safetensors': 'tensors',
      'tokenizer.json': '{}',
    };
    for (const [name, content] of Object.entries(files))
      server.files.set(`a/${name}`, new TextEncoder().encode(content));
    const folder = await fetched('a/');
    for (const [name, content] of Object.entries(files))
      expect(readFileSync(path.join(folder, name), 'utf8')).toBe(content);
    server.files.delete('a/adapter_model.safetensors');
    expect(await refusal(fetched('a/'))).toMatch(
      /\/a\/: there is no config\.json, nor an adapter \(adapter_config\.json, adapter_model\.safetensors\)/,
    );
  });

  test('a file that changes while it is read is refused, and fetched whole the next time', async () => {
    server.behaviour = { dropAfter: 100, drops: 1 };
    const remote = urlFolder(`${address}/m/`);
    const changing = {
      ...remote,
      async find(name: string) {
        const file = await remote.find(name);
        if (name === 'model-1.safetensors') server.behaviour = { etag: '"2"' };
        return file;
      },
    };
    expect(await refusal(fetchModel(host, changing))).toMatch(
      /model-1\.safetensors: is another file than a moment ago/,
    );
    await expectModel(await fetched());
  });

  test('no server at the address', async () => {
    await server.close();
    expect(await refusal(fetched())).toMatch(/cannot get config\.json \(.*\); see whether the address is right/);
    server = new FileServer({});
    await server.listen();
  });

  test.each(['http://', 'https://user:secret@host/m/', 'https://host/m/?token=secret'])('%s is no address', (name) => {
    expect(() => urlFolder(name)).toThrow(HoldfastError);
    try {
      urlFolder(name);
    } catch (error) {
      expect(String(error)).not.toContain('secret');
    }
  });
});

describe('from the hub', () => {
  const sha = 'a'.repeat(40);
  /** The hub's addresses, on the server here. */
  const request: typeof fetch = (input, init) => {
    const url = new URL(String(input instanceof Request ? input.url : input));
    if (url.pathname.startsWith('/api/models/org/m')) {
      const known = url.pathname.includes('/revision/main') || url.pathname.includes(`/revision/v1`);
      return Promise.resolve(known ? Response.json({ id: 'org/m', sha, _id: '1' }) : new Response('', { status: 404 }));
    }
    return fetch(`${address}${url.pathname.replace(`/org/m/resolve/${sha}/`, '/m/')}`, init);
  };

  test('by its name: all of one commit, once', async () => {
    const remote = await hubFolder({ repo: 'org/m' }, { fetch: request });
    expect(remote.cacheName).toBe(`hub+org+m+${sha}`);
    const folder = await fetchModel(host, remote);
    await expectModel(folder);
    server.sent = 0;
    expect(await fetchModel(host, await hubFolder({ repo: 'org/m', revision: 'v1' }, { fetch: request }))).toBe(folder);
    expect(server.sent).toBeLessThan(20);
  });

  test('connections that drop are taken up', async () => {
    server.behaviour = { dropAfter: 150, drops: 7 };
    await expectModel(await fetchModel(host, await hubFolder({ repo: 'org/m' }, { fetch: request })));
  });

  test('a checksum that is another', async () => {
    server.behaviour = { etag: `"${createHash('sha256').update('another').digest('hex')}"` };
    const remote = await hubFolder({ repo: 'org/m' }, { fetch: request });
    expect(await refusal(fetchModel(host, remote))).toMatch(/config\.json: what arrived has another SHA-256/);
  });

  test.each([
    [{ repo: 'org/m', revision: 'none' }, /^hf:\/\/org\/m@none: the hub answers 404; see whether the name is right/],
    [{ repo: 'org/n' }, /^hf:\/\/org\/n: the hub answers 404/],
  ])('%o is refused', async (address, message) => {
    expect(await refusal(hubFolder(address, { fetch: request, load: async () => hub }))).toMatch(message);
  });

  test('without its library the line says how to get it', async () => {
    const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
    expect(await refusal(hubFolder({ repo: 'org/m' }, { load: () => Promise.reject(missing) }))).toBe(
      'hf://org/m: names on the hub need @huggingface/hub (it is not installed); npm install @huggingface/hub',
    );
  });
});

describe('on the command line', () => {
  const command = async (...args: string[]) => {
    let said = '';
    const terminal = {
      interactive: true,
      columns: 80,
      write: () => {},
      warn: (text: string) => {
        said += text;
      },
    };
    return { status: await run({ ...host, args, terminal }), said };
  };

  test('an address is exported, with progress on a terminal', async () => {
    const out = path.join(root, 'exported');
    const { status, said } = await command('export', `${address}/m/`, '--out', out);
    expect(status).toBe(0);
    expect(said).toContain(`model-2.safetensors: ${(shard(2).length / 1000).toFixed(2)} KB of`);
    await expectModel(out);
  });

  test('a file that is asked for again is told of, on a line of its own', async () => {
    server.behaviour = { busy: { status: 503, times: 1 }, dropAfter: 150, drops: 1 };
    const { status, said } = await command('export', `${address}/m/`, '--out', path.join(root, 'busy'));
    expect(status).toBe(0);
    const lines = said.split(/[\r\n]/).filter((line) => line.includes('again'));
    const asked = `${address}/m/config.json: `;
    expect(lines[0]).toBe(`${asked}the server answers 503; it is asked for again`);
    expect(lines[1]?.startsWith(asked)).toBe(true);
    expect(lines).toHaveLength(2);
  });

  test('and so is a zip behind one', async () => {
    const files = new MemoryFiles({
      'z/config.json': MODEL['m/config.json'] ?? '',
      'z/model.safetensors': fileOf(tensors),
    });
    await writeZip(files, 'z', 'my.zip');
    server.files.set('my model.zip', await files.read('my.zip'));
    const out = path.join(root, 'from-zip');
    expect(await command('export', `${address}/my%20model.zip`, '--out', out)).toMatchObject({ status: 0 });
    expect(await collect((await loadWeights(host.files, out)).weights)).toEqual(values);
  });

  test.each(['%2e%2e%2fx.zip', '%.zip', 'a%0a.zip'])('a zip named %s is none', async (name) => {
    const { status, said } = await command('generate', `${address}/${name}`);
    expect(status).toBe(2);
    expect(said).toMatch(/^holdfast: [^\n]* is no name of a file[^\n]*\n$/);
  });

  test('what is not there is one line and status 2', async () => {
    const { status, said } = await command('generate', `${address}/none/`);
    expect(status).toBe(2);
    expect(said).toMatch(/^holdfast: http:[^\n]*there is no config\.json[^\n]*\n$/);
  });
});
