// Mutants of JSON: values changed in place, and their text changed byte by byte. Seeded: a mutant is known by its number.
//
// Not a grammar: a mutant of the text may be no JSON at all. Invariant: the value that is mutated stays as it was.

import { Random } from '../../src/util/random.ts';

type Container = Record<string, unknown> | unknown[];
/** A place in a value: what holds it, and its key there. */
type Place = { readonly holder: Container; readonly key: string };

const NUMBERS = [
  0,
  -0,
  -1,
  1,
  2,
  3,
  0.5,
  -0.5,
  1e-320,
  1e308,
  -1e308,
  2 ** 24,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  2 ** 63,
  1e21,
  256,
] as const;
const TEXTS = [
  '',
  'x',
  'NaN',
  'Infinity',
  '-1',
  '1',
  '__proto__',
  'constructor',
  '<img src=x onerror=alert(1)>',
  '../../x',
  'é\u0000\u202e\ud800',
  '\n',
  'gpt2',
] as const;
const KEYS = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'extra',
  '',
  'é\n',
  // Of a config.json that may be without.
  'rope_scaling',
] as const;

/** A mutant of `value`, as text. */
export function mutate(value: unknown, seed: number): Uint8Array<ArrayBuffer> {
  const random = new Random(seed, 'mutant');
  const text = JSON.stringify(mutateValue(value, random)) ?? '';
  // A key twice, an infinite number, and what JSON has no word for come in by the text.
  const changed = random.below(5) === 0 ? mutateText(text, random) : text;
  const bytes = new TextEncoder().encode(changed);
  return random.below(6) === 0 ? mutateBytes(bytes, random) : bytes;
}

function pick<T>(random: Random, from: readonly [T, ...T[]]): T;
/** Of nothing, undefined. */
function pick<T>(random: Random, from: readonly T[]): T | undefined;
function pick<T>(random: Random, from: readonly T[]): T | undefined {
  return from[random.below(Math.max(1, from.length))];
}

function mutateValue(value: unknown, random: Random): unknown {
  const root = { value: structuredClone(value) };
  // None, now and then: the text alone is changed then.
  for (let changes = random.below(4); changes > 0; changes--) {
    const place = pick(random, placesIn(root));
    if (place) change(place, random);
  }
  return root.value;
}

function placesIn(holder: Container): Place[] {
  return Object.entries(holder).flatMap(([key, value]) => {
    const inside = typeof value === 'object' && value !== null ? placesIn(value as Container) : [];
    return [{ holder, key }, ...inside];
  });
}

function change({ holder, key }: Place, random: Random): void {
  const at = holder as Record<string, unknown>;
  const put = (name: string, value: unknown) =>
    Object.defineProperty(at, name, { value, enumerable: true, configurable: true, writable: true });
  const value = at[key];
  switch (random.below(8)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete at[key];
      return;
    case 1:
      put(key, anything(random));
      return;
    case 2:
      put(key, typeof value === 'number' ? pick(random, NUMBERS) : pick(random, TEXTS));
      return;
    case 3:
      // A little off.
      if (typeof value === 'number') put(key, value + pick(random, [-1, 1, 0.5, 1e-7]));
      else if (typeof value === 'string')
        put(key, value.slice(0, random.below(value.length + 1)) + pick(random, TEXTS));
      else put(key, null);
      return;
    case 4: {
      const other = pick(random, Object.keys(at)) ?? key;
      const mine = at[key];
      put(key, at[other]);
      put(other, mine);
      return;
    }
    case 5:
      if (Array.isArray(holder)) holder.push(random.below(2) === 0 ? anything(random) : structuredClone(value));
      else put(pick(random, KEYS), anything(random));
      return;
    case 6:
      if (Array.isArray(value)) value.length = random.below(value.length + 1);
      else put(key, [value]);
      return;
    default:
      put(
        key,
        pick(random, [JSON.stringify(value) ?? '', null, { value }, 'x'.repeat(3000), Array(300).fill(value ?? 0)]),
      );
  }
}

function anything(random: Random): unknown {
  const kinds = [
    pick(random, NUMBERS),
    pick(random, TEXTS),
    null,
    true,
    false,
    [],
    {},
    [[]],
    [1, 'a'],
    { a: { b: 1 } },
    { rope_type: 'linear', factor: 4 },
  ];
  return pick(random, kinds);
}

function mutateText(text: string, random: Random): string {
  const numbers = [...text.matchAll(/-?\d+(\.\d+)?(e[-+]?\d+)?/g)];
  const keys = [...text.matchAll(/"(\w+)":/g)];
  const number = pick(random, numbers);
  const key = pick(random, keys);
  const replaced = (by: string) =>
    number ? text.slice(0, number.index) + by + text.slice(number.index + number[0].length) : text;
  switch (random.below(5)) {
    case 0:
      return replaced(pick(random, ['1e999', '-1e999', 'NaN', '1e-999', '0x10', '01', '1.', '9'.repeat(400)]));
    case 1:
      return key
        ? `${text.slice(0, key.index)}${key[0]}${pick(random, ['null', '1', '"x"', '[]'])},${text.slice(key.index)}`
        : text;
    case 2:
      return key ? text.replace(key[0], `"${pick(random, ['__proto__', '', '\\u0000', key[1] ?? ''])}":`) : text;
    case 3:
      return pick(random, ['', 'null', '[]', '{}', '0', '"x"', '\ufeff{}', '['.repeat(5000), '{"a":'.repeat(5000)]);
    default:
      return text + pick(random, [' ', '\n', ',', '}', '{}', '\u0000']);
  }
}

function mutateBytes(bytes: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  const at = random.below(bytes.length + 1);
  const changed = bytes.slice();
  switch (random.below(4)) {
    case 0:
      if (at < bytes.length) changed[at]! ^= 1 << random.below(8);
      return changed;
    case 1:
      return bytes.slice(0, at);
    case 2:
      return Uint8Array.from([...bytes.subarray(0, at), random.below(256), ...bytes.subarray(at)]);
    default:
      return Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + 1 + random.below(8))]);
  }
}
