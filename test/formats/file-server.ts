// A server of files on this machine, for tests of what is loaded from elsewhere: with or without ranges, and with the
// failures that networks and servers have.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Behaviour {
  /** @default true */
  ranges?: boolean;
  /** The connection is cut after so many bytes of a body, as often as `drops` says. */
  dropAfter?: number;
  drops?: number;
  /** Of that many requests, the first ones, the answer is this. */
  busy?: { status: number; times: number };
  /** Says that a file is longer than it is. */
  longer?: number;
  /** Sends a folder to another, of another server where one is named by its address. */
  redirect?: { from: string; to: string; server?: string };
  /** Below this path, what comes without the token of an account is refused, and so is another account's. */
  gated?: { path: string; token: string; status?: 401 | 403 };
  /** Of the answers. @default "1" */
  etag?: string | undefined;
  /** Says nothing of a body's length. */
  chunked?: boolean;
  /** Sends so many bytes of a longer body of that file, and then nothing more. */
  stall?: { file: string; after: number } | undefined;
  /** Lets pages of other origins read it, as the hub does. */
  cors?: boolean;
}

export class FileServer {
  readonly files: Map<string, Uint8Array>;
  behaviour: Behaviour = {};
  /** What was asked for, with its range. */
  requests: string[] = [];
  /** The header of each request that names an account. */
  accounts: (string | undefined)[] = [];
  /** Bytes of bodies that were sent. */
  sent = 0;
  readonly #server = createServer((request, response) => this.#answer(request, response));

  constructor(files: Record<string, string | Uint8Array>) {
    this.files = new Map(
      Object.entries(files).map(([path, content]) => [
        path,
        typeof content === 'string' ? new TextEncoder().encode(content) : content,
      ]),
    );
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { ranges = true, busy, redirect, chunked = false, longer = 0 } = this.behaviour;
    const path = decodeURIComponent((request.url ?? '').split('?')[0] ?? '').slice(1);
    if (this.behaviour.cors) {
      response.setHeader('access-control-allow-origin', '*');
      response.setHeader('access-control-expose-headers', 'Content-Range, ETag');
      response.setHeader('access-control-allow-headers', 'authorization, range');
      if (request.method === 'OPTIONS') {
        response.writeHead(204).end();
        return;
      }
    }
    this.requests.push(`${path} ${request.headers.range ?? ''}`.trim());
    this.accounts.push(request.headers.authorization);
    const { gated } = this.behaviour;
    if (gated && path.startsWith(gated.path) && request.headers.authorization !== `Bearer ${gated.token}`) {
      response.writeHead(gated.status ?? 401, { 'x-error-code': 'GatedRepo' }).end();
      return;
    }
    if (busy && busy.times > 0) {
      busy.times--;
      response.writeHead(busy.status).end();
      return;
    }
    if (redirect && path.startsWith(redirect.from)) {
      const { from, to, server = '' } = redirect;
      response.writeHead(302, { location: `${server}/${to}${path.slice(from.length)}` }).end();
      return;
    }
    const file = this.files.get(path);
    if (!file) {
      response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
      return;
    }
    const total = file.length + longer;
    const etag = 'etag' in this.behaviour ? this.behaviour.etag : '"1"';
    const headers: Record<string, string> = etag === undefined ? {} : { etag };
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    if (!ranges || first === undefined) {
      response.writeHead(200, chunked ? headers : { ...headers, 'content-length': String(total) });
      this.#send(response, path, file);
      return;
    }
    const from = Number(first);
    if (from >= total) {
      response.writeHead(416, { ...headers, 'content-range': `bytes */${total}` }).end();
      return;
    }
    const to = Math.min(total - 1, last === '' ? total - 1 : Number(last));
    response.writeHead(206, {
      ...headers,
      'content-range': `bytes ${from}-${to}/${total}`,
      'content-length': String(to + 1 - from),
    });
    this.#send(response, path, file.subarray(from, to + 1));
  }

  #send(response: ServerResponse, path: string, bytes: Uint8Array): void {
    const { dropAfter, drops = 0, stall } = this.behaviour;
    if (stall && path.endsWith(stall.file) && bytes.length > stall.after) {
      this.sent += stall.after;
      response.write(bytes.subarray(0, stall.after));
      return;
    }
    if (dropAfter !== undefined && drops > 0 && bytes.length > dropAfter) {
      this.behaviour.drops = drops - 1;
      this.sent += dropAfter;
      // Once it is on its way.
      response.write(bytes.subarray(0, dropAfter), () => setTimeout(() => response.destroy(), 5));
      return;
    }
    this.sent += bytes.length;
    if (this.behaviour.longer) response.write(bytes, () => setTimeout(() => response.destroy(), 5));
    else response.end(bytes);
  }
}
