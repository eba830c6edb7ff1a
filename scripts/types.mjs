// The declarations of the package's three doors, and the reports of what they offer: TypeScript writes a declaration
// beside each source, API Extractor rolls what a door reaches up into one file and lists what it exports. Not the
// place that says what is exported: src/index.ts, src/browser/index.ts and src/runtime/headless.ts do.
//
//   npm run api          # writes docs/api/*.api.md anew, after a change of what is exported
//   npm run api:check    # says what has changed since, and what is exported without a word on it

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Extractor, ExtractorConfig, ExtractorLogLevel } from '@microsoft/api-extractor';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
export const REPORTS = path.join(root, 'docs', 'api');

/** Of what `using` ends, as @types/node declares them: a project for browsers may have none of either. */
const SYMBOLS =
  'declare global { interface SymbolConstructor { readonly dispose: unique symbol; readonly asyncDispose: unique symbol } }\n';

/** `entry`: the declaration that TypeScript writes; `rollup`: where package.json looks for it, below dist/. */
const DOORS = [
  { name: 'holdfast', entry: 'index.d.ts', rollup: 'index.d.ts' },
  { name: 'headless', entry: 'runtime/headless.d.ts', rollup: 'headless.d.ts' },
  { name: 'browser', entry: 'browser/index.d.ts', rollup: 'browser/index.d.ts' },
];

/**
 * Writes the rolled-up declarations below `out`. Returns what is wrong with them: an export without a docstring, a
 * report in `reports` that says otherwise; with `write` the reports are written instead.
 * @param {{ out?: string, reports?: string, write?: boolean, change?: (tree: string) => void }} options `change` is
 *   given the folder of declarations before they are read
 * @returns {string[]}
 */
export function makeTypes({ out = path.join(root, 'dist'), reports = REPORTS, write = false, change } = {}) {
  // API Extractor leaves alone what lies in a node_modules folder, and looks for packages from where it lies.
  const work = path.join(root, 'dist', `.types-${process.pid}`);
  const tree = path.join(work, 'tree');
  try {
    declare(tree);
    change?.(tree);
    return DOORS.flatMap((door) => extract(door, { tree, work, out, reports, write }));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** One declaration a source, with specifiers that every resolution follows. */
function declare(/** @type {string} */ tree) {
  const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const config = path.join(root, 'config', 'tsconfig.types.json');
  const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', config, '--outDir', tree], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`tsc wrote no declarations:\n${stdout}`);
  for (const name of readdirSync(tree, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.d.ts')) continue;
    const file = path.join(tree, name);
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace(/((?:from |import\()["']\.[^"']*)\.ts(["'])/g, '$1.js$2'));
  }
}

/**
 * @param {(typeof DOORS)[number]} door
 * @param {{ tree: string, work: string, out: string, reports: string, write: boolean }} options
 */
function extract({ name, entry, rollup }, { tree, work, out, reports, write }) {
  const main = path.join(tree, entry);
  const declarations = path.join(work, `${name}.d.ts`);
  const report = `${name}.api.md`;
  const { compilerOptions } = JSON.parse(readFileSync(path.join(root, 'tsconfig.json'), 'utf8'));
  const quiet = { default: { logLevel: ExtractorLogLevel.None } };
  const config = ExtractorConfig.prepare({
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: main,
      compiler: { overrideTsconfig: { compilerOptions, files: [main] } },
      apiReport: {
        enabled: true,
        reportFileName: report,
        reportFolder: work,
        reportTempFolder: path.join(work, 'new'),
      },
      dtsRollup: { enabled: true, untrimmedFilePath: declarations },
      docModel: { enabled: false },
      tsdocMetadata: { enabled: false },
      messages: {
        compilerMessageReporting: { default: { logLevel: ExtractorLogLevel.Error } },
        extractorMessageReporting: { ...quiet, 'ae-undocumented': { logLevel: ExtractorLogLevel.Warning } },
        tsdocMessageReporting: quiet,
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: path.join(root, 'package.json'),
  });
  /** @type {string[]} */
  const problems = [];
  Extractor.invoke(config, {
    localBuild: true,
    messageCallback(message) {
      message.handled = true;
      if (message.messageId.startsWith('console-')) return;
      if (message.logLevel !== ExtractorLogLevel.Warning && message.logLevel !== ExtractorLogLevel.Error) return;
      const source = path.relative(tree, message.sourceFilePath ?? '').replace(/\.d\.ts$/, '.ts');
      problems.push(`src/${source}: ${message.text}`);
    },
  });
  mkdirSync(path.dirname(path.join(out, rollup)), { recursive: true });
  // WebGPU's names are TypeScript's own since 6.0: a reference to @webgpu/types would declare them twice.
  const text = readFileSync(declarations, 'utf8');
  const disposes = text.includes('typeof Symbol.asyncDispose');
  writeFileSync(path.join(out, rollup), disposes ? `${SYMBOLS}${text}` : text);
  const made = path.join(work, 'new', report);
  const kept = path.join(reports, report);
  if (write) {
    mkdirSync(reports, { recursive: true });
    cpSync(made, kept);
  } else if (textOf(made) !== textOf(kept)) {
    problems.push(`docs/api/${report}: what ${name} exports is no longer what it says; run npm run api and look at it`);
  }
  return [...new Set(problems)];
}

/** @param {string} file */
function textOf(file) {
  try {
    return readFileSync(file, 'utf8').replace(/\r\n/g, '\n');
  } catch {
    return undefined;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const write = process.argv.includes('--write');
  const problems = makeTypes({ write });
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exit(1);
}
