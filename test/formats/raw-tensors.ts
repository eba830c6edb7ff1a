// Safetensors files as others write them: of any types, made by hand, with no code of the library's.

export interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export const floats = (shape: readonly number[], values: Float32Array): Stored => ({
  dtype: 'F32',
  shape,
  bytes: new Uint8Array(values.slice().buffer),
});

/** The file of these tensors, one behind the other. */
export function fileOf(tensors: ReadonlyMap<string, Stored>): Uint8Array<ArrayBuffer> {
  let at = 0;
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  for (const [name, { dtype, shape, bytes }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + json.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  at = 8 + json.length;
  for (const { bytes } of tensors.values()) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** A folder with these files of tensors, and the index that goes with them. */
export function shardedFolder(
  folder: string,
  shards: Readonly<Record<string, ReadonlyMap<string, Stored>>>,
): Record<string, string | Uint8Array> {
  const places = Object.entries(shards).flatMap(([shard, tensors]) => [...tensors.keys()].map((name) => [name, shard]));
  return {
    [`${folder}/model.safetensors.index.json`]: JSON.stringify({
      metadata: { total_size: 0 },
      weight_map: Object.fromEntries(places),
    }),
    ...Object.fromEntries(Object.entries(shards).map(([shard, tensors]) => [`${folder}/${shard}`, fileOf(tensors)])),
  };
}
