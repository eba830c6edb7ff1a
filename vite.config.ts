import { builtinModules } from 'node:module';
import os from 'node:os';
import { defineConfig } from 'vitest/config';
import { assemblyModules } from './config/assembly.ts';
import { kernelsDigest } from './config/digest.ts';
import { pageScripts } from './config/page-scripts.ts';

const isThorough = process.env['HOLDFAST_TESTS'] === 'all';
/** Of a test: what only one that hangs takes, also on a busy machine. Thorough ones count their cases by the ten thousand. */
const TIMEOUT = isThorough ? 7_200_000 : 600_000;
/** These run in Chromium: config/vitest.browsers.ts. And this installs a package of its own. */
const ELSEWHERE = ['test/browser/**', ...(isThorough ? [] : ['test/package/docs.test.ts'])];
/** Tests of what a process has once (its devices, globals, memory; modules that are replaced): each file has its own. */
const APART = [
  ...['platform', 'fuzz'].map((folder) => `test/${folder}/**/*.test.ts`),
  ...[
    'graph/head-slices',
    'graph/row-slices',
    'model/head-rows',
    'model/large-checkpoint',
    'cli/sizes',
    'formats/zip',
  ].map((name) => `test/${name}.test.ts`),
];

/** By it the bundle that the doors share is named: else any of its files may be. */
const isRun = (id: string): boolean => id.endsWith('/src/train/run/run.ts');

// Three bundles in dist/: the library, the headless runtime beside it, and the command line. Shaders are
// inlined as text. Everything from npm stays an import, so that a lock file decides its version.
export default defineConfig({
  plugins: [pageScripts, assemblyModules, kernelsDigest],
  build: {
    target: 'es2023',
    outDir: 'dist',
    emptyOutDir: true,
    minify: false,
    lib: {
      formats: ['es'],
      entry: { index: 'src/index.ts', headless: 'src/runtime/headless.ts', holdfast: 'src/cli/main.ts' },
    },
    rolldownOptions: {
      external: [
        ...builtinModules,
        /^node:/,
        'webgpu',
        'koffi',
        'tar-fs',
        'commander',
        'fast-png',
        'highs',
        'valibot',
        /^@(sparticuz|zip\.js|huggingface)\//,
      ],
      output: { chunkFileNames: ({ moduleIds }) => (moduleIds.some(isRun) ? 'run.js' : '[name].js') },
    },
  },
  // An address, not a name: a minimal system may not know "localhost".
  server: { host: '127.0.0.1' },
  test: {
    testTimeout: TIMEOUT,
    expect: { poll: { timeout: TIMEOUT } },
    hookTimeout: TIMEOUT,
    // A worker waits for the adapter about as long as it computes, and compiles each of its shaders itself.
    maxWorkers: Math.min(4, Math.max(2, os.availableParallelism())),
    projects: [
      {
        extends: true,
        // A process serves many files, with one device: shaders are compiled once, and modules loaded once.
        test: {
          name: 'shared',
          isolate: false,
          setupFiles: ['test/equality.ts', 'test/restore.ts'],
          include: ['test/**/*.test.ts'],
          exclude: [...ELSEWHERE, ...APART],
        },
      },
      { extends: true, test: { name: 'apart', setupFiles: 'test/equality.ts', include: APART, exclude: ELSEWHERE } },
    ],
  },
});
