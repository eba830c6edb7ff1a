// What Dawn writes to standard error past Node: its notices are left out, and nothing else, in the order of writing.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { transformWithOxc } from 'vite';
import { expect, test } from 'vitest';
import { withoutNoticesIn } from '../../src/runtime/headless/native-stderr.ts';

const root = path.resolve(import.meta.dirname, '../..');
const notice = 'Warning: maxDynamicUniformBuffersPerPipelineLayout artificially reduced from 1000000 to 16 to fit.';

/** Writes natively and through Node while notices are left out, then after. */
const PROGRAM = `
import koffi from 'koffi';
import { withoutNotices } from './native-stderr.mjs';
const write = koffi.load(null).func('long write(int, str, size_t)');
const say = (line) => write(2, line + '\\n', Buffer.byteLength(line) + 1);
const works = [1, 2].map((n) => withoutNotices(async () => {
  say('${notice}');
  say('native ' + n);
  await new Promise((resolve) => setTimeout(resolve, 5));
  process.stderr.write('Node ' + n + '\\n');
  if (n === 2) throw new Error('on purpose');
  return n;
}));
console.log((await Promise.allSettled(works)).map(({ status }) => status).join());
say('${notice}');
`;

test('a notice is known by how it begins', () => {
  expect(withoutNoticesIn(`${notice}\n`)).toBe('');
  for (const kept of [`other: ${notice}\n`, 'Warning: the driver is old\n', 'one\n\n\ntwo', '\n'])
    expect(withoutNoticesIn(kept)).toBe(kept);
  expect(withoutNoticesIn(`one\n${notice}\n\ntwo\n`)).toBe('one\n\ntwo\n');
});

test('nor is said why an adapter of Vulkan is none: as an old Mesa has it, and a loader without drivers', () => {
  const at = (name: string) =>
    `    at ${name} (/home/a/third_party/dawn/src/dawn/native/vulkan/VulkanError.cpp:106)\n\n`;
  const old = [
    'error: XDG_RUNTIME_DIR is invalid or not set in the environment.\n',
    'Warning: Vulkan shaderUniform*ArrayDynamicIndexing required.\n',
    ` - While initializing adapter (backend=BackendType::Vulkan)\n${at('InitializeImpl')}`,
  ].join('');
  const none = [
    'Warning: vkCreateInstance: Found no drivers!\n',
    `Warning: vkCreateInstance failed with VK_ERROR_INCOMPATIBLE_DRIVER\n${at('CheckVkSuccessImpl')}`,
  ].join('');
  expect(withoutNoticesIn(`${old}said\n${none}${none}and said\n${notice}\n`)).toBe('said\nand said\n');
});

// Deno's WebGPU writes none, and Windows has no descriptors that could be redirected: nothing is done there.
test.skipIf('Deno' in globalThis || process.platform === 'win32')(
  'notices are left out while work lasts, and all else is passed on, whether it fails or not',
  async () => {
    const source = path.join(root, 'src/runtime/headless/native-stderr.ts');
    const { code } = await transformWithOxc(readFileSync(source, 'utf8'), source);
    // Inside the package: koffi is looked up from here.
    const folder = mkdtempSync(path.join(root, 'dist', 'stderr-'));
    try {
      writeFileSync(path.join(folder, 'native-stderr.mjs'), code);
      writeFileSync(path.join(folder, 'program.mjs'), PROGRAM);
      const program = path.join(folder, 'program.mjs');
      const { stdout, stderr, status } = spawnSync(process.execPath, [program], { encoding: 'utf8' });
      expect(status, stderr).toBe(0);
      expect(stderr).toBe(`native 1\nNode 1\nnative 2\nNode 2\n${notice}\n`);
      expect(stdout).toBe('fulfilled,rejected\n');
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
