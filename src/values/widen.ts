// Widening in WebAssembly SIMD: a window of halves is copied into a memory of its own, widened there, where it stays in a
// processor's cache, and copied to where its floats go. Three times as fast as JavaScript for bfloat16, twice for binary16.
//
// Invariant: halves are read before floats of the same window are written: floats may be written over halves that lie at the
// end of their memory.

import MODULE from '../../assembly/widen.ts?wasm';
import { moduleOf } from '../util/wasm.ts';

/** What assembly/widen.ts exports. */
type Exports = Readonly<Record<'bf16' | 'f16', (halves: number, floats: number, count: number) => void>>;

/** Halves at once. */
const WINDOW = 2 ** 15;
/** Fewer are not worth the calls. */
const LEAST = 2 ** 10;
const PAGE = 2 ** 16;
/** What the module was compiled for. */
const MOST_PAGES = 2 ** 16;

interface Windows {
  readonly exports: Exports;
  readonly halves: Uint16Array<ArrayBuffer>;
  readonly bits: Uint32Array<ArrayBuffer>;
}

let made: Windows | 'none' | undefined;

/** Whether it was done: there are many, and the place allows WebAssembly. Fills the first of `bits`. */
export function widenedFast(
  element: keyof Exports,
  halves: Uint16Array<ArrayBuffer>,
  bits: Uint32Array<ArrayBuffer>,
): boolean {
  if (halves.length < LEAST) return false;
  made ??= makeWindows();
  if (made === 'none') return false;
  for (let at = 0; at < halves.length; at += WINDOW) {
    const count = Math.min(WINDOW, halves.length - at);
    made.halves.set(halves.subarray(at, at + count));
    made.exports[element](made.halves.byteOffset, made.bits.byteOffset, count);
    bits.set(made.bits.subarray(0, count), at);
  }
  return true;
}

function makeWindows(): Windows | 'none' {
  try {
    const memory = new WebAssembly.Memory({ initial: (6 * WINDOW) / PAGE, maximum: MOST_PAGES });
    const module = moduleOf(MODULE);
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    return {
      exports: exports as unknown as Exports,
      halves: new Uint16Array(memory.buffer, 0, WINDOW),
      bits: new Uint32Array(memory.buffer, 2 * WINDOW, WINDOW),
    };
  } catch {
    // A page may forbid it.
    return 'none';
  }
}
