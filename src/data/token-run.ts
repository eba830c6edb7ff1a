// Runs of token ids that are read in ranges: of what is in memory, or of a file of the cache (token-cache.ts), where they are many.

/** Token ids: as wide as they need. */
export type TokenIds = Int32Array | Uint8Array | Uint16Array | Uint32Array;

/** From one token up to before another. */
export type TokenRange = readonly [begin: number, end: number];

/** Many token ids. */
export interface TokenRun {
  readonly length: number;
  /** The ids of these ranges, not to be changed. Errors: HoldfastError where they lie in a file that cannot be read any more. */
  read(ranges: readonly TokenRange[]): Promise<TokenIds[]>;
}

/** In memory: what is read are views. */
export const heldRun = (ids: TokenIds): TokenRun => ({
  length: ids.length,
  read: async (ranges) => ranges.map(([begin, end]) => ids.subarray(begin, end)),
});

/** With one more id in front. */
export const runBehind = (first: number, run: TokenRun): TokenRun => ({
  length: run.length + 1,
  async read(ranges) {
    const parts = await run.read(ranges.map(([begin, end]) => [Math.max(0, begin - 1), Math.max(0, end - 1)]));
    return parts.map((part, i) => {
      const [begin, end] = ranges[i] ?? [0, 0];
      return begin === 0 && end > 0 ? Int32Array.from([first, ...part]) : part;
    });
  },
});
