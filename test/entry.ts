// What a test knows to be in a map.

/** The value of a key that must be there. */
export function entry<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key);
  if (value === undefined) throw new Error(`the map has no entry ${String(key)}, only ${[...map.keys()].join(', ')}`);
  return value;
}
