// Report of a session's memory, as it can be given at any time: budgets, peaks, what went over the link and below it.

import type { Ledger } from '../../memory/tiers/backing.ts';
import type { PlannedAgain } from './adaptation.ts';
import type { LinkLedger } from './link-ledger.ts';

/** What a session can tell of its memory at any time. Bytes. */
export interface MemoryReport {
  /** What its budget is, and what the plan needs at once. */
  readonly gpu: { readonly budget: number | undefined; readonly predictedPeak: number };
  /** Of the chunks in host memory. */
  readonly host: { readonly budget: number | undefined; readonly peak: number };
  /** Of the file. */
  readonly disk: { readonly budget: number | undefined; readonly peak: number };
  /** What went between GPU and host, and what was waited for. */
  readonly link: LinkLedger;
  /** What went between host memory and the file, and lies there. */
  readonly below: Ledger;
  /** Where the plan was made again by what steps took; see `MemoryOptions.adapts`. */
  readonly plannedAgain?: PlannedAgain;
}
