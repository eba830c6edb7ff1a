// WGSL in which every index into a binding, and into an array of a workgroup or of an invocation, is compared with what there is: a
// binding of counters has for each of them how often an index was past its end. Where the WGSL compiler adds no clamps of its own
// (see docs/kernels.md), such an index would reach other memory.

import { reflect } from '../../src/gpu/shader.ts';
import type { Kernel, Variant } from '../../src/kernels/kernel.ts';
import { at } from '../../src/util/at.ts';
import { assert } from '../../src/util/errors.ts';

/** The operand that counts. */
export const OUTSIDE = 'outside';
/** Arrays that one text may have. */
const MOST_ARRAYS = 32;

/** An array by its name, and what its indices are below, the outermost first. */
interface IndexedArray {
  readonly name: string;
  readonly lengths: readonly string[];
}

/** From the sign that opens at `start` to behind the one that closes it. */
function endOf(text: string, start: number, [opens, closes]: readonly [string, string]): number {
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    if (text[i] === opens) depth++;
    else if (text[i] === closes && --depth === 0) return i + 1;
  }
  throw new Error(`nothing closes ${text.slice(start, start + 40)}`);
}

/** Of `array<array<T, N>, M>`: M, N. */
function lengthsOf(type: string): string[] {
  if (!type.startsWith('array<')) return [];
  const inner = type.slice('array<'.length, -1);
  let depth = 0;
  let comma = -1;
  for (const [i, sign] of [...inner].entries()) {
    if ('<('.includes(sign)) depth++;
    else if ('>)'.includes(sign)) depth--;
    else if (sign === ',' && depth === 0) comma = i;
  }
  return comma < 0 ? [] : [inner.slice(comma + 1).trim(), ...lengthsOf(inner.slice(0, comma).trim())];
}

/** A function's text from its parameters to its end, and their names. */
interface FunctionScope {
  readonly start: number;
  readonly end: number;
  readonly parameters: ReadonlySet<string>;
}

const functionsIn = (text: string): FunctionScope[] =>
  [...text.matchAll(/\bfn \w+(?=\()/g)].map(({ 0: head, index }) => {
    const start = index + head.length;
    const body = text.indexOf('{', endOf(text, start, ['(', ')']));
    const names = text.slice(start, body).matchAll(/\b(\w+): /g);
    return { start, end: endOf(text, body, ['{', '}']), parameters: new Set([...names].map(([, name = '']) => name)) };
  });

function arraysIn(text: string): IndexedArray[] {
  // By a function: where a parameter has the name of a binding, its address is none.
  const bindings = [...reflect(text).bindings.values()].map(({ name }) => ({ name, lengths: [`length_of_${name}()`] }));
  const own = [...text.matchAll(/\bvar(?:<workgroup>)? (\w+): (?=array<)/g)].map(({ 0: all, 1: name = '', index }) => {
    const start = index + all.length;
    const end = endOf(text, start + 'array'.length, ['<', '>']);
    return { name, lengths: lengthsOf(text.slice(start, end)) };
  });
  return [...bindings, ...own];
}

/** The text with its indices checked, and a binding of `MOST_ARRAYS` counters behind its others. */
export function withCheckedIndices(source: string): string {
  const text = source.replace(/\/\/.*$/gm, '');
  const arrays = arraysIn(text);
  assert(arrays.length > 0 && arrays.length <= MOST_ARRAYS, `${arrays.length} arrays`);
  const numbers = new Map(arrays.map(({ name }, i) => [name, i]));
  const functions = functionsIn(text);
  const isParameter = (name: string, place: number) =>
    functions.some(({ start, end, parameters }) => place >= start && place < end && parameters.has(name));
  /** `from`: where the part is in the text. */
  const checked = (part: string, from = 0): string => {
    let result = '';
    let done = 0;
    for (const { 0: name, index } of part.matchAll(/(?<![.\w])[A-Za-z_]\w*(?=\[)/g)) {
      const number = numbers.get(name);
      if (number === undefined || index < done || isParameter(name, from + index)) continue;
      let next = index + name.length;
      result += part.slice(done, next);
      for (const length of at(arrays, number).lengths) {
        if (part[next] !== '[') break;
        const end = endOf(part, next, ['[', ']']);
        result += `[checked_index(u32(${checked(part.slice(next + 1, end - 1), from + next + 1)}), ${length}, ${number}u)]`;
        next = end;
      }
      done = next;
    }
    return result + part.slice(done);
  };
  const { bindings } = reflect(text);
  const binding = 1 + Math.max(...bindings.keys());
  const lengths = [...bindings.values()].map(
    ({ name }) => `fn length_of_${name}() -> u32 { return arrayLength(&${name}); }`,
  );
  return `${checked(text)}
${lengths.join('\n')}
@group(0) @binding(${binding}) var<storage, read_write> ${OUTSIDE}: array<atomic<u32>>;
fn checked_index(i: u32, length: u32, number: u32) -> u32 {
  if (i < length) { return i; }
  atomicAdd(&${OUTSIDE}[number], 1u);
  return 0u;
}
`;
}

/** A kernel with the operand that counts. */
export const counting = <P>(kernel: Kernel<P>): Kernel<P> => ({
  ...kernel,
  operands: (problem) => ({
    ...kernel.operands(problem),
    [OUTSIDE]: { access: 'update', size: MOST_ARRAYS, type: 'u32' },
  }),
});

/** A variant that counts. */
export const checkedVariant = <P>(variant: Variant<P>): Variant<P> => ({
  ...variant,
  dispatch: (problem, traits) => {
    const dispatch = variant.dispatch(problem, traits);
    return { ...dispatch, shader: withCheckedIndices(dispatch.shader) };
  },
});

/** What no index was before: the counters of `counting`. */
export const noneOutside = (): Uint32Array => new Uint32Array(MOST_ARRAYS);

/** Which arrays an index was past the end of, and how often. */
export const outsideOf = (source: string, counts: ArrayLike<number>): Record<string, number> =>
  Object.fromEntries(
    arraysIn(source.replace(/\/\/.*$/gm, '')).flatMap(({ name }, i) =>
      at(counts, i) > 0 ? [[name, at(counts, i)]] : [],
    ),
  );
