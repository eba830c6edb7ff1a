// `WasmHeap`: host memory for chunks in WebAssembly memories that threads share, so that what is computed over chunks on the
// host is computed where they lie. Not a pool: what was made stays. Beside it the module that computes there.
//
// Invariant: a memory only grows, and its bytes stay where they are: views of before it grew stay valid.

import MODULE from '../../assembly/adamw.ts?wasm';
import SHARED_MODULE from '../../assembly/adamw.ts?wasm-shared';
import { at } from '../util/at.ts';
import { moduleOf } from '../util/wasm.ts';

/** Bytes of a page, and pages of the largest memory. */
export const PAGE_BYTES = 65536;
export const MOST_PAGES = 65536;
/** Each part begins at a multiple of this: vectors are read whole. */
const ALIGNMENT = 64;

/** What assembly/adamw.ts exports. */
export type AdamWExports = Readonly<
  Record<'adamw' | 'copyNarrowed' | 'sweep' | 'traffic', (...values: number[]) => void>
>;

interface Place {
  readonly number: number;
  readonly offset: number;
}

/** Where several parts lie in one memory. */
export interface Places {
  readonly memory: WebAssembly.Memory;
  readonly number: number;
  readonly offsets: readonly number[];
}

export class WasmHeap {
  /** By their numbers. */
  readonly memories: WebAssembly.Memory[] = [];
  readonly #used: number[] = [];
  readonly #places = new WeakMap<Uint8Array, Place>();

  /** Undefined where threads share no memory: a page that is not isolated. */
  static make(): WasmHeap | undefined {
    if (typeof SharedArrayBuffer === 'undefined') return undefined;
    try {
      const heap = new WasmHeap();
      heap.#begin();
      return heap;
    } catch {
      return undefined;
    }
  }

  /** Zeros. Errors: RangeError without memory. */
  allocate(bytes: number): Uint8Array<ArrayBuffer> {
    const size = Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    if ((this.#used.at(-1) ?? 0) + size > MOST_PAGES * PAGE_BYTES) this.#begin();
    const number = this.memories.length - 1;
    const memory = at(this.memories, number);
    const offset = at(this.#used, number);
    const missing = Math.ceil((offset + size - memory.buffer.byteLength) / PAGE_BYTES);
    if (missing > 0) memory.grow(missing);
    this.#used[number] = offset + size;
    // What reads and writes bytes takes those of shared memory as well: to all that is below the GPU they are the same.
    const view = new Uint8Array(memory.buffer, offset, bytes);
    this.#places.set(view, { number, offset });
    return view;
  }

  /** Where parts that were allocated lie, if that is in one memory. */
  placesOf(parts: readonly Uint8Array[]): Places | undefined {
    const found = parts.map((part) => this.#places.get(part));
    const [first] = found;
    const memory = first && this.memories[first.number];
    if (!memory) return undefined;
    const offsets = found.flatMap((place) => (place && place.number === first.number ? [place.offset] : []));
    return offsets.length === parts.length ? { memory, number: first.number, offsets } : undefined;
  }

  #begin(): void {
    this.memories.push(new WebAssembly.Memory({ initial: 1, maximum: MOST_PAGES, shared: true }));
    this.#used.push(0);
  }
}

const modules = new Map<string, WebAssembly.Module>();

function keptModule(text: string): WebAssembly.Module {
  const known = modules.get(text);
  const module = known ?? moduleOf(text);
  modules.set(text, module);
  return module;
}

/** The module over a memory of a heap. */
export const sharedModule = (): WebAssembly.Module => keptModule(SHARED_MODULE);

/** The functions over a memory of their own or of a heap. */
export function instantiate(memory: WebAssembly.Memory): AdamWExports {
  const module = memory.buffer instanceof ArrayBuffer ? moduleOf(MODULE) : sharedModule();
  return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as AdamWExports;
}
