// A server of the built library for benchmarks in a page: cross-origin isolated, on a port of its own.

import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('../../dist/browser', import.meta.url));
const TYPES = { '.js': 'text/javascript', '.txt': 'text/plain' };

/** Serves dist/browser below an empty page. Errors: where it is not built. */
export async function serveLibrary() {
  if (!existsSync(FOLDER)) throw new Error('dist/browser is missing; run npm run build');
  const server = createServer((request, response) => {
    response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    const file = path.join(FOLDER, path.normalize(request.url));
    if (request.url === '/') response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
    else if (!existsSync(file)) response.writeHead(404).end();
    else response.setHeader('Content-Type', TYPES[path.extname(file)] ?? '').end(readFileSync(file));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { address: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}
