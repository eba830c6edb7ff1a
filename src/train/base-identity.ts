// The identity of the base that an adapter belongs to: one sum over the values of its weights, made while they are read on
// their way to the device. Of values and not of files: the same weights in other shards or types are the same base.
//
// Invariant: `sum` is that of the last whole reading of each tensor, whatever the order and the pieces.

import type { Files, Sha256 } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import { type PackedTensor, type TensorSource, widenedParts } from '../util/tensor-source.ts';

export class SummedSource implements TensorSource {
  readonly names: readonly string[];
  readonly #source: TensorSource;
  readonly #files: Pick<Files, 'sha256'>;
  readonly #sums = new Map<string, string>();

  constructor(source: TensorSource, files: Pick<Files, 'sha256'>) {
    this.names = source.names;
    this.#source = source;
    this.#files = files;
  }

  read(name: string): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
    return this.#summed(name, this.#source.read(name), (piece) => [piece]);
  }

  packed(name: string): PackedTensor | undefined {
    const packed = this.#source.packed?.(name);
    if (!packed) return undefined;
    const { element } = packed;
    return { element, read: () => this.#summed(name, packed.read(), (piece) => widenedParts(element, piece)) };
  }

  async *#summed<P>(
    name: string,
    pieces: AsyncIterable<P>,
    values: (piece: P) => Iterable<Float32Array<ArrayBuffer>>,
  ): AsyncGenerator<P, void> {
    const sum: Sha256 = await this.#files.sha256();
    for await (const piece of pieces) {
      for (const { buffer, byteOffset, byteLength } of values(piece))
        sum.update(new Uint8Array(buffer, byteOffset, byteLength));
      yield piece;
    }
    this.#sums.set(name, sum.hex());
  }

  /** SHA-256 over all of it, as hexadecimal digits; tensors that nothing has read are read for it. */
  async sum(): Promise<string> {
    for (const name of this.names) if (!this.#sums.has(name)) for await (const _ of this.read(name));
    const all = await this.#files.sha256();
    const lines = [...this.#sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, sum]) => `${sum}  ${name}\n`);
    all.update(new TextEncoder().encode(lines.join('')));
    return all.hex();
  }
}

/** Errors: HoldfastError where the weights in `from` are not those that an adapter in `of` was trained on. */
export function checkBase(found: string, saved: string | undefined, from: string, of: string): void {
  if (saved === undefined || found === saved) return;
  throw new HoldfastError(
    `${of}: its adapter was trained on other weights than ${from} has now (${saved.slice(0, 12)}..., ${found.slice(0, 12)}... by SHA-256); give the base that it began with`,
  );
}
