// Elements as shaders read them: float32, sixteen bits, two to a word, or blocks of scales and eight to four bits. A kernel is
// written for float32; where an operand that it only reads is stored narrower, its shader's declaration of it and each read
// of it are replaced, and nothing else. Another format is another row of READS.
//
// Invariant: widening gives the values of values/stored-elements.ts to the bit, so a kernel on a narrow operand gives the bits of
// the same variant on the widened one. NF4's products are rounded: what adds to one that it has read might round once
// for both, and only products read NF4. Those of other blocks are exact; where a sum has two products, as a layer norm with its
// bias, or a product with a bias in blocks, a compiler may round either, and SwiftShader's rounds both.

import { assert } from '../util/errors.ts';
import { NF4_LEVELS } from '../values/nf4.ts';
import { isNarrow, type NarrowElement, type StoredElement } from '../values/stored-elements.ts';

export {
  bytesPerElement,
  type ChunkElement,
  isMade,
  isNarrow,
  type MadeElement,
  type NarrowElement,
  STORED_BLOCKS,
  type StoredElement,
  storedBytes,
} from '../values/stored-elements.ts';

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

/** The scale of a block of an odd number of halves, its first; blocks begin in the middle of a word in every other place. */
const scaleIn = (name: string, halves: number): string => `
fn ${name}_scale(block: u32) -> f32 {
  let w = unpack2x16float(${name}[(${halves}u * block) >> 1u]);
  return select(w.x, w.y, (block & 1u) != 0u);
}
`;

/**
 * The word whose first byte is that of a half. Without a branch: kernels read in loops that are unrolled, and SwiftShader takes
 * minutes for a function of so many blocks.
 */
const wordAt = (name: string, half: string): string => `
  let half = ${half};
  let first = ${name}[half >> 1u];
  let w = select(first, (first >> 16u) | (${name}[(half >> 1u) + 1u] << 16u), (half & 1u) != 0u);
`;

/** Of so many words that hold `values` together; the product of all by what they hold might not fit into 32 bits. */
const lengthOf = (name: string, words: number, values: number): string => `
fn ${name}_length() -> u32 {
  let words = arrayLength(&${name});
  return ${values}u * (words / ${words}u) + (${values}u * (words % ${words}u)) / ${words}u;
}
`;

/** Blocks of 17 halves. */
function q8(name: string): Readonly<Record<1 | 4, Read>> {
  const scale = scaleIn(name, 17);
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
${lengthOf(name, 17, 64)}`,
    },
    4: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> vec4f {
  let block = i >> 3u;
  ${wordAt(name, '17u * block + 1u + 2u * (i & 7u)')}
  let steps = bitcast<vec4i>(vec4u(w << 24u, w << 16u, w << 8u, w)) >> vec4u(24u);
  return ${name}_scale(block) * vec4f(steps);
}
${lengthOf(name, 17, 16)}`,
    },
  };
}

/** Blocks of 9 halves; the lower half of each byte belongs to the first half of the block. */
function q4(name: string): Readonly<Record<1 | 4, Read>> {
  const scale = scaleIn(name, 9);
  return {
    1: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> f32 {
  let block = i >> 5u;
  let at = 18u * block + 2u + (i & 15u);
  let steps = (${name}[at >> 2u] >> (8u * (at & 3u) + ((i >> 2u) & 4u))) & 15u;
  return ${name}_scale(block) * f32(i32(steps) - 8);
}
${lengthOf(name, 9, 64)}`,
    },
    4: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> vec4f {
  let block = i >> 3u;
  ${wordAt(name, '9u * block + 1u + 2u * (i & 3u)')}
  let steps = (vec4u(w) >> (vec4u(0u, 8u, 16u, 24u) + (i & 4u))) & vec4u(15u);
  return ${name}_scale(block) * vec4f(vec4i(steps) - 8);
}
${lengthOf(name, 9, 16)}`,
    },
  };
}

/** Blocks of 9 words: a float32, then indices of levels, the first of each byte in its upper half. */
function nf4(name: string): Readonly<Record<1 | 4, Read>> {
  const levels = `
var<private> ${name}_levels: array<f32, 16> = array<f32, 16>(${NF4_LEVELS.map((level) => `${level}f`).join(', ')});
`;
  return {
    1: {
      word: 'u32',
      text: `${levels}
fn ${name}_at(i: u32) -> f32 {
  let block = 9u * (i >> 6u);
  let w = ${name}[block + 1u + ((i & 63u) >> 3u)];
  return bitcast<f32>(${name}[block]) * ${name}_levels[(w >> (4u * ((i & 7u) ^ 1u))) & 15u];
}
${lengthOf(name, 9, 64)}`,
    },
    4: {
      word: 'u32',
      text: `${levels}
fn ${name}_at(i: u32) -> vec4f {
  let block = 9u * (i >> 4u);
  let w = ${name}[block + 1u + ((i & 15u) >> 1u)] >> (16u * (i & 1u));
  let level = vec4f(
    ${name}_levels[(w >> 4u) & 15u], ${name}_levels[w & 15u],
    ${name}_levels[(w >> 12u) & 15u], ${name}_levels[(w >> 8u) & 15u],
  );
  return bitcast<f32>(${name}[block]) * level;
}
${lengthOf(name, 9, 16)}`,
    },
  };
}

/** Blocks of 11 halves: as Q4_0's, with 32 fifth bits behind the scale. */
function q5(name: string): Readonly<Record<1 | 4, Read>> {
  const scale = `${scaleIn(name, 11)}
fn ${name}_fifths(block: u32) -> u32 {
  ${wordAt(name, '11u * block + 1u')}
  return w;
}
`;
  return {
    1: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> f32 {
  let block = i >> 5u;
  let at = 22u * block + 6u + (i & 15u);
  let low = (${name}[at >> 2u] >> (8u * (at & 3u) + ((i >> 2u) & 4u))) & 15u;
  let fifth = (${name}_fifths(block) >> (i & 31u)) & 1u;
  return ${name}_scale(block) * f32(i32(low | (fifth << 4u)) - 16);
}
${lengthOf(name, 11, 64)}`,
    },
    4: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> vec4f {
  let block = i >> 3u;
  ${wordAt(name, '11u * block + 3u + 2u * (i & 3u)')}
  let low = (vec4u(w) >> (vec4u(0u, 8u, 16u, 24u) + (i & 4u))) & vec4u(15u);
  let fifths = (vec4u(${name}_fifths(block)) >> (vec4u(0u, 1u, 2u, 3u) + 4u * (i & 7u))) & vec4u(1u);
  return ${name}_scale(block) * vec4f(vec4i(low | (fifths << vec4u(4u))) - 16);
}
${lengthOf(name, 11, 16)}`,
    },
  };
}

/** Blocks of Q4_K, of 36 words, and of Q5_K, of 44: both scales, twelve bytes of six bits, the fifth bits, the four bits. */
const groups =
  (words: 36 | 44) =>
  (name: string): Readonly<Record<1 | 4, Read>> => {
    const fours = words - 32;
    // Groups 4 to 7 have their upper two bits above those of groups 0 to 3.
    const scales = `
fn ${name}_byte(block: u32, i: u32) -> u32 { return (${name}[block + 1u + (i >> 2u)] >> (8u * (i & 3u))) & 255u; }
fn ${name}_scales(block: u32, group: u32) -> vec2f {
  let first = ${name}_byte(block, group & 3u);
  let second = ${name}_byte(block, 4u + (group & 3u));
  let third = ${name}_byte(block, 8u + (group & 3u));
  let low = vec2u(first & 63u, second & 63u);
  let high = vec2u((third & 15u) | ((first >> 6u) << 4u), (third >> 4u) | ((second >> 6u) << 4u));
  return unpack2x16float(${name}[block]) * vec2f(select(low, high, group >= 4u));
}
`;
    const fifth = (bits: string) => (words === 44 ? bits : '');
    return {
      1: {
        word: 'u32',
        text: `${scales}
fn ${name}_at(i: u32) -> f32 {
  let block = ${words}u * (i >> 8u);
  let group = (i >> 5u) & 7u;
  let scales = ${name}_scales(block, group);
  let at = (i & 31u) >> 2u;
  let shift = 8u * (i & 3u);
  var steps = (${name}[block + ${fours}u + 8u * (group >> 1u) + at] >> (shift + 4u * (group & 1u))) & 15u;
  ${fifth(`steps |= ((${name}[block + 4u + at] >> (shift + group)) & 1u) << 4u;`)}
  return scales.x * f32(steps) - scales.y;
}
${lengthOf(name, words, 256)}`,
      },
      4: {
        word: 'u32',
        text: `${scales}
fn ${name}_at(i: u32) -> vec4f {
  let block = ${words}u * (i >> 6u);
  let group = (i >> 3u) & 7u;
  let scales = ${name}_scales(block, group);
  let at = i & 7u;
  let shifts = vec4u(0u, 8u, 16u, 24u);
  var steps = (vec4u(${name}[block + ${fours}u + 8u * (group >> 1u) + at]) >> (shifts + 4u * (group & 1u))) & vec4u(15u);
  ${fifth(`steps |= ((vec4u(${name}[block + 4u + at]) >> (shifts + group)) & vec4u(1u)) << vec4u(4u);`)}
  return scales.x * vec4f(steps) - scales.y;
}
${lengthOf(name, words, 64)}`,
      },
    };
  };

/** Blocks of 105 halves: 128 bytes of lower four bits, 64 of upper two, 16 signed scales, and their scale. */
function q6k(name: string): Readonly<Record<1 | 4, Read>> {
  const scale = `
fn ${name}_word(at: u32) -> u32 {
  ${wordAt(name, 'at')}
  return w;
}
fn ${name}_scale(block: u32, group: u32) -> f32 {
  let half = 105u * block + 96u + (group >> 1u);
  let bytes = ${name}[half >> 1u] >> (16u * (half & 1u) + 8u * (group & 1u));
  let last = 105u * block + 104u;
  let d = unpack2x16float(${name}[last >> 1u]);
  return select(d.x, d.y, (last & 1u) != 0u) * f32(bitcast<i32>(bytes << 24u) >> 24u);
}
`;
  return {
    1: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> f32 {
  let block = i >> 8u;
  let part = (i >> 5u) & 3u;
  let upper = (i >> 7u) & 1u;
  let four = (i >> 2u) & 7u;
  let shift = 8u * (i & 3u);
  let low = ${name}_word(105u * block + 32u * upper + 16u * (part & 1u) + 2u * four) >> (shift + 4u * (part >> 1u));
  let high = ${name}_word(105u * block + 64u + 16u * upper + 2u * four) >> (shift + 2u * part);
  return ${name}_scale(block, (i >> 4u) & 15u) * f32(i32((low & 15u) | ((high & 3u) << 4u)) - 32);
}
${lengthOf(name, 105, 512)}`,
    },
    4: {
      word: 'u32',
      text: `${scale}
fn ${name}_at(i: u32) -> vec4f {
  let block = i >> 6u;
  let part = (i >> 3u) & 3u;
  let upper = (i >> 5u) & 1u;
  let shifts = vec4u(0u, 8u, 16u, 24u);
  let four = 2u * (i & 7u);
  let low = vec4u(${name}_word(105u * block + 32u * upper + 16u * (part & 1u) + four)) >> (shifts + 4u * (part >> 1u));
  let high = vec4u(${name}_word(105u * block + 64u + 16u * upper + four)) >> (shifts + 2u * part);
  let steps = (low & vec4u(15u)) | ((high & vec4u(3u)) << vec4u(4u));
  return ${name}_scale(block, (i >> 2u) & 15u) * vec4f(vec4i(steps) - 32);
}
${lengthOf(name, 105, 128)}`,
    },
  };
}

/** By how many floats a shader reads at once. Of bf16 bits alone, so that no arithmetic can flush a subnormal. */
const READS: Readonly<Record<NarrowElement, (name: string) => Readonly<Record<1 | 4, Read>>>> = {
  bf16: halves('bitcast<vec2f>(vec2u(w << 16u, w & 0xffff0000u))'),
  f16: halves('unpack2x16float(w)'),
  q8_0: q8,
  q4_0: q4,
  nf4,
  q5_0: q5,
  q4_k: groups(36),
  q5_k: groups(44),
  q6_k: q6k,
};

/** The shader with operands that it only reads stored in these ways, by their names. */
export const readingNarrow = (source: string, stored: Readonly<Record<string, NarrowElement>>): string =>
  Object.entries(stored).reduce((text, [name, element]) => readingStored(text, name, element), source);

/** The shader with an operand that it only reads stored in this way, declared as all floats are (see gpu/shader.ts). */
export function readingStored(source: string, name: string, element: StoredElement): string {
  if (!isNarrow(element)) return source;
  const declared = new RegExp(`var<storage, read> ${name}: array<(\\w+)>`);
  const type = declared.exec(source)?.[1];
  assert(type, `the shader has no ${name} that it only reads`);
  const isFour = type === 'vec4f' || (type === 'elem' && source.includes('alias elem = vec4f;'));
  const { word, text } = READS[element](name)[isFour ? 4 : 1];
  const replaced = source
    .replace(declared, `var<storage, read_write> ${name}: array<${word}>`)
    .replace(new RegExp(`\\b${name}\\[([^[\\]]*)\\]`, 'g'), `${name}_at($1)`)
    .replaceAll(`arrayLength(&${name})`, `${name}_length()`);
  assert(!new RegExp(`\\b${name}\\[`).test(replaced), `the shader reads ${name} in a way that is not seen here`);
  return replaced + text;
}
