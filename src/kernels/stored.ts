// Elements as model data stores them: float32, or sixteen bits, two to a word. A kernel is written for float32; where an
// operand that it only reads is stored narrower, its shader's declaration of it and each read of it are replaced, and
// nothing else. Another format is another row of READS.
//
// Invariant: widening is exact, so a kernel on a narrow operand gives the bits of the same variant on the widened one.

import { assert } from '../util/errors.ts';

/** Bytes of an element, by how it is stored. */
export const STORED_BYTES = { f32: 4, bf16: 2, f16: 2 } as const;

/** How an element of model data is stored. */
export type StoredElement = keyof typeof STORED_BYTES;

/** Those that a shader unpacks. */
export type NarrowElement = Exclude<StoredElement, 'f32'>;

export const isNarrow = (element: StoredElement): element is NarrowElement => element !== 'f32';

/** Bytes of so many elements as a binding takes them: whole words. */
export const storedBytes = (element: StoredElement, elements: number): number =>
  Math.ceil((elements * STORED_BYTES[element]) / 4) * 4;

/** WGSL that widens a word `w`: its two elements, the lower half first. Bits alone, so no arithmetic can flush a subnormal. */
const PAIRS: Readonly<Record<NarrowElement, string>> = {
  bf16: 'bitcast<vec2f>(vec2u(w << 16u, w & 0xffff0000u))',
  f16: 'unpack2x16float(w)',
};

/** How an operand is declared and read, by how many floats the shader reads at once. */
const READS: Readonly<Record<1 | 4, (name: string, pair: string) => { readonly word: string; readonly text: string }>> =
  {
    1: (name, pair) => ({
      word: 'u32',
      text: `
fn ${name}_at(i: u32) -> f32 {
  let w = ${name}[i >> 1u];
  let pair = ${pair};
  return select(pair.x, pair.y, (i & 1u) != 0u);
}
fn ${name}_length() -> u32 { return 2u * arrayLength(&${name}); }
`,
    }),
    4: (name, pair) => ({
      word: 'vec2u',
      text: `
fn ${name}_pair(w: u32) -> vec2f { return ${pair}; }
fn ${name}_at(i: u32) -> vec4f {
  let words = ${name}[i];
  return vec4f(${name}_pair(words.x), ${name}_pair(words.y));
}
fn ${name}_length() -> u32 { return arrayLength(&${name}); }
`,
    }),
  };

/** The shader with an operand that it only reads stored in this way. */
export function readingStored(source: string, name: string, element: StoredElement): string {
  if (!isNarrow(element)) return source;
  const declared = new RegExp(`(var<storage, read> ${name}: array<)(\\w+)(>)`);
  const type = declared.exec(source)?.[2];
  assert(type, `the shader has no ${name} that it only reads`);
  const isFour = type === 'vec4f' || (type === 'elem' && source.includes('alias elem = vec4f;'));
  const { word, text } = READS[isFour ? 4 : 1](name, PAIRS[element]);
  const replaced = source
    .replace(declared, `$1${word}$3`)
    .replace(new RegExp(`\\b${name}\\[([^[\\]]*)\\]`, 'g'), `${name}_at($1)`)
    .replaceAll(`arrayLength(&${name})`, `${name}_length()`);
  return replaced + text;
}
