// `WarmUp`: the first steps of a budgeted run: under a cap, with a plan of its own, watched. What happened is held
// against the dry run, which must have predicted it exactly; only times are learned: how far ahead to read, and what
// of the plan's rates is not so (learned-rates.ts).
//
// A GPU works behind the CPU's back: to time a step without what it does meanwhile, the queue is waited for after every group of
// moments, and what the host updates. That slows warm-up steps and no others; it changes no bit.

import { assert } from '../../util/errors.ts';
import type { Fit } from '../compile/fitted.ts';
import { isOnHost } from '../compile/operations.ts';
import type { Pass } from '../compile/pass.ts';
import { type PassSchedule, type Policy, readAheadFor, schedule } from '../compile/schedule.ts';
import type { Recorder } from '../observe/recording.ts';
import type { Executor } from './executor.ts';
import type { TimedGroup } from './learned-rates.ts';

/** Of the slots: what warm-up may use, if an operator does not need more. */
const CAP = 0.3;
export const WARM_UP_STEPS = 2;
const GROUPS = 32;

export class WarmUp {
  readonly schedule: PassSchedule;
  readonly #pass: Pass;
  /** Whether the host updates chunks, while the GPU goes on. */
  readonly #isOnHost: boolean;
  /** Of the last step, each to its end. */
  #groups: TimedGroup[] = [];
  #recorder: Recorder | undefined;
  #left = WARM_UP_STEPS;

  constructor(pass: Pass, { slots }: Fit, policy: Policy) {
    const atOnce = pass.trace.moments.reduce((most, { accesses }) => Math.max(most, accesses.length), 0);
    this.#pass = pass;
    this.#isOnHost = pass.operations.some(isOnHost);
    this.schedule = schedule(pass.trace, Math.max(atOnce, Math.floor(slots * CAP)), policy);
  }

  get isOver(): boolean {
    return this.#left === 0;
  }

  begin(executor: Executor): void {
    this.#recorder = executor.startRecording(this.#pass, 1);
    this.#groups = [];
  }

  /** Groups of the last step. */
  get groups(): readonly TimedGroup[] {
    return this.#groups;
  }

  /** Runs moments in groups, each timed to its end on the GPU. */
  async run(executor: Executor, idle: () => Promise<void>, from: number, to: number): Promise<void> {
    const size = Math.ceil(this.#pass.trace.moments.length / GROUPS);
    for (let first = from; first < to; first += size) {
      const end = Math.min(to, first + size);
      const { h2dBytes, d2hBytes, transfers } = executor.ledger;
      const start = performance.now();
      await executor.run(first, end);
      executor.flush();
      await idle();
      if (this.#isOnHost) await executor.settle();
      this.#groups.push({
        operations: this.#pass.operations.slice(first, end),
        seconds: (performance.now() - start) / 1000,
        upBytes: executor.ledger.h2dBytes - h2dBytes,
        downBytes: executor.ledger.d2hBytes - d2hBytes,
        transfers: executor.ledger.transfers - transfers,
      });
    }
  }

  /** A step is encoded: it must have been what the dry run said. */
  end(): void {
    const { moments } = this.#pass.trace;
    const uses = this.#recorder?.recordings[0]?.events.filter(({ action }) => action === 'use') ?? [];
    let at = 0;
    moments.forEach(({ accesses, label }, moment) => {
      for (const { chunk } of accesses) {
        const use = uses[at++];
        assert(
          use?.moment === moment && use.chunk === chunk,
          `warm-up used chunk ${use?.chunk} at moment ${use?.moment}, the dry run chunk ${chunk} at ${moment} (${label})`,
        );
      }
    });
    assert(at === uses.length, `warm-up used ${uses.length} chunks, the dry run ${at}`);
    this.#left--;
  }

  /** Chunks to read ahead, where the disk gave `bytesPerMs`. */
  readAhead(bytesPerMs: number, loadsPerStep: number): number {
    const milliseconds = this.#groups.reduce((sum, { seconds }) => sum + 1000 * seconds, 0);
    return readAheadFor(this.#pass.trace.chunkBytes / bytesPerMs, milliseconds, loadsPerStep, this.#isOnHost);
  }
}
