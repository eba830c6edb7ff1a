// What shader fragments say of each other: a shader is whole files of shaders/ one behind the other, and the first
// lines of each say which names it needs from the prelude or from the others and which it gives them. No device.

import { describe, expect, it } from 'vitest';
import { copy, multiplyAdds } from '../../src/engine/observe/peak.ts';
import { reflect } from '../../src/gpu/shader.ts';
import {
  adamwNarrowMoments,
  adamwOnHalves,
  adamwOnHalvesNarrowMoments,
  adamwWithCopy,
  adamwWithCopyNarrowMoments,
} from '../../src/kernels/adamw.ts';
import type { Dispatch, Kernel } from '../../src/kernels/kernel.ts';
import { NARROW } from '../../src/kernels/narrow.ts';
import { scaledStepControl } from '../../src/kernels/step-control.ts';
import { roundAndSumSquares, scaleAndSumSquares } from '../../src/kernels/sum-squares.ts';
import { cases } from './cases.ts';
import { freeNames, moduleNames } from './wgsl.ts';

const files = import.meta.glob<string>('../../shaders/**/*.wgsl', { query: '?raw', import: 'default', eager: true });

interface Fragment {
  readonly file: string;
  readonly text: string;
  readonly needs: readonly string[];
  readonly gives: readonly string[];
}

/** The lines `// needs: a, b` and `// gives: c` that a file begins with. */
function fragmentOf(file: string, text: string): Fragment {
  const lists: Record<'needs' | 'gives', string[]> = { needs: [], gives: [] };
  for (const line of text.split('\n')) {
    const [, list, names] = /^\/\/ (needs|gives): (\w+(?:, \w+)*)$/.exec(line) ?? [];
    if (!list || !names) break;
    lists[list as 'needs' | 'gives'].push(...names.split(', '));
  }
  return { file: file.replace('../../shaders/', ''), text, ...lists };
}

const fragments = Object.entries(files).map(([file, text]) => fragmentOf(file, text));

/** The files that a shader's text is made of, in their order. */
function split(shader: string): Fragment[] {
  const parts: Fragment[] = [];
  for (let at = 0; at < shader.length; ) {
    const [next, ...others] = fragments.filter(({ text }) => shader.startsWith(text, at));
    if (!next || others.length > 0) throw new Error(`no one file begins with ${shader.slice(at, at + 80)}`);
    parts.push(next);
    at += next.text.length;
  }
  return parts;
}

/** A shader and the constants in front of it; the kernels that run it. */
interface Shader {
  readonly name: string;
  readonly parts: readonly Fragment[];
  readonly constants: readonly string[];
}

function shadersOf(): Shader[] {
  const found = new Map<string, Shader>();
  const add = (name: string, { shader, constants }: Dispatch) => {
    const key = `${Object.keys(constants).join(' ')}\n${shader}`;
    if (!found.has(key)) found.set(key, { name, parts: split(shader), constants: Object.keys(constants) });
  };
  // biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
  const run = (kernel: Kernel<any>, problem: object) => {
    for (const variant of kernel.variants) {
      for (const subgroupMatrices of ['fixed', 'sized'] as const) {
        const traits = { software: true, subgroupSize: 4, subgroupMatrices };
        add(`${kernel.name}.${variant.name}`, variant.dispatch(problem, traits));
      }
    }
  };
  for (const { kernel, problems } of cases) for (const problem of problems) run(kernel, problem);
  run(multiplyAdds, { invocations: 64, rounds: 1 });
  run(copy, { size: 64 });
  for (const kernel of [
    ...[adamwOnHalves, adamwWithCopy],
    ...[adamwNarrowMoments, adamwOnHalvesNarrowMoments, adamwWithCopyNarrowMoments],
  ])
    run(kernel, { size: 64 });
  run(adamwNarrowMoments, { size: 64, numbered: true });
  run(roundAndSumSquares, { size: 64, first: 0 });
  run(scaleAndSumSquares, { size: 64, first: 0 });
  run(scaleAndSumSquares, { size: 64, first: 0, isDecided: true });
  run(scaledStepControl, {});
  for (const kernel of Object.values(NARROW)) run(kernel, { size: 64 });
  return [...found.values()];
}

/** What reads of an operand that is stored narrow declare behind its name (kernels/stored.ts). */
const READS = ['at', 'length', 'pair', 'scale', 'scales', 'byte', 'fifths', 'levels', 'word'].map((name) => `_${name}`);

const shaders = shadersOf();
const sorted = (names: Iterable<string>) => [...names].sort();

describe('a shader', () => {
  it.each(
    shaders.map(({ name, parts, constants }) => ({
      name,
      parts,
      constants,
      files: parts.map(({ file }) => file).join(' + '),
    })),
  )('$name: $files', ({ parts, constants }) => {
    const places = new Map<string, string[]>();
    const declare = (name: string, place: string) => places.set(name, [...(places.get(name) ?? []), place]);
    for (const name of constants) declare(name, 'the prelude');
    for (const { file, text } of parts) for (const name of moduleNames(text)) declare(name, file);
    for (const [name, where] of places) expect(where, `${name} is declared once`).toHaveLength(1);
    for (const { name, access } of reflect(parts.map(({ text }) => text).join('')).bindings.values()) {
      const isTaken = (declared: string) => READS.some((suffix) => declared === `${name}${suffix}`);
      if (access === 'read')
        expect([...places.keys()].filter(isTaken), `declared by reads of a stored ${name}`).toEqual([]);
    }
    for (const { file, text, needs } of parts) {
      const own = moduleNames(text);
      const foreign = [...freeNames(text)].filter((name) => places.has(name) && !own.has(name));
      expect(sorted(needs), `${file} uses what it says it needs, and each is there`).toEqual(sorted(foreign));
      for (const name of needs) {
        const giver = parts.find((part) => part.gives.includes(name));
        expect(giver !== undefined || constants.includes(name), `${name}, needed by ${file}, is given`).toBe(true);
      }
    }
  });
});

describe('a file', () => {
  it.each(fragments)('$file is used, and gives what others need', ({ file, text, gives }) => {
    const users = shaders.filter(({ parts }) => parts.some((part) => part.file === file));
    expect(users.length).toBeGreaterThan(0);
    const own = moduleNames(text);
    const needed = new Set(
      users.flatMap(({ parts }) => parts.flatMap((part) => (part.file === file ? [] : part.needs))),
    );
    expect(sorted(gives)).toEqual(sorted([...needed].filter((name) => own.has(name))));
  });
});

describe('the names in a text', () => {
  const text = `
    // not: comment
    const SIZE = 4u;
    struct Params { rows: u32, width: Width }
    @group(0) @binding(0) var<uniform> p: Params;
    var<workgroup> panel: array<vec4f, SIZE + PAD>;
    fn outer(row: u32, at: vec2<u32>) -> f32 {
      let width = width + 1u;
      for (var i = begin; i < SIZE; i++) { let inside = load(p.rows, i); total += inside; }
      return inside + i + row.width;
    }
    @compute @workgroup_size(LANES)
    fn main(@builtin(local_invocation_index) lane: u32) { let row = outer(lane, at); }
  `;

  it('are declared for the module', () => {
    expect(sorted(moduleNames(text))).toEqual(['Params', 'SIZE', 'main', 'outer', 'p', 'panel']);
  });

  it('are free where no scope declares them', () => {
    const free = freeNames(text);
    // `width` is used before its `let`, `inside` and `i` behind their loop, `at` in another function.
    for (const name of ['Width', 'PAD', 'width', 'begin', 'load', 'total', 'inside', 'i', 'at', 'LANES', 'outer']) {
      expect(free, name).toContain(name);
    }
    for (const name of ['comment', 'rows', 'row', 'lane', 'local_invocation_index', 'main']) {
      expect(free, name).not.toContain(name);
    }
  });
});
