// The facts that every trace must satisfy, whatever it comes from.

import { chunkCount, chunkName, type Trace } from '../../src/memory/plan/trace.ts';
import { assert } from '../../src/util/errors.ts';

/** Throws if a trace contradicts itself. */
export function checkTrace(trace: Trace): void {
  const count = chunkCount(trace);
  const freed = new Set<number>();
  // Twice around: what was freed in one step must be overwritten in the next.
  for (const turn of [0, 1]) {
    trace.moments.forEach(({ label, accesses, onHost = [], frees }, m) => {
      const where = `moment ${m} (${label}, turn ${turn})`;
      const seen = new Set<number>();
      for (const { chunk, mode } of [...accesses, ...onHost]) {
        assert(chunk >= 0 && chunk < count, `${where} names chunk ${chunk} of ${count}`);
        assert(!seen.has(chunk), `${where} lists ${chunkName(trace, chunk)} twice`);
        seen.add(chunk);
        assert(
          mode === 'overwrite' || !freed.has(chunk),
          `${where} wants to ${mode} ${chunkName(trace, chunk)}, which is free`,
        );
        const holds = turn === 1 && !freed.has(chunk);
        assert(mode !== 'overwrite' || !holds, `${where} overwrites ${chunkName(trace, chunk)}, which was never freed`);
        freed.delete(chunk);
      }
      for (const chunk of frees) {
        assert(seen.has(chunk), `${where} frees ${chunkName(trace, chunk)} and does not use it`);
        freed.add(chunk);
      }
    });
  }
}
