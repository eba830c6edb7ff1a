// `BudgetChanges`: other budgets for the run that is open, one after the other. The GPU's alone are taken between two steps; for all
// others the run is ended and opened anew.
//
// Invariant: a stop ends the run whatever a change of its budgets is at: it is not opened anew behind that.

import { HoldfastError } from '../util/errors.ts';
import type { ActiveRun } from './active-run.ts';
import type { OpenRun } from './open-run.ts';
import type { MemorySettings } from './protocol.ts';
import type { RunEstimates } from './run-estimates.ts';
import type { ResumeOptions } from './run-records.ts';

/** A change, from its turn on. */
interface Change {
  /** The run that is to have it, as it was open then. */
  readonly active: ActiveRun;
  isStopped: boolean;
  /** Whether it was taken. */
  taken: Promise<boolean>;
}

export class BudgetChanges {
  readonly #open: Pick<OpenRun, 'active' | 'needed' | 'stop'>;
  readonly #estimates: Pick<RunEstimates, 'problem'>;
  readonly #resume: (id: string, options: ResumeOptions & { readonly paused: boolean }) => Promise<unknown>;
  #last: Promise<void> = Promise.resolve();
  #now: Change | undefined;

  constructor(
    open: Pick<OpenRun, 'active' | 'needed' | 'stop'>,
    estimates: Pick<RunEstimates, 'problem'>,
    resume: (id: string, options: ResumeOptions & { readonly paused: boolean }) => Promise<unknown>,
  ) {
    this.#open = open;
    this.#estimates = estimates;
    this.#resume = resume;
  }

  /** Resolves when the last change that was asked for is in force, or refused. */
  get settled(): Promise<void> {
    return this.#last;
  }

  /** Whether a run is open, or about to be opened anew. */
  get hasRun(): boolean {
    return this.#open.active !== undefined || this.#now !== undefined;
  }

  /** Resolves when they are in force. Errors: HoldfastError where they do not fit, and where the run ends before. */
  take(memory: MemorySettings): Promise<void> {
    const taken = this.#last.then(() => {
      const active = this.#open.needed;
      const now: Change = { active, isStopped: false, taken: Promise.resolve(false) };
      this.#now = now;
      const change = this.#change(now, memory).finally(() => {
        this.#now = undefined;
      });
      now.taken = change.then(
        () => true,
        () => false,
      );
      return change;
    });
    this.#last = taken.catch(() => {});
    return taken;
  }

  /** Saves and ends the run. Errors: HoldfastError where none is open, nor about to be. */
  async stop(): Promise<void> {
    const now = this.#now;
    if (now) now.isStopped = true;
    if (this.#open.active || !now) await this.#open.stop();
    // It may have been past the point where it looks.
    if (now && (await now.taken) && this.#open.active?.id === now.active.id) await this.#open.stop();
  }

  async #change(change: Change, memory: MemorySettings): Promise<void> {
    const { active } = change;
    try {
      if (await active.setMemory(memory)) return;
    } catch (error) {
      // When the event arrives, the run is over and its lock free.
      if (active.gate.ended) await active.ended;
      throw error;
    }
    const problem = await this.#estimates.problem(active.settings, memory);
    if (problem) throw new HoldfastError(problem);
    const refuse = () => {
      if (change.isStopped)
        throw new HoldfastError(`run ${active.id} was stopped before it had other budgets; give them when it goes on`);
    };
    refuse();
    const { paused } = active;
    await this.#open.stop();
    refuse();
    await this.#resume(active.id, { memory, paused });
  }
}
