// A Chromium with WebGPU for the tests: the one that npm brings along (@sparticuz/chromium, linux-x64; unpacked once
// into the cache folder, with the libraries that a bare system lacks), or the system's Chrome. Knows how to start
// one and whether it works; what is tested in it is not its business.

import { createReadStream, createWriteStream, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { chmod, mkdir, rename, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createBrotliDecompress } from 'node:zlib';
import { tryOut } from './try-browser.mjs';

const require = createRequire(import.meta.url);

/** WebGPU on any machine: the software adapter that Chromium brings along. On a busy one it is slow, not hung. */
const SOFTWARE = [
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--enable-features=Vulkan',
  '--disable-gpu-watchdog',
];

/**
 * How Playwright starts a Chromium that has WebGPU, or why none can be started here. HOLDFAST_CHROMIUM names the
 * program to use instead of the one that npm brought.
 * @returns {Promise<{ launch: import('playwright').LaunchOptions } | { reason: string }>}
 */
export async function findChromium() {
  const named = process.env['HOLDFAST_CHROMIUM'];
  try {
    const launch = named ? { executablePath: named, args: SOFTWARE } : await packagedOrSystem();
    const problem = await tryOut('chromium', launch);
    return problem ? { reason: problem } : { launch };
  } catch (error) {
    return { reason: String(error instanceof Error ? error.message : error).split('\n')[0] ?? '' };
  }
}

/** @returns {Promise<import('playwright').LaunchOptions>} */
async function packagedOrSystem() {
  const root = packageFolder();
  if (!root) return { channel: 'chrome', args: SOFTWARE };
  const folder = await unpack(root);
  const libraries = [path.join(folder, 'lib'), process.env['LD_LIBRARY_PATH']].filter(Boolean).join(':');
  // A system without fonts has no configuration for them either, and Chromium dies of the first text field.
  const fonts = existsSync('/etc/fonts/fonts.conf') ? {} : { FONTCONFIG_FILE: packagedFonts(folder) };
  const env = { ...process.env, LD_LIBRARY_PATH: libraries, ...fonts };
  return { executablePath: path.join(folder, 'chromium'), args: SOFTWARE, env };
}

/** Where @sparticuz/chromium lies; undefined where it is not installed or is for another platform. */
function packageFolder() {
  if (process.platform !== 'linux' || process.arch !== 'x64') return undefined;
  try {
    const entry = require.resolve('@sparticuz/chromium');
    const name = path.join('@sparticuz', 'chromium');
    return entry.slice(0, entry.lastIndexOf(name) + name.length);
  } catch {
    return undefined;
  }
}

/** @param {string} root */
async function unpack(root) {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const cache = path.join(process.env['XDG_CACHE_HOME'] || path.join(os.homedir(), '.cache'), 'holdfast');
  const target = path.join(cache, `chromium-${version}`);
  if (existsSync(path.join(target, 'chromium'))) return target;
  const partial = `${target}.${process.pid}`;
  await mkdir(partial, { recursive: true });
  const archive = (/** @type {string} */ name) => createReadStream(path.join(root, 'bin', `${name}.br`));
  await pipeline(archive('chromium'), createBrotliDecompress(), createWriteStream(path.join(partial, 'chromium')));
  await chmod(path.join(partial, 'chromium'), 0o755);
  const tar = (await import('tar-fs')).default;
  for (const name of ['al2023.tar', 'swiftshader.tar', 'fonts.tar']) {
    await pipeline(archive(name), createBrotliDecompress(), tar.extract(partial));
  }
  // Another process may have been first: its copy is as good.
  await rename(partial, target).catch(() => rm(partial, { recursive: true, force: true }));
  return target;
}

/**
 * A configuration that names the fonts which npm brought; the one that came with them looks in other places.
 * @param {string} folder
 */
function packagedFonts(folder) {
  const file = path.join(folder, 'packaged-fonts.conf');
  const places = `<dir>${folder}/fonts</dir><cachedir>${folder}/fonts-cache</cachedir>`;
  if (existsSync(file)) return file;
  writeFileSync(
    file,
    `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>${places}</fontconfig>`,
  );
  return file;
}
