// `ValueSum`: a checksum of a list of floats that come in any pieces, in any order: Fletcher's two sums (1982), of the bits of
// the values as float32 and of each times its index, modulo 2^64. In WebAssembly SIMD, at the speed of memory. It tells weights
// from others; it is no protection from weights that are made to have the sums of others.
//
// Invariant: it depends on the values and their indices alone, not on how they are stored or cut.

import MODULE from '../../assembly/value-sum.ts?wasm';
import { moduleOf } from '../util/wasm.ts';
import { isNarrow, type StoredElement } from './stored-elements.ts';
import { widenedParts } from './tensor-source.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** What assembly/value-sum.ts exports. */
type Exports = Readonly<Record<'f32' | 'bf16', (values: number, count: number, sums: number) => void>>;

/** Bytes at once: what stays in a processor's cache. */
const WINDOW = 2 ** 16;
const PAGE = 2 ** 16;
const VECTOR = 16;
/** What the module was compiled for. */
const MOST_PAGES = 2 ** 16;

export class ValueSum {
  #all = 0n;
  #byIndex = 0n;

  /** Adds values: whole blocks of an element, from the index `first` on and from a multiple of 4 bytes of their memory. */
  add(first: number, bytes: Bytes, element: StoredElement): void {
    if (isNarrow(element) && element !== 'bf16') {
      let at = first;
      for (const part of widenedParts(element, bytes)) {
        this.#add(at, new Uint8Array(part.buffer, part.byteOffset, part.byteLength), 'f32');
        at += part.length;
      }
      return;
    }
    this.#add(first, bytes, element);
  }

  /** 32 hexadecimal digits. */
  hex(): string {
    return [this.#all, this.#byIndex].map((sum) => sum.toString(16).padStart(16, '0')).join('');
  }

  #add(first: number, bytes: Bytes, element: 'f32' | 'bf16'): void {
    const { exports, window, sums } = place();
    const [size, shift] = element === 'bf16' ? [2, 16n] : [4, 0n];
    for (let at = 0; at < bytes.length; at += WINDOW) {
      const part = bytes.subarray(at, at + WINDOW);
      window.set(part);
      window.fill(0, part.length, Math.ceil(part.length / VECTOR) * VECTOR);
      exports[element](window.byteOffset, part.length / size, sums.byteOffset);
      const [all = 0n, byPlace = 0n] = sums;
      this.#all = BigInt.asUintN(64, this.#all + (all << shift));
      const byIndex = byPlace + BigInt(first + at / size) * all;
      this.#byIndex = BigInt.asUintN(64, this.#byIndex + (byIndex << shift));
    }
  }
}

interface Place {
  readonly exports: Exports;
  readonly window: Uint8Array<ArrayBuffer>;
  readonly sums: BigUint64Array<ArrayBuffer>;
}

let made: Place | undefined;

function place(): Place {
  if (made) return made;
  const memory = new WebAssembly.Memory({ initial: WINDOW / PAGE + 1, maximum: MOST_PAGES });
  const module = moduleOf(MODULE);
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  made = {
    exports: exports as unknown as Exports,
    window: new Uint8Array(memory.buffer, 0, WINDOW),
    sums: new BigUint64Array(memory.buffer, WINDOW, 2),
  };
  return made;
}
