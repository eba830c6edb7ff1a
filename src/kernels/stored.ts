// Elements as model data stores them: float32, sixteen bits, two to a word, or blocks of a scale and bytes. A kernel is
// written for float32; where an operand that it only reads is stored narrower, its shader's declaration of it and each read
// of it are replaced, and nothing else. Another format is another row of READS.
//
// Invariant: widening is exact, so a kernel on a narrow operand gives the bits of the same variant on the widened one.

import { assert } from '../util/errors.ts';
import { Q8_BLOCK } from '../util/q8.ts';

/** How an element of model data is stored: what comes in one piece, in elements and in bytes. */
export const STORED_BLOCKS = {
  f32: { elements: 1, bytes: 4 },
  bf16: { elements: 1, bytes: 2 },
  f16: { elements: 1, bytes: 2 },
  q8_0: Q8_BLOCK,
} as const;

/** How an element of model data is stored. */
export type StoredElement = keyof typeof STORED_BLOCKS;

/** Those that a shader unpacks. */
export type NarrowElement = Exclude<StoredElement, 'f32'>;

export const isNarrow = (element: StoredElement): element is NarrowElement => element !== 'f32';

/** Bytes of an element, or its share of a block's. */
export const bytesPerElement = (element: StoredElement): number =>
  STORED_BLOCKS[element].bytes / STORED_BLOCKS[element].elements;

/** Bytes of so many elements as a binding takes them: whole blocks and whole words. */
export function storedBytes(element: StoredElement, count: number): number {
  const { elements, bytes } = STORED_BLOCKS[element];
  return Math.ceil((Math.ceil(count / elements) * bytes) / 4) * 4;
}

/** How an operand is declared, and read by functions NAME_at and NAME_length. */
interface Read {
  readonly word: string;
  readonly text: string;
}

/** Two to a word, the lower half first. `pair` is WGSL that widens a word `w`. */
const halves =
  (pair: string) =>
  (name: string): Readonly<Record<1 | 4, Read>> => ({
    1: {
      word: 'u32',
      text: `
fn ${name}_at(i: u32) -> f32 {
  let w = ${name}[i >> 1u];
  let pair = ${pair};
  return select(pair.x, pair.y, (i & 1u) != 0u);
}
fn ${name}_length() -> u32 { return 2u * arrayLength(&${name}); }
`,
    },
    4: {
      word: 'vec2u',
      text: `
fn ${name}_pair(w: u32) -> vec2f { return ${pair}; }
fn ${name}_at(i: u32) -> vec4f {
  let words = ${name}[i];
  return vec4f(${name}_pair(words.x), ${name}_pair(words.y));
}
fn ${name}_length() -> u32 { return arrayLength(&${name}); }
`,
    },
  });

/** Blocks of 17 halves: four values begin in the middle of a word in every other block. */
function blocks(name: string): Readonly<Record<1 | 4, Read>> {
  const scale = `
fn ${name}_scale(block: u32) -> f32 {
  let w = unpack2x16float(${name}[(17u * block) >> 1u]);
  return select(w.x, w.y, (block & 1u) != 0u);
}
`;
  // 17 words are two blocks; the product of all of them by what they hold might not fit into 32 bits.
  const length = (values: number) => `
fn ${name}_length() -> u32 {
  let words = arrayLength(&${name});
  return ${values}u * (words / 17u) + (${values}u * (words % 17u)) / 17u;
}
`;
  return {
    1: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> f32 {
  let block = i >> 5u;
  let at = 34u * block + 2u + (i & 31u);
  let steps = bitcast<i32>(${name}[at >> 2u] << (24u - 8u * (at & 3u))) >> 24u;
  return ${name}_scale(block) * f32(steps);
}
${length(64)}`,
    },
    4: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> vec4f {
  let block = i >> 3u;
  let half = 17u * block + 1u + 2u * (i & 7u);
  let first = ${name}[half >> 1u];
  let w = select(first, (first >> 16u) | (${name}[(half >> 1u) + 1u] << 16u), (half & 1u) != 0u);
  let steps = bitcast<vec4i>(vec4u(w << 24u, w << 16u, w << 8u, w)) >> vec4u(24u);
  return ${name}_scale(block) * vec4f(steps);
}
${length(16)}`,
    },
  };
}

/** By how many floats a shader reads at once. Of bf16 bits alone, so that no arithmetic can flush a subnormal. */
const READS: Readonly<Record<NarrowElement, (name: string) => Readonly<Record<1 | 4, Read>>>> = {
  bf16: halves('bitcast<vec2f>(vec2u(w << 16u, w & 0xffff0000u))'),
  f16: halves('unpack2x16float(w)'),
  q8_0: blocks,
};

/** The shader with an operand that it only reads stored in this way. */
export function readingStored(source: string, name: string, element: StoredElement): string {
  if (!isNarrow(element)) return source;
  const declared = new RegExp(`(var<storage, read> ${name}: array<)(\\w+)(>)`);
  const type = declared.exec(source)?.[2];
  assert(type, `the shader has no ${name} that it only reads`);
  const isFour = type === 'vec4f' || (type === 'elem' && source.includes('alias elem = vec4f;'));
  const { word, text } = READS[element](name)[isFour ? 4 : 1];
  const replaced = source
    .replace(declared, `$1${word}$3`)
    .replace(new RegExp(`\\b${name}\\[([^[\\]]*)\\]`, 'g'), `${name}_at($1)`)
    .replaceAll(`arrayLength(&${name})`, `${name}_length()`);
  return replaced + text;
}
