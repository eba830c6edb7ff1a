// What a test knows to be in a map, a record or a list: its absence fails the test, with what is there instead.

/** The value of a key that must be there. */
export function entry<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key);
  if (value === undefined) throw new Error(`the map has no entry ${String(key)}, only ${[...map.keys()].join(', ')}`);
  return value;
}

/** The value under a name that must be there. */
export function field<V>(record: Readonly<Record<string, V>>, name: string): V {
  const value = record[name];
  if (value === undefined) throw new Error(`the record has no ${name}, only ${Object.keys(record).join(', ')}`);
  return value;
}

/** The values under names that must all be there: `const { y, mean } = fields(record, 'y', 'mean')`. */
export function fields<V, Name extends string>(record: Readonly<Record<string, V>>, ...names: Name[]): Record<Name, V> {
  return Object.fromEntries(names.map((name) => [name, field(record, name)])) as Record<Name, V>;
}

type Tuple<T, Length extends number, Begun extends T[] = []> = Begun['length'] extends Length
  ? Begun
  : Tuple<T, Length, [...Begun, T]>;

/** The first elements of a list that must have them: `const [one, two] = leading(2, list)`. */
export function leading<T, Count extends number>(count: Count, list: readonly T[]): Tuple<T, Count> {
  if (list.length < count) throw new Error(`a list of ${list.length} has no ${count} leading elements`);
  return list.slice(0, count) as Tuple<T, Count>;
}

/** The one element of a list of one. */
export function only<T>(list: readonly T[]): T {
  const [element] = leading(1, list);
  if (list.length > 1) throw new Error(`a list of ${list.length}, not of one element`);
  return element;
}
