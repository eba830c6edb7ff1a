// GGUF files as others read them: the header by Hugging Face's parser, values by the format's definition, written plainly.

import { type GGUFTensorInfo, type GGUFTypedMetadata, gguf } from '@huggingface/gguf';

export interface ReadTensor {
  readonly type: number;
  /** As the file has them: columns first. */
  readonly dims: readonly number[];
  readonly values: Float64Array;
}

export interface ReadGGUF {
  readonly typed: GGUFTypedMetadata;
  /** Without their types. */
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly tensors: ReadonlyMap<string, ReadTensor>;
}

export async function readGGUF(bytes: Uint8Array<ArrayBuffer>): Promise<ReadGGUF> {
  const fetch = async (_: unknown, init?: RequestInit): Promise<Response> => {
    const [, begin, end] = /bytes=(\d+)-(\d+)/.exec(new Headers(init?.headers).get('range') ?? '') ?? [];
    return new Response(bytes.slice(Number(begin), Number(end) + 1), { status: 206 });
  };
  const options = { fetch: fetch as typeof globalThis.fetch, typedMetadata: true } as const;
  const { metadata, typedMetadata, tensorInfos, tensorDataOffset } = await gguf('https://host/model.gguf', options);
  const begin = Number(tensorDataOffset);
  const tensors = tensorInfos.map((info) => [info.name, readTensor(bytes, begin, info)] as const);
  return { typed: typedMetadata, metadata: metadata as unknown as Record<string, unknown>, tensors: new Map(tensors) };
}

function readTensor(bytes: Uint8Array<ArrayBuffer>, begin: number, info: GGUFTensorInfo): ReadTensor {
  const dims = info.shape.map(Number);
  const count = dims.reduce((a, b) => a * b, 1);
  const view = new DataView(bytes.buffer, bytes.byteOffset + begin + Number(info.offset));
  const values = Float64Array.from({ length: count }, (_, i) => valueAt(view, info.dtype, i));
  return { type: info.dtype, dims, values };
}

function valueAt(view: DataView, type: number, i: number): number {
  if (type === 0) return view.getFloat32(4 * i, true);
  if (type === 1) return halfAt(view, 2 * i);
  if (type === 30) {
    const wide = new DataView(new ArrayBuffer(4));
    wide.setUint16(2, view.getUint16(2 * i, true), true);
    return wide.getFloat32(0, true);
  }
  if (type !== 8) throw new Error(`no values of type ${type}`);
  const block = Math.floor(i / 32) * 34;
  return halfAt(view, block) * view.getInt8(block + 2 + (i % 32));
}

/** IEEE's binary16, from its definition. */
export function halfAt(view: DataView, at: number): number {
  const bits = view.getUint16(at, true);
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}
