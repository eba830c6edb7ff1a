// `FloatSum`: a sum of lists of float32, and room for one that is added to it, both in the memory of a WebAssembly module that
// adds them by SIMD. What comes from elsewhere is written there in the first place: copies would cost more than they gain.
//
// Invariant: each addition is rounded to f32.

import MODULE from '../../assembly/float-sum.ts?wasm';
import { moduleOf } from '../util/wasm.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** What assembly/float-sum.ts exports. */
type Exports = Readonly<{ add(sum: number, values: number, count: number): void }>;

const PAGE = 2 ** 16;
/** What the module was compiled for. */
const MOST_PAGES = 2 ** 16;
/** Each list begins at a multiple of it. */
const VECTOR = 16;

let compiled: WebAssembly.Module | undefined;

export class FloatSum {
  readonly #exports: Exports;
  readonly #sum: Bytes;
  readonly #incoming: Bytes;

  /** For lists of so many bytes, or fewer. */
  constructor(bytes: number) {
    compiled ??= moduleOf(MODULE);
    const second = Math.ceil(bytes / VECTOR) * VECTOR;
    const memory = new WebAssembly.Memory({ initial: Math.ceil((second + bytes) / PAGE), maximum: MOST_PAGES });
    this.#exports = new WebAssembly.Instance(compiled, { env: { memory } }).exports as unknown as Exports;
    this.#sum = new Uint8Array(memory.buffer, 0, bytes);
    this.#incoming = new Uint8Array(memory.buffer, second, bytes);
  }

  /** Of both lists, at most. */
  get bytes(): number {
    return this.#sum.length + this.#incoming.length;
  }

  /** The first bytes of the sum. */
  sum(bytes: number): Bytes {
    return this.#sum.subarray(0, bytes);
  }

  /** The first bytes of what is added next. */
  incoming(bytes: number): Bytes {
    return this.#incoming.subarray(0, bytes);
  }

  /** Adds what came to the sum: so many bytes of both. */
  add(bytes: number): void {
    this.#exports.add(this.#sum.byteOffset, this.#incoming.byteOffset, bytes / Float32Array.BYTES_PER_ELEMENT);
  }
}
