// A static server for the tests in pages, with two base paths: under /isolated/ it sends the headers of `npm run demo`,
// which isolate pages and say what they may run, under /plain/ none. Below each lie the built library in browser/, a page that has it as `window.library` and shows
// nothing, and the built demo page in demo/.

import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { policyOf } from '../../demo/policy.ts';

const DIST = path.resolve(import.meta.dirname, '../../dist');
const TYPES: Record<string, string> = {
  '.html': 'text/html',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.gz': 'application/gzip',
  '.wasm': 'application/wasm',
};

const PAGE = `<!doctype html><link rel="icon" href="data:,">
<script type="module">import * as library from './browser/index.js'; window.library = library;</script>`;

export interface Site {
  readonly isolated: string;
  readonly plain: string;
  /** Every path that was asked for. */
  readonly asked: readonly string[];
  close(): void;
}

export async function serve(): Promise<Site> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    const [, kind, rest] = /^\/(isolated|plain)\/(.*)$/.exec(request.url ?? '') ?? [];
    const file = fileAt(rest ?? '');
    if (kind === 'isolated') {
      response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
      response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
      if (rest?.startsWith('demo/')) response.setHeader('Content-Security-Policy', policyOf(`/${rest}`));
    }
    if (rest === '') response.setHeader('Content-Type', 'text/html').end(PAGE);
    else if (!kind || !existsSync(file)) response.writeHead(404).end();
    else response.setHeader('Content-Type', TYPES[path.extname(file)] ?? '').end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { isolated: `${origin}/isolated/`, plain: `${origin}/plain/`, asked, close: () => server.close() };
}

function fileAt(rest: string): string {
  if (rest.startsWith('demo/')) return path.join(DIST, 'site', rest.slice('demo/'.length) || 'index.html');
  return path.join(DIST, 'browser', rest.replace(/^browser\//, ''));
}
