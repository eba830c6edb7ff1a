// The step before `npm start` and `npm test`: installs what is missing and builds what is stale, so that a
// bare clone needs nothing but the one command. Does nothing, quickly, when all is in place.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const stamp = path.join(root, 'node_modules', '.holdfast-install');
/** Written last. */
const built = path.join(root, 'dist', 'site', 'index.html');
const inputs = [
  'src',
  'assembly',
  'assets',
  'shaders',
  'workers',
  'demo',
  'config',
  'scripts',
  'vite.config.ts',
  'tsconfig.json',
  'package-lock.json',
];

const lock = createHash('sha256')
  .update(readFileSync(path.join(root, 'package-lock.json')))
  .digest('hex');
if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== lock) {
  console.log('installing packages (once) ...');
  // It insists on lock entries for the optional binaries of every platform: test/package/lock.test.ts looks for them.
  npm(['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  writeFileSync(stamp, lock);
}
if (!existsSync(built) || statSync(built).mtimeMs < Math.max(...inputs.map((name) => newest(path.join(root, name))))) {
  npm(['run', '--silent', 'build', '--', '--quiet']);
}

function npm(args) {
  const windows = process.platform === 'win32';
  const { status } = spawnSync(windows ? 'npm.cmd' : 'npm', args, { cwd: root, stdio: 'inherit', shell: windows });
  if (status !== 0) {
    console.error(`npm ${args[0]} failed (status ${status}); run it again, or look at its messages above`);
    process.exit(1);
  }
}

/** The latest change below a file or folder, in milliseconds. */
function newest(file) {
  const stat = statSync(file);
  if (!stat.isDirectory()) return stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(file).map((name) => newest(path.join(file, name))));
}
