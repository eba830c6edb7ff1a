// A Firefox with WebGPU for the tests: the system's own, of any version that speaks WebDriver BiDi, driven by Playwright
// (through firefox-relay.mjs). Never downloads one. On a machine without a GPU it needs Mesa's Vulkan driver (llvmpipe).

import { spawnSync } from 'node:child_process';
import os from 'node:os';
import path from 'node:path';
import { tryOut } from './try-browser.mjs';

const PREFERENCES = { 'dom.webgpu.enabled': true, 'gfx.webgpu.ignore-blocklist': true };
const NAMES = ['firefox', 'firefox-esr', '/Applications/Firefox.app/Contents/MacOS/firefox'];

/**
 * How Playwright starts a Firefox that has WebGPU, or why none can be started here. HOLDFAST_FIREFOX names the program
 * to use instead of the one that is found.
 * @returns {Promise<{ launch: import('playwright').LaunchOptions } | { reason: string }>}
 */
export async function findFirefox() {
  const named = process.env['HOLDFAST_FIREFOX'];
  const program = named ?? NAMES.find((name) => spawnSync(name, ['--version']).status === 0);
  if (!program) return { reason: 'not installed' };
  // A script with a first line that names its program: not on Windows.
  if (process.platform === 'win32') return { reason: 'not driven on Windows' };
  // Mesa wants a folder for what it may do with a display.
  const env = { XDG_RUNTIME_DIR: os.tmpdir(), ...process.env, HOLDFAST_FIREFOX: program };
  /** @type {import('playwright').LaunchOptions} */
  const launch = {
    channel: 'moz-firefox',
    executablePath: path.join(import.meta.dirname, 'firefox-relay.mjs'),
    firefoxUserPrefs: PREFERENCES,
    env,
  };
  try {
    const problem = await tryOut('firefox', launch);
    return problem ? { reason: problem } : { launch };
  } catch (error) {
    return { reason: String(error instanceof Error ? error.message : error).split('\n')[0] ?? '' };
  }
}
