// Rules of the source that no linter knows: how a file begins, how long it may be, what is called how, and what imports what.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** What is shipped. */
const FOLDERS = ['src', 'workers', 'demo', 'assembly', 'config'];
const MOST_LINES = 400;

const files = FOLDERS.flatMap((folder) =>
  readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(folder, name)),
);
const linesOf = (file: string) => readFileSync(path.join(ROOT, file), 'utf8').trimEnd().split('\n');

/** Ways that lead from something back to it. */
function circlesIn(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const circles: string[] = [];
  const done = new Set<string>();
  const follow = (from: string, way: readonly string[]) => {
    if (way.includes(from)) circles.push([...way.slice(way.indexOf(from)), from].join(' -> '));
    else if (!done.has(from)) for (const to of graph.get(from) ?? []) follow(to, [...way, from]);
    done.add(from);
  };
  for (const from of graph.keys()) follow(from, []);
  return circles;
}

describe('a source file', () => {
  it('begins with a comment that names what it is', () => {
    const firstLines = new Map(files.map((file) => [file, linesOf(file).find((line) => !line.startsWith('#!'))!]));
    const isNamed = (line: string) => /^\/\/ (?!(What|Where|Whose?|How|When|Whether|Which|Why|It|This)\b)/.test(line);
    expect(files.length).toBeGreaterThan(400);
    expect([...firstLines].filter(([, line]) => !isNamed(line))).toEqual([]);
  });

  it(`has at most ${MOST_LINES} lines`, () => {
    expect(files.filter((file) => linesOf(file).length > MOST_LINES)).toEqual([]);
  });

  it('of training, of the command line or of a page’s service keeps nothing itself: objects do', () => {
    const keeps = /^(?:export )?(?:let |const \w+(?:: [^=]+)? = new (?:Map|Set)(?:<.*>)?\(\))/;
    const found = files.filter((file) => linesOf(file).some((line) => keeps.test(line)));
    expect(found.filter((file) => /^src\/(?:train|cli|browser|report)\//.test(file))).toEqual([]);
    // What stands for the process has to.
    expect(found).toContain('src/runtime/headless/folder-lock.ts');
  });
});

/** Sources that are not shipped. */
const BESIDES = ['scripts', 'test'].flatMap((folder) =>
  readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(?:ts|mjs)$/.test(name) && !/fixtures\/|node_modules\//.test(name))
    .map((name) => path.join(folder, name)),
);

/** Comments of a file: those with stars as they are, those of lines one behind the other as one. */
function commentsOf(file: string): string[] {
  return linesOf(file)
    .join('\n')
    .split(/(?<=^|\n)((?:[ \t]*\/\/.*\n?)+|[ \t]*\/\*[\s\S]*?\*\/)/)
    .filter((_, i) => i % 2 === 1)
    .map((comment) =>
      comment
        .replace(/^[ \t]*(?:\/\/|\/\*+|\*\/?)[ \t]?|[ \t]*\*\/$/gm, '')
        .replace(/\s+/g, ' ')
        .trim(),
    );
}

describe('a comment', () => {
  const comments = [...files, ...BESIDES].flatMap((file) =>
    commentsOf(file).map((comment) => [file, comment] as const),
  );

  it('is found', () => {
    expect(BESIDES.length).toBeGreaterThan(300);
    expect(comments.length).toBeGreaterThan(5000);
    expect(commentsOf('src/gpu/shader.ts').length).toBeGreaterThan(3);
  });

  it('names files that there are', () => {
    const names = ['src', 'workers', 'demo', 'assembly', 'config', 'test', 'scripts', 'shaders', 'docs'].flatMap(
      (folder) =>
        readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => `/${folder}/${name}`),
    );
    // Examples of specifiers, in the builds that know them.
    const EXAMPLES = ['x.ts?', 'map.ts?'];
    const named = comments.flatMap(([file, comment]) =>
      [...comment.matchAll(/(?<![\w/.-])(?:\.{1,2}\/)*([\w/.-]*\w\.(?:ts|mjs|wgsl)\b\??)/g)].map(
        ([, name = '']) => [file, name] as const,
      ),
    );
    expect(named.length).toBeGreaterThan(200);
    const missing = named.filter(
      ([, name]) => !EXAMPLES.some((end) => name.endsWith(end)) && !names.some((known) => known.endsWith(`/${name}`)),
    );
    expect(missing).toEqual([]);
  });

  it('speaks of things as things', () => {
    const asPersons = /\b(?:nobody|somebody|anybody|everybody|whoever|no one|someone|everyone)\b|^whose\b/i;
    expect(comments.filter(([, comment]) => asPersons.test(comment))).toEqual([]);
  });
});

describe('a docstring', () => {
  it('says what a thing is without the one above it', () => {
    const docstrings = files.flatMap((file) =>
      [
        ...linesOf(file)
          .join('\n')
          .matchAll(/\/\*\*\s(?:\s*\* )?\s*(\S.*)/g),
      ].map(([, text = '']) => [file, text] as const),
    );
    expect(docstrings.length).toBeGreaterThan(4000);
    expect(docstrings.filter(([, text]) => /^(?:The same\b|One of them\b)/.test(text))).toEqual([]);
  });
});

describe('a class', () => {
  const DECLARED = /^(export )?(?:abstract )?class (\w+)/;
  /** Undefined where its docstring, or the beginning of its file, says what it is. */
  function unnamed(lines: readonly string[], line: number): string | undefined {
    const [, isExported, name = ''] = DECLARED.exec(lines[line] ?? '') ?? [];
    if (!name || lines[line - 1]?.trimStart().endsWith('*/')) return undefined;
    const header = lines.slice(0, lines.indexOf('')).map((text) => text.replace(/^\/\/ ?/, ''));
    const [first = ''] = header.join(' ').split(/(?<=[.:]) /);
    if (first === `\`${name}\`:`) return undefined;
    // What "CurrentDevice" ends with, in one number or the other.
    const [noun = ''] = /[A-Z]+[a-z]*$/.exec(name) ?? [];
    const singular = noun.toLowerCase().replace(/(?:ies|y|es|s)$/, '');
    return isExported && new RegExp(`\\b${singular}(?:ies|y|es|s)?\\b`, 'i').test(first) ? undefined : name;
  }

  it('has a docstring, or the first sentence of its file has its name, or the noun in it if others see it', () => {
    const inside = ['/** A thing. */', 'export class Thing {', '', 'class Other {', 'export class ManyThings {'];
    const named = (first: string) => [1, 3, 4].map((line) => unnamed([first, '', ...inside], line + 2));
    expect(named('// `Other`: things.')).toEqual([undefined, undefined, 'ManyThings']);
    expect(named('// The things of others.')).toEqual([undefined, 'Other', undefined]);
    const found = files.map((file) => {
      const lines = linesOf(file);
      return [file, lines.flatMap((_, line) => unnamed(lines, line) ?? [])] as const;
    });
    expect(found.filter(([, { length }]) => length > 0)).toEqual([]);
  });
});

describe('the import of a file by another', () => {
  const named = /\b(?:from|import|import\(|new URL\()\s*'(\.[^'?]*)[^']*'/g;
  /** What each file imports of the others in any way: values or types, lazily, as a worker, or compiled into it. */
  const imports = new Map(
    files.map((file) => {
      const paths = [...linesOf(file).join('\n').matchAll(named)].map(([, to = '']) => path.join(file, '..', to));
      return [file, [...new Set(paths)].filter((to) => files.includes(to))] as const;
    }),
  );

  it('is seen whatever its way', () => {
    const ways = [
      ['src/data/dataset.ts', 'src/data/batches.ts'],
      ['src/nn/model.ts', 'src/formats/adapter.ts'],
      ['src/index.ts', 'src/nn/lora.ts'],
      ['src/data/open-tokenizer.ts', 'src/data/huggingface/tokenizer.ts'],
      ['src/browser/client.ts', 'workers/trainer.ts'],
      ['src/kernels/wasm-heap.ts', 'assembly/adamw.ts'],
    ] as const;
    expect(ways.filter(([file, to]) => !imports.get(file)?.includes(to))).toEqual([]);
  });

  it('leads back to no file', () => {
    expect(circlesIn(imports)).toEqual([]);
  });

  it('leads from a room of src to those below it alone, whatever the file', () => {
    const roomOf = (file: string) => /^src\/(train\/\w+|\w+)\//.exec(file)?.[1];
    const below = new Map<string, Set<string>>();
    for (const [file, tos] of imports) {
      const room = roomOf(file);
      if (!room) continue;
      const found = below.get(room) ?? new Set();
      below.set(room, found);
      for (const to of tos) {
        const other = roomOf(to);
        if (other && other !== room) found.add(other);
      }
    }
    expect(below.size).toBeGreaterThan(12);
    expect(circlesIn(new Map([...below].map(([room, others]) => [room, [...others]])))).toEqual([]);
  });
});

test('the page imports styles of its own, and of the library those that a door of the package gives', () => {
  const styles = readdirSync(path.join(ROOT, 'demo'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.css'))
    .flatMap((name) => linesOf(path.join('demo', name)))
    .flatMap((line) => /@import "(.*)"/.exec(line)?.[1] ?? []);
  const { exports } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  expect(styles.filter((style) => style.startsWith('../'))).toEqual(['../src/browser/memory-colors.css']);
  expect(exports).toHaveProperty(['./browser/memory-colors.css'], './dist/browser/memory-colors.css');
});

describe('a model family', () => {
  const RECORDS = 'src/formats/families/';
  /** Lines that compare with a family's name what is none, by their files. */
  const NO_FAMILY = new Map([
    // Kinds of tokenizers, as llama.cpp calls them.
    ['src/formats/gguf/vocabulary/read.ts', 2],
    ['src/formats/gguf/vocabulary/pre-tokenizer.ts', 1],
  ]);

  it('is asked for by name in its record alone', () => {
    const name = `['"](?:${FAMILY_NAMES.join('|')})['"]`;
    const asks = new RegExp(
      `model_type\\)?\\s*[!=]==?|switch \\(.*\\bmodel_type\\)|[!=]==?\\s*${name}|${name}\\s*[!=]==?|case ${name}:`,
    );
    const found = files
      .filter((file) => !file.startsWith(RECORDS))
      .map((file) => {
        return [file, linesOf(file).filter((line) => asks.test(line)).length] as const;
      });
    expect(new Map(found.filter(([, count]) => count > 0))).toEqual(NO_FAMILY);
  });

  it('has a record that its forward pass and its keys in GGUF files import, and no other file', () => {
    const own = FAMILY_NAMES.map((family) => family.replace('_text', ''));
    const imports = new RegExp(`from '[./\\w]*/families/(?:${own.join('|')})\\.ts'`);
    const found = files.filter(
      (file) => !file.includes('/families/') && linesOf(file).some((line) => imports.test(line)),
    );
    const passes = [...own, 'index'].map((family) => `src/nn/${family}.ts`);
    expect(found.filter((file) => !passes.includes(file))).toEqual([]);
    expect(found).toContain('src/nn/index.ts');
  });
});

describe('a kernel', () => {
  it('is known by its name nowhere, and as itself not where programs are lowered', () => {
    const asks = /\bkernel\.name\s*[!=]==|[!=]==\s*\w*[kK]ernel\.name\b|switch \(.*kernel\.name\)/;
    expect(files.filter((file) => linesOf(file).some((line) => asks.test(line)))).toEqual([]);
    const imports = /from '[./]*\/kernels\/(?!(?:kernel|by-problem|stored)\.ts)/;
    const lowering = files.filter((file) =>
      /^src\/engine\/compile\/|^src\/graph\/(?:layer-major|row-slices)/.test(file),
    );
    expect(lowering.length).toBeGreaterThan(20);
    expect(lowering.filter((file) => linesOf(file).some((line) => imports.test(line)))).toEqual([]);
  });
});

test('the package’s doors export things by the names that they have; what is of a format has its name added', () => {
  const renamed = ['src/index.ts', 'src/browser/index.ts'].flatMap((door) =>
    linesOf(door).flatMap((line) => /\b\w+ as (?!drawing\b)\w+/.exec(line)?.[0] ?? []),
  );
  expect(renamed).toEqual(['parse as parseSafetensors', 'serialize as serializeSafetensors']);
});

describe('an exported name', () => {
  /** Where the same name stands twice for one thing, by the beginnings of the two files' paths. */
  const TWINS = [
    // A kernel, and the operator that emits it: the one is WGSL of one dispatch, the other a node of the graph, and no file but the
    // operator's has both.
    ['src/kernels/', 'src/graph/operators/'],
    // The port of a host of that name (`Host.openBlockFile`), as each host has it.
    ['src/runtime/browser/block-file.ts', 'src/runtime/headless/tier-file.ts'],
    // The page imports the library's door alone, and has this helper itself.
    ['src/util/at.ts', 'demo/at.ts'],
  ];
  const DECLARED =
    /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|const|let|class|interface|type|enum) ([\w$]+)/;

  const homes = new Map<string, Set<string>>();
  // What is exported in assembly/ are WebAssembly's entry points, of each module its own.
  for (const file of files.filter((name) => !name.startsWith('assembly'))) {
    for (const line of linesOf(file)) {
      const name = DECLARED.exec(line)?.[1];
      if (name) homes.set(name, (homes.get(name) ?? new Set()).add(file));
    }
  }
  const shared = [...homes].filter(([, { size }]) => size > 1).map(([name, found]) => [name, ...found] as const);
  const areTwins = (found: readonly string[], twins: readonly string[]) =>
    found.length === twins.length && twins.every((start) => found.some((file) => file.startsWith(start)));

  it('has one home', () => {
    expect(homes.size).toBeGreaterThan(2000);
    expect(shared.filter(([, ...found]) => !TWINS.some((twins) => areTwins(found, twins)))).toEqual([]);
  });

  it.each(TWINS)('has two in %s and %s', (...twins) => {
    expect(shared.filter(([, ...found]) => areTwins(found, twins))).not.toEqual([]);
  });
});
