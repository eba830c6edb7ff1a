// A thread that copies bytes from one place in the process's memory to another, by their addresses. Loaded as a script of its own
// (workers/copying.ts); what deals parts of copies to such threads is copy-threads.ts.

/** Where a thread finds its work. */
export interface CopyingThread {
  /** A slip, see SLIP. */
  readonly slip: SharedArrayBuffer;
  /** The module file of koffi. */
  readonly koffi: string;
}

/** A slip of work in shared memory: the number of the copy that is wanted, that of the one that is done, and the copy. */
export const SLIP = { wanted: 0, done: 1, words: 2, to: 0, from: 1, bytes: 2, numbers: 3 } as const;
const WORD_BYTES = 4;
const NUMBER_BYTES = 8;
export const SLIP_BYTES = SLIP.words * WORD_BYTES + SLIP.numbers * NUMBER_BYTES;

/** The words of a slip, and its numbers. */
export const slipOf = (slip: SharedArrayBuffer): readonly [words: Int32Array, numbers: BigInt64Array] => [
  new Int32Array(slip, 0, SLIP.words),
  new BigInt64Array(slip, SLIP.words * WORD_BYTES, SLIP.numbers),
];

export type Memmove = (to: bigint | Uint8Array, from: bigint | Uint8Array, bytes: number) => bigint;

/** What is used of koffi. */
export interface Koffi {
  load(library: string | null): { func(declaration: string): Memmove };
}

/** The C library's `memmove`, which returns the address of what it copied to. Errors: Error where the system has it elsewhere. */
export const memmoveOf = (koffi: Koffi, isWindows: boolean): Memmove =>
  koffi.load(isWindows ? 'msvcrt.dll' : null).func('void *memmove(void *to, const void *from, size_t bytes)');

/** Copies what is on its slip, for ever. */
export function copyForEver({ slip }: CopyingThread, memmove: Memmove): never {
  const [words, numbers] = slipOf(slip);
  let done = 0;
  for (;;) {
    Atomics.wait(words, SLIP.wanted, done);
    done = Atomics.load(words, SLIP.wanted);
    memmove(numbers[SLIP.to] as bigint, numbers[SLIP.from] as bigint, Number(numbers[SLIP.bytes]));
    Atomics.store(words, SLIP.done, done);
    Atomics.notify(words, SLIP.done);
  }
}
