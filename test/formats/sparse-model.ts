// A checkpoint of any size on a disk that has no room for it: shards of bfloat16 zeros, whose files have holes where their
// data are, with a few values written where a test looks for them.

import { closeSync, ftruncateSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { type ModelConfig, parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';

export interface SparseModel {
  readonly config: ModelConfig;
  /** Of all shards. */
  readonly bytes: number;
  /** In a tensor's last element: a value that is its alone, in the order of the parameters. */
  readonly lastOf: (name: string) => number;
}

/** Small whole numbers, which bfloat16 holds. */
const markOf = (place: number): number => 1 + (place % 127);

/** Writes a Llama of these sizes into `folder`, in shards of up to `shardBytes`. */
export function writeSparseModel(folder: string, fields: object, shardBytes: number): SparseModel {
  const json = { model_type: 'llama', tie_word_embeddings: true, torch_dtype: 'bfloat16', ...fields };
  const config = parseConfig(json, 'sparse');
  const { parameters } = makeModel(config);
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(json));
  const shards: { name: string; shape: readonly number[]; bytes: number; mark: number }[][] = [[]];
  let room = shardBytes;
  for (const [place, { name, shape }] of parameters.entries()) {
    const bytes = 2 * shape.reduce((a, b) => a * b, 1);
    if (bytes > room) {
      shards.push([]);
      room = shardBytes;
    }
    room -= bytes;
    shards.at(-1)?.push({ name, shape, bytes, mark: markOf(place) });
  }
  const places: Record<string, string> = {};
  let all = 0;
  for (const [number, tensors] of shards.entries()) {
    const file = `model-${number + 1}.safetensors`;
    const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
    let end = 0;
    for (const { name, shape, bytes } of tensors) {
      header[name] = { dtype: 'BF16', shape, data_offsets: [end, end + bytes] };
      end += bytes;
      places[name] = file;
    }
    const text = JSON.stringify(header);
    const length = new DataView(new ArrayBuffer(8));
    length.setBigUint64(0, BigInt(text.length), true);
    const open = openSync(path.join(folder, file), 'w');
    writeSync(open, new Uint8Array(length.buffer));
    writeSync(open, text);
    const start = 8 + text.length;
    ftruncateSync(open, start + end);
    let at = start;
    for (const { bytes, mark } of tensors) {
      at += bytes;
      const upper = (new Uint32Array(Float32Array.of(mark).buffer)[0] ?? 0) >>> 16;
      writeSync(open, Uint8Array.of(upper & 0xff, upper >>> 8), 0, 2, at - 2);
    }
    closeSync(open);
    all += start + end;
  }
  writeFileSync(path.join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map: places }));
  const names = parameters.map(({ name }) => name);
  return { config, bytes: all, lastOf: (name) => markOf(names.indexOf(name)) };
}
