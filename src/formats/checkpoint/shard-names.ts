// The names of tensors' files in several parts, as Hugging Face's libraries write them: `model-00001-of-00003.safetensors`, and
// an index that says which tensor is in which. Names alone: reading the files is tensor-files.ts, writing them shards.ts.

/** The name of the index of several files, by that of the one file in whose place they are. */
export const INDEX_NAMES = {
  'model.safetensors': 'model.safetensors.index.json',
  'optimizer.safetensors': 'optimizer.safetensors.index.json',
} as const;

/** The name of a file that may be in several parts instead. */
export type WholeName = keyof typeof INDEX_NAMES;

const stemOf = (whole: WholeName): string => whole.replace(/\.safetensors$/, '');
const digits = (number: number): string => String(number).padStart(5, '0');

/** The name of a part; parts are counted from 0. */
export const shardName = (whole: WholeName, part: number, parts: number): string =>
  `${stemOf(whole)}-${digits(part + 1)}-of-${digits(parts)}.safetensors`;

/** The names of all parts, as those of some that are there say how many there are; none where none is there. */
export function shardNames(whole: WholeName, names: readonly string[]): string[] {
  const found = names.find((name) => name.startsWith(`${stemOf(whole)}-`) && SHARD.test(name));
  const parts = Number(SHARD.exec(found ?? '')?.[1] ?? 0);
  return Array.from({ length: Math.min(parts, names.length) }, (_, part) => shardName(whole, part, parts));
}

const SHARD = /-\d{5}-of-(\d{5})\.safetensors$/;

/** The index: the file that each tensor is in, and the bytes of all. */
export function indexText(places: readonly (readonly [tensor: string, file: string])[], bytes: number): string {
  const sorted = [...places].sort(([a], [b]) => (a < b ? -1 : 1));
  const index = { metadata: { total_size: bytes }, weight_map: Object.fromEntries(sorted) };
  return `${JSON.stringify(index, undefined, 2)}\n`;
}
