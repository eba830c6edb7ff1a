// The identity of the base that an adapter belongs to: one sum over the values of its weights, made while they are read on
// their way to the device. Of values and not of files: the same weights in other shards or types are the same base.
//
// Invariant: `sum` is that of the last whole reading of each tensor, whatever the order and the pieces.

import type { Files } from '../../runtime/host.ts';
import { HoldfastError } from '../../util/errors.ts';
import { bytesPerElement, type StoredElement } from '../../values/stored-elements.ts';
import type { PackedTensor, TensorReader, TensorSource } from '../../values/tensor-source.ts';
import { ValueSum } from '../../values/value-sum.ts';

/** What an identity begins with. Those of before were SHA-256 alone, over all values: slower than to read them. */
const FORM = 'sums:';

/** A source of tensors that sums the values that are read from it. */
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

  async *read(name: string): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
    const reading = new Reading('f32');
    for await (const piece of this.#source.read(name)) {
      const { buffer, byteOffset, byteLength } = piece;
      reading.add(reading.seen, new Uint8Array(buffer, byteOffset, byteLength));
      yield piece;
    }
    this.#sums.set(name, reading.hex());
  }

  packed(name: string): PackedTensor | undefined {
    const packed = this.#source.packed?.(name);
    if (!packed) return undefined;
    const { element } = packed;
    const sums = this.#sums;
    return {
      element,
      async *read() {
        const reading = new Reading(element);
        for await (const piece of packed.read()) {
          reading.add(reading.seen, piece);
          yield piece;
        }
        sums.set(name, reading.hex());
      },
    };
  }

  reader(name: string, element: StoredElement): TensorReader | undefined {
    const reader = this.#source.reader?.(name, element);
    if (!reader) return undefined;
    const reading = new Reading(reader.stored);
    const read: TensorReader['read'] = async (first, into, look) => {
      await reader.read(first, into, (bytes) => {
        reading.add(first, bytes);
        look?.(bytes);
      });
      if (reading.seen === reader.count) this.#sums.set(name, reading.hex());
    };
    return { ...reader, read };
  }

  /** As 64 hexadecimal digits behind what its form is called; tensors that nothing has read are read for it. */
  async sum(): Promise<string> {
    for (const name of this.names) {
      if (this.#sums.has(name)) continue;
      for await (const _ of this.packed(name)?.read() ?? this.read(name));
    }
    const all = await this.#files.sha256();
    const lines = [...this.#sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, sum]) => `${sum}  ${name}\n`);
    all.update(new TextEncoder().encode(lines.join('')));
    return FORM + all.hex();
  }
}

/** One reading of a tensor, in any pieces. */
class Reading {
  /** Elements so far. */
  seen = 0;
  readonly #sum = new ValueSum();
  readonly #element: StoredElement;

  constructor(element: StoredElement) {
    this.#element = element;
  }

  add(first: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.#sum.add(first, bytes, this.#element);
    this.seen += bytes.length / bytesPerElement(this.#element);
  }

  hex(): string {
    return this.#sum.hex();
  }
}

/** Whether a base is the one that was saved; of one that was saved in another form nothing is known. */
export const isSameBase = (found: string, saved: string | undefined): boolean =>
  saved === undefined || found === saved || !saved.startsWith(FORM);

/** Errors: HoldfastError where the weights in `from` are not those that an adapter in `of` was trained on. */
export function checkBase(found: string, saved: string | undefined, from: string, of: string): void {
  if (isSameBase(found, saved)) return;
  throw new HoldfastError(
    `${of}: its adapter was trained on other weights than ${from} has now; give the base that it began with`,
  );
}
