// A checkpoint of any size with weights that are drawn: a Llama in shards of bfloat16, streamed to a disk. Its normal numbers
// come from one block, that each tensor takes from another place on, since drawing a thousand million of them takes minutes.

import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { Random } from '../../src/util/random.ts';
import { narrowFloats } from '../../src/values/floats.ts';

/** Of normal numbers; odd, so that the same ones never come to lie at the same place of a row. */
const BLOCK = 2 ** 20 - 1;

/** Writes it into `folder`, in shards of up to `shardBytes`; the bytes of all of them. */
export function writeRandomModel(folder: string, fields: object, shardBytes: number): number {
  const json = { model_type: 'llama', torch_dtype: 'bfloat16', ...fields };
  const { parameters } = makeModel(parseConfig(json, 'random'));
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(json));
  const random = new Random(1, 'weights');
  const drawn = halvesOf(Float32Array.from({ length: BLOCK }, () => 0.02 * random.normal()));
  const ones = halvesOf(new Float32Array(BLOCK).fill(1));
  const shards: { name: string; shape: readonly number[]; bytes: number }[][] = [[]];
  let room = shardBytes;
  for (const { name, shape } of parameters) {
    const bytes = 2 * shape.reduce((a, b) => a * b, 1);
    if (bytes > room && shards.at(-1)?.length !== 0) {
      shards.push([]);
      room = shardBytes;
    }
    room -= bytes;
    shards.at(-1)?.push({ name, shape, bytes });
  }
  const places: Record<string, string> = {};
  let total = 0;
  for (const [number, tensors] of shards.entries()) {
    const file = `model-${String(number + 1).padStart(5, '0')}-of-${String(shards.length).padStart(5, '0')}.safetensors`;
    const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
    let end = 0;
    for (const { name, shape, bytes } of tensors) {
      header[name] = { dtype: 'BF16', shape, data_offsets: [end, end + bytes] };
      end += bytes;
      places[name] = file;
    }
    total += end;
    const text = JSON.stringify(header).padEnd(8 * Math.ceil(JSON.stringify(header).length / 8));
    const length = new DataView(new ArrayBuffer(8));
    length.setBigUint64(0, BigInt(text.length), true);
    const open = openSync(path.join(folder, file), 'w');
    writeSync(open, new Uint8Array(length.buffer));
    writeSync(open, text);
    for (const { shape, bytes } of tensors) {
      // Gains are one.
      const block = shape.length === 1 ? ones : drawn;
      for (let rest = bytes, from = 2 * random.below(BLOCK); rest > 0; from = 0) {
        const part = block.subarray(from, from + rest);
        writeSync(open, part);
        rest -= part.length;
      }
    }
    closeSync(open);
  }
  writeFileSync(
    path.join(folder, 'model.safetensors.index.json'),
    JSON.stringify({ metadata: { total_size: total }, weight_map: places }),
  );
  return total;
}

function halvesOf(floats: Float32Array<ArrayBuffer>): Uint8Array {
  const halves = new Uint16Array(floats.length);
  narrowFloats('BF16', floats, halves);
  return new Uint8Array(halves.buffer);
}

/** A tokenizer.json of so many tokens: the bytes, and words that nothing is made of. */
export function bytesTokenizer(tokens: number, byteCharacters: readonly string[]): object {
  const words = Array.from({ length: tokens - byteCharacters.length }, (_, i) => `<word ${i}>`);
  const vocab = Object.fromEntries([...byteCharacters, ...words].map((text, id) => [text, id]));
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    ...{ version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: bytes },
    ...{ post_processor: null, decoder: bytes },
    model: { type: 'BPE', dropout: null, unk_token: null, vocab, merges: [] },
  };
}
