// Trial of a browser: whether it starts and has a WebGPU adapter. Tried, since no version or platform tells.

import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';

const NAMES = { chromium: 'Chromium', firefox: 'Firefox' };
/** What may be missing, beside a GPU. */
const WANTS = { chromium: '', firefox: ", which takes a GPU or Mesa's Vulkan driver (llvmpipe)" };

/**
 * Starts it once and asks for an adapter. Returns what is wrong, if something is.
 * @param {'chromium' | 'firefox'} kind
 * @param {import('playwright').LaunchOptions} launch
 */
export async function tryOut(kind, launch) {
  if (launch.executablePath) {
    // A loader's complaint says more than the runner's time-out.
    const { status, stderr, error } = spawnSync(launch.executablePath, ['--version'], {
      env: /** @type {NodeJS.ProcessEnv} */ (launch.env ?? process.env),
      encoding: 'utf8',
    });
    if (status !== 0) return `${NAMES[kind]} does not start: ${error?.message ?? stderr.trim().split('\n')[0]}`;
  }
  const browser = await (await import('playwright'))[kind].launch(launch);
  // navigator.gpu exists on pages of a server only.
  const server = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html>'));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  try {
    const page = await browser.newPage();
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    await page.goto(`http://127.0.0.1:${port}/`);
    const found = await page.evaluate(async () => Boolean(await navigator.gpu?.requestAdapter()));
    return found ? undefined : `${NAMES[kind]} ${browser.version()} has no WebGPU adapter here${WANTS[kind]}`;
  } finally {
    await browser.close();
    server.close();
  }
}
