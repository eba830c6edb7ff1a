// Hubs and servers that say nothing, too much, or what is none of a hub: each is one line that says so, soon and in little memory.

import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as hub from '@huggingface/hub';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { hubFolder } from '../../src/formats/remote/hub.ts';
import { openHubModel } from '../../src/formats/remote/hub-model.ts';
import { fetchFile, fetchModel, Interrupted, type RemoteFile } from '../../src/formats/remote/remote.ts';
import { urlFolder } from '../../src/formats/remote/url.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const SHA = 'a'.repeat(40);
const MIB = 2 ** 20;
let answer: RequestListener;
let server: ReturnType<typeof createServer>;
let endpoint: string;

beforeEach(async () => {
  server = createServer((request, response) => answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  vi.unstubAllGlobals();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const folder = (token?: string) =>
  hubFolder({ repo: 'org/m' }, { account: { endpoint, token }, load: async () => hub });
const page = () =>
  openHubModel({ hub: 'org/m', endpoint }, () => {
    throw new Error('no file is read');
  });

async function thrown(work: Promise<unknown>): Promise<Error> {
  const error = await work.then(
    () => undefined,
    (error) => error,
  );
  expect(error?.message).toMatch(/^.{1,500}$/);
  return error;
}

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await thrown(work);
  expect(error).toBeInstanceOf(HoldfastError);
  return error.message;
}

const json =
  (value: unknown): RequestListener =>
  (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  };

describe('an answer without an end', () => {
  let sent = 0;
  const most = 256 * MIB;
  const endless =
    (status: number): RequestListener =>
    (_, response) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      const piece = Buffer.alloc(MIB, ' ');
      const more = () => {
        if (response.destroyed) return;
        sent += MIB;
        if (sent > most) response.end();
        else response.write(piece, () => setImmediate(more));
      };
      more();
    };
  beforeEach(() => {
    sent = 0;
  });

  test.each([
    ['of the hub', 200, () => folder()],
    ['of the hub, with an account', 200, () => folder('hf_test')],
    ['of the hub, to a page', 200, page],
    ['that is an error', 404, () => folder()],
  ] as const)('%s', async (_, status, work) => {
    answer = endless(status);
    expect(await refusal(work())).toMatch(
      /^127\.0\.0\.1:\d+: its answer is longer than 16\.8 MB; see whether the address is right$/,
    );
    expect(sent).toBeLessThan(64 * MIB);
  });
});

describe('silence', () => {
  /** What 30 s of silence are here: they are over when it is so. */
  let isSilent: () => boolean;
  /** Times that something was waited for so long. */
  let waits: number;
  beforeEach(() => {
    isSilent = () => true;
    waits = 0;
    const { setTimeout } = globalThis;
    vi.stubGlobal('setTimeout', (work: () => void, ms = 0, ...args: []) => {
      if (ms !== 30_000) return setTimeout(work, ms / 100, ...args);
      waits++;
      const timer = setInterval(() => {
        if (!isSilent()) return;
        clearInterval(timer);
        work();
      }, 5);
      return timer;
    });
  });

  test('of the hub', async () => {
    answer = () => {};
    const error = await thrown(folder());
    expect(error).toBeInstanceOf(Interrupted);
    expect(error.message).toBe('nothing came for 30 s');
    expect(await refusal(page())).toMatch(/cannot be reached from here \(nothing came for 30 s\)/);
  });

  test('of the hub within its answer', async () => {
    answer = (_, response) => response.writeHead(200, { 'content-type': 'application/json' }).write('{"sha":');
    const error = await thrown(folder());
    expect(error).toBeInstanceOf(Interrupted);
    expect(error.message).toBe('nothing came for 30 s');
  });

  test('where a file is asked for, at the hub and behind an address', async () => {
    isSilent = () => false;
    answer = (request, response) => {
      if (request.url?.startsWith('/api/')) json({ id: 'org/m', _id: '1', sha: SHA })(request, response);
      else isSilent = () => true;
    };
    for (const remote of [await folder(), urlFolder(`${endpoint}/m/`)]) {
      const error = await thrown(remote.find('config.json'));
      expect(error).toBeInstanceOf(Interrupted);
      expect(error.message).toBe('nothing came for 30 s');
    }
  });

  test('where a file is looked for, six times, each of which is told', async () => {
    answer = () => {};
    const told: string[] = [];
    const again = (file: string, why: string) => void told.push(`${file}: ${why}`);
    const host = memoryHost(new MemoryFiles(), {
      resumeFile: () => {
        throw new Error('nothing has come');
      },
    });
    const remote = urlFolder(`${endpoint}/m/`);
    const none = () => {};
    for (const fetched of [
      () => fetchModel(host, remote, none, none, again),
      () => fetchFile(host, remote, 'config.json', none, none, again),
    ]) {
      expect(await refusal(fetched())).toMatch(/cannot get config\.json \(nothing came for 30 s\)/);
      expect(told.splice(0)).toEqual(Array(5).fill(`${endpoint}/m/config.json: nothing came for 30 s`));
    }
  });

  describe('within a file', () => {
    const bytes = Uint8Array.from({ length: 2500 }, (_, i) => i % 251);
    let asked: string[] = [];
    /** Bytes that came of it, and that are all that will come for now. */
    let got: number;
    let sent: number | undefined;
    /** A file by ranges, of which each request brings at most 1,000 bytes, and then nothing. */
    const stalling: RequestListener = (request, response) => {
      if (request.url?.startsWith('/api/')) {
        const siblings = [{ rfilename: 'x.gguf' }];
        return json({ id: 'org/m', _id: '1', sha: SHA, siblings })(request, response);
      }
      const [, first = '0', last = ''] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
      const from = Number(first);
      const to = Math.min(last === '' ? bytes.length : Number(last) + 1, bytes.length);
      if (to - from > 1) asked.push(`${from}-${to}`);
      response.writeHead(206, {
        ...{ etag: '"1"', 'content-range': `bytes ${from}-${to - 1}/${bytes.length}`, 'content-length': to - from },
      });
      if (to - from <= 1000) response.end(bytes.subarray(from, to));
      else {
        response.write(bytes.subarray(from, from + 1000));
        sent = from + 1000;
      }
    };
    beforeEach(() => {
      isSilent = () => {
        if (got !== sent) return false;
        // Of the next request nothing is sent yet.
        sent = undefined;
        return true;
      };
      got = 0;
      sent = undefined;
      asked = [];
      answer = stalling;
    });

    test('ends the reading of it, at the hub and behind an address', async () => {
      for (const remote of [await folder(), urlFolder(`${endpoint}/m/`)]) {
        const file = (await remote.find('x.gguf')) as RemoteFile;
        got = 0;
        const all = async () => {
          for await (const piece of file.read(0)) got += piece.length;
        };
        const error = await thrown(all());
        expect(error).toBeInstanceOf(Interrupted);
        expect(error.message).toBe('nothing came for 30 s');
        expect(got).toBe(1000);
      }
    });

    test('is gone on from where it was, and each time told', async () => {
      const told: string[] = [];
      const again = (file: string, why: string) => void told.push(`${file}: ${why}`);
      const kept: number[] = [];
      const target = {
        written: 0,
        restart: async () => void kept.splice(0),
        write: async (piece: Uint8Array) => {
          got = kept.push(...piece);
        },
        commit: async () => {},
        close: async () => {},
      };
      const host = memoryHost(new MemoryFiles(), { resumeFile: async () => target });
      const none = () => {};
      await fetchFile(host, await folder(), 'x.gguf', none, none, again);
      expect(kept).toEqual([...bytes]);
      expect(asked.slice(-3)).toEqual(['0-2500', '1000-2500', '2000-2500']);
      expect(told).toEqual(Array(2).fill('hf://org/m/x.gguf: nothing came for 30 s'));
    });
  });

  test('and an answer that is slower than that as a whole, and never silent, is taken', async () => {
    isSilent = () => false;
    const pieces = ['{"id":"org/m","_id":"1",', '"likes":1,', '"gated":false,', `"sha":"${SHA}"`, '}'];
    answer = async (_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      for (const piece of pieces) {
        const before = waits;
        response.write(piece);
        // It takes as long as it takes: the wait for this piece is over, and another one begins for the next.
        while (waits === before) await new Promise((resolve) => setTimeout(resolve));
      }
      response.end();
    };
    expect((await folder()).cacheName).toBe(`hub+org+m+${SHA}`);
  });
});

describe('what is none of a hub', () => {
  test('redirects that never end say so', async () => {
    answer = (request, response) => response.writeHead(302, { location: `${request.url}x` }).end();
    expect((await thrown(folder())).message).toBe('fetch failed: redirect count exceeded');
  });

  test('an answer that is no JSON', async () => {
    answer = (_, response) => response.end('<html>\u001b[31mhi</html>');
    expect(await refusal(folder())).toBe(
      'hf://org/m: the answer is no JSON; see whether HF_ENDPOINT is the address of a hub',
    );
  });

  test('a JSON that is no object', async () => {
    answer = json(null);
    expect(await refusal(folder())).toMatch(
      /^hf:\/\/org\/m: the answer is none of a hub \(.*\); see whether HF_ENDPOINT/,
    );
  });

  test.each(['../../../../x', 'main', 'A'.repeat(40), '', undefined, 7, `${SHA}\n`])('the commit %j', async (sha) => {
    answer = json({ id: 'org/m', _id: '1', sha });
    expect(await refusal(folder())).toMatch(
      /^hf:\/\/org\/m: the answer names no commit, but .*; see whether HF_ENDPOINT/,
    );
  });

  test('a file whose size is not said, asked for once', async () => {
    let asked = 0;
    answer = (request, response) => {
      if (request.url?.startsWith('/api/')) return json({ id: 'org/m', _id: '1', sha: SHA })(request, response);
      asked++;
      response.end('{}');
    };
    const remote = await folder();
    expect(await refusal(remote.find('config.json'))).toBe(
      'hf://org/m/config.json: the answer is none of a hub (Expected size information); see whether HF_ENDPOINT is the address of a hub',
    );
    expect(asked).toBe(1);
  });

  test('an error whose JSON is broken is still that error', async () => {
    answer = (_, response) => response.writeHead(503, { 'content-type': 'application/json' }).end('{');
    const error = await thrown(folder());
    expect(error).toBeInstanceOf(Interrupted);
    expect(error.message).toBe('the hub answers 503');
  });
});
