// `npm run lab`: the kernels of whole training steps through a real GPU's compiler, on a machine that needs no GPU. Mesa's RADV
// compiles for a card that is not there, null_gpu.c answers for the card, and one table a card says what became of each
// kernel. It shows no time, and no other vendor's compiler. With --json the figures as one object a line.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createServer } from 'vite';
import { prepare } from './mesa.mjs';

const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
const { values: options } = parseArgs({
  options: {
    card: { type: 'string', multiple: true, default: ['navi21', 'navi31'] },
    kernel: { type: 'string', default: '' },
    json: { type: 'boolean', default: false },
  },
});
const out = process.env['HOLDFAST_LAB_OUT'];
if (out !== undefined) await compileHere(out);
else await eachCard();

/** In a process of its own for each card: the driver reads from the environment which one it compiles for. */
async function eachCard() {
  const { environment, missing } = prepare();
  if (missing) {
    console.error(`npm run lab: ${missing}`);
    process.exit(2);
  }
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-lab-'));
  try {
    for (const card of options.card) {
      const file = path.join(folder, card);
      writeFileSync(file, '');
      const env = { ...process.env, ...environment, RADV_FORCE_FAMILY: card, HOLDFAST_LAB_OUT: file };
      const args = [fileURLToPath(import.meta.url), ...process.argv.slice(2)];
      const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
      const [printed, errors] = [[], []];
      child.stdout.on('data', (bytes) => printed.push(bytes));
      child.stderr.on('data', (bytes) => errors.push(bytes));
      const [status] = await once(child, 'close');
      const text = Buffer.concat(printed).toString();
      if (status !== 0 || text === '') {
        console.error(`npm run lab: ${card} ended with status ${status}\n${Buffer.concat(errors)}`);
        process.exit(1);
      }
      process.stdout.write(
        options.json ? text : await load('scripts/lab/table.ts', ({ tables }) => tables(card, JSON.parse(text))),
      );
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function compileHere(file) {
  const report = await load('scripts/lab/compile.ts', ({ compileSteps }) => compileSteps(file, options.kernel));
  process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
}

/** What `use` makes of a module of the sources, whose imports are those of the build: shaders as text and the like. */
async function load(file, use) {
  const server = await createServer({
    ...{ configFile: path.join(root, 'vite.config.ts'), root, logLevel: 'warn', appType: 'custom' },
    server: { middlewareMode: true, ws: false, watch: null },
  });
  try {
    return await use(await server.ssrLoadModule(path.join(root, file)));
  } finally {
    await server.close();
  }
}
