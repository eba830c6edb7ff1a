// Traces to plan for: written by hand in a few letters, or random.

import fc from 'fast-check';
import { type AccessMode, chunkCount, type Moment, type Trace } from '../../src/memory/plan/trace.ts';
import { at } from '../../src/util/at.ts';
import { checkTrace } from './check-trace.ts';

/**
 * A trace from text: moments apart by spaces, chunks as letters; `a` read, `A` written, `!a` overwritten, `a.`
 * freed afterwards. `'!a aB a.'`: chunk 0 is overwritten, then read beside a write to chunk 1, read and freed.
 */
export function traceOf(text: string): Trace {
  const moments = text.split(' ').map((label): Moment => {
    const found = [...label.matchAll(/(!?)([a-zA-Z])(\.?)/g)].map(([, overwrites, letter = '', freed]) => {
      const mode: AccessMode = overwrites ? 'overwrite' : letter === letter.toUpperCase() ? 'write' : 'read';
      return { chunk: letter.toLowerCase().charCodeAt(0) - 97, mode, freed: freed !== '' };
    });
    const frees = found.filter(({ freed }) => freed).map(({ chunk }) => chunk);
    return { label, accesses: found.map(({ chunk, mode }) => ({ chunk, mode, tier: 'gpu' })), frees, nonModelBytes: 0 };
  });
  const chunks = 1 + Math.max(...moments.flatMap(({ accesses }) => accesses.map(({ chunk }) => chunk)));
  const trace: Trace = { chunkBytes: 10, lists: [{ kind: 'parameter', first: 0, chunks }], moments };
  checkTrace(trace);
  return trace;
}

/** Slots, the same at each moment. */
export const slotsOf = (trace: Trace, count: number): number[] => trace.moments.map(() => count);

/** A random trace, and slots that vary from moment to moment and suffice. */
export const problems: fc.Arbitrary<{ trace: Trace; slots: number[] }> = fc
  .record({
    chunks: fc.integer({ min: 1, max: 9 }),
    moments: fc.array(
      fc.record({
        uses: fc.array(
          fc.record({
            chunk: fc.nat(),
            mode: fc.constantFrom('read' as const, 'read' as const, 'write' as const),
            frees: fc.nat(5),
          }),
          {
            maxLength: 3,
          },
        ),
        spare: fc.nat(3),
        onHost: fc.nat(4).map((n) => n === 0),
      }),
      { minLength: 1, maxLength: 30 },
    ),
    slots: fc.integer({ min: 1, max: 6 }),
    varies: fc.boolean(),
  })
  .map(({ chunks, moments, slots, varies }) => {
    // A chunk that is freed anywhere is overwritten by its next use, around the end of the step.
    const drafts = moments.map(({ uses }) => {
      const accesses = new Map(uses.map(({ chunk, ...use }) => [chunk % chunks, use] as const));
      return [...accesses].map(([chunk, { mode, frees }]) => ({ chunk, mode: mode as AccessMode, frees: frees === 0 }));
    });
    for (let chunk = 0; chunk < chunks; chunk++) {
      const uses = drafts.flatMap((accesses) => accesses.filter((access) => access.chunk === chunk));
      uses.forEach((use, i) => {
        if (at(uses, (i + uses.length - 1) % uses.length).frees) use.mode = 'overwrite';
      });
    }
    const trace: Trace = {
      chunkBytes: 10,
      lists: [{ kind: 'parameter', first: 0, chunks }],
      moments: drafts.map((accesses, m) => ({
        label: `m${m}`,
        ...(at(moments, m).onHost
          ? { accesses: [], onHost: accesses.map(({ chunk, mode }) => ({ chunk, mode, tier: 'host' as const })) }
          : { accesses: accesses.map(({ chunk, mode }) => ({ chunk, mode, tier: 'gpu' as const })) }),
        frees: accesses.filter(({ frees }) => frees).map(({ chunk }) => chunk),
        nonModelBytes: 0,
      })),
    };
    checkTrace(trace);
    const room = trace.moments.map(({ accesses }, m) =>
      Math.max(accesses.length, slots + (varies ? at(moments, m).spare : 0)),
    );
    return { trace, slots: room, chunks: chunkCount(trace) };
  });
