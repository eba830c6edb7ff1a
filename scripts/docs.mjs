// `npm run docs`: the API page, made from the docstrings of what is exported, and the demo, as one static site in
// dist/docs. TypeDoc has a package of its own in docs/site, installed when it is first needed: it reads TypeScript 6.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const site = path.join(root, 'docs', 'site');
const dist = (/** @type {string[]} */ ...names) => path.join(root, 'dist', ...names);

if (!existsSync(path.join(site, 'node_modules'))) npm(['ci', '--no-audit', '--no-fund', '--loglevel=error']);
rmSync(dist('docs'), { recursive: true, force: true });
// A door's page has the name of its file.
mkdirSync(dist('.docs'), { recursive: true });
try {
  cpSync(dist('index.d.ts'), dist('.docs', 'holdfast.d.ts'));
  cpSync(dist('headless.d.ts'), dist('.docs', 'headless.d.ts'));
  cpSync(dist('browser', 'index.d.ts'), dist('.docs', 'browser.d.ts'));
  run(process.execPath, [path.join(site, 'node_modules', 'typedoc', 'bin', 'typedoc'), '--logLevel', 'Warn']);
} finally {
  rmSync(dist('.docs'), { recursive: true, force: true });
}
cpSync(dist('site'), dist('docs', 'demo'), { recursive: true });
cpSync(path.join(site, 'index.html'), dist('docs', 'index.html'));
console.log('dist/docs: serve it from any file server');

/** @param {string[]} args */
function npm(args) {
  const windows = process.platform === 'win32';
  run(windows ? 'npm.cmd' : 'npm', args, windows);
}

/** @param {string} command @param {string[]} args */
function run(command, args, shell = false) {
  const { status } = spawnSync(command, args, { cwd: site, stdio: 'inherit', shell });
  if (status !== 0) {
    console.error(`${path.basename(args[0] ?? command)} failed (status ${status}); look at its messages above`);
    process.exit(1);
  }
}
