// The rules of the house that no linter knows: one file and its folder name the runtimes, shaders say what they bind.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { compiledText, reflect } from '../../src/gpu/shader.ts';

const root = path.resolve(import.meta.dirname, '../..');
const sources = readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.ts'),
);

test('no file of src but the headless host and its part imports node: modules or touches a runtime global', () => {
  const named = sources.filter((name) => {
    const text = readFileSync(path.join(root, 'src', name), 'utf8')
      .replace(/\/\/.*$/gm, '')
      .replace(/\/\*[\s\S]*?\*\//g, '');
    return /from 'node:|import\('node:|\bDeno\.|\bprocess\.|\bBuffer\.|require\(|koffi|'webgpu'/.test(text);
  });
  expect(named.filter((name) => !name.startsWith(path.join('runtime', 'headless/')))).toEqual(['runtime/headless.ts']);
});

test('the headless host’s folder is imported by it alone', () => {
  const users = sources.filter((name) => /from '.*headless\//.test(readFileSync(path.join(root, 'src', name), 'utf8')));
  expect(users).toEqual(['runtime/headless.ts']);
});

test('no file of src but the hosts and the page’s side touches what only a browser has', () => {
  const named = sources.filter((name) => {
    const text = readFileSync(path.join(root, 'src', name), 'utf8')
      .replace(/\/\/.*$/gm, '')
      .replace(/\/\*[\s\S]*?\*\//g, '');
    return /\bnavigator\.|\bdocument\.|new Worker\(|requestAnimationFrame|\blocation\./.test(text);
  });
  const expected = [
    'browser/client.ts',
    'report/language.ts', // the scripts of the page that it writes
    'report/page/curves.ts',
    'report/page/fills.ts',
    'report/page/memory.ts',
    'report/page/step-map.ts',
    'runtime/browser.ts',
    'runtime/headless/gpu-sources.ts',
    'runtime/headless/threads.ts',
  ];
  expect(named.filter((name) => !name.startsWith(path.join('runtime', 'browser/'))).sort()).toEqual(expected);
});

test('a shader declares what it binds, once, in order', () => {
  const { params, bindings } = reflect(`
    struct Params { rows: u32, eps: f32, first: i32 } // a comment with struct Params { no: u32 }
    @group(0) @binding(0) var<uniform> p: Params;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    // @group(0) @binding(9) var<storage, read> commented: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<vec4f>;`);
  expect(params).toEqual([
    { name: 'rows', type: 'u32' },
    { name: 'eps', type: 'f32' },
    { name: 'first', type: 'i32' },
  ]);
  expect([...bindings]).toEqual([
    [1, { name: 'x', access: 'read' }],
    [2, { name: 'y', access: 'read_write' }],
  ]);
});

test('constants go behind the enable directives, in WGSL’s own words', () => {
  const text = compiledText('enable subgroups;\nfn main() {}', { TILE: 4, SCALE: 0.5 });
  expect(text.startsWith('enable subgroups;\nconst TILE = 4u;\nconst SCALE = 0.5f;\n')).toBe(true);
});

test('bindings of floats are compiled as writable, but those of one range', () => {
  const lines = ['x: array<elem>', 'xs: array<vec4f>', 'ids: array<u32>'].map((what) => `var<storage, read> ${what};`);
  const source = ['var<uniform> p: u32;', ...lines, 'var<storage, read_write> halves: array<vec2u>;'].join('\n');
  const written = source.replace('read> x:', 'read_write> x:').replace('read> xs:', 'read_write> xs:');
  expect(compiledText(source, {}).trim()).toBe(written);
  const alike = source.replace('read_write> halves', 'read> halves').replace('read> xs:', 'read_write> xs:');
  expect(compiledText(source, {}, ['x', 'halves']).trim()).toBe(alike);
});
