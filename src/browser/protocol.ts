// What passes between a page and the trainer's worker: plain data, all of it, so that it can be cloned.

import type { MemoryReport } from '../engine/session.ts';
import type { AdapterSummary } from '../gpu/device.ts';
import type { DiskRoom } from '../runtime/browser.ts';
import type { RunSettings, RunSummary, SavedState } from '../train/run.ts';

/** Budgets, in bytes. Absent: no limit, and no disk tier. */
export interface MemorySettings {
  gpu?: number;
  host?: number;
  /** Keeps model data that host memory has no room for in the site's files, up to so much. */
  disk?: number;
  /** See MemoryOptions. @default 'step' */
  recovery?: 'step' | 'checkpoint';
}

/** What the place offers; `notes` are sentences for the person: what is missing and what it costs. */
export interface Environment {
  readonly adapter: AdapterSummary;
  /** Cross-origin isolated: the disk tier shares memory with its worker. */
  readonly isolated: boolean;
  readonly room: DiskRoom;
  readonly notes: readonly string[];
}

/** Text to train on: absent, the example text; it is kept with the run. */
export type TrainingText = string | Blob;

export interface NewRun {
  settings: RunSettings;
  /** @default the model's family and shape */
  name?: string;
  memory?: MemorySettings;
  text?: TrainingText;
}

export type RunStatus = 'running' | 'paused' | 'stopped' | 'finished' | 'failed' | 'imported';

/** A run as the list knows it. */
export interface RunRecord {
  readonly id: string;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  /** Absent for weights that were imported without a training state. */
  readonly settings?: RunSettings;
  readonly memory: MemorySettings;
  /** As it was last written: a run whose tab was closed still says 'running'; then `open` is 'no'. */
  readonly status: RunStatus;
  /** Steps that the latest checkpoint has seen; 0: there is none. */
  readonly savedStep: number;
  readonly loss?: number;
  /** Why it failed. */
  readonly error?: string;
}

export interface RunInfo extends RunRecord {
  readonly open: 'here' | 'in another tab' | 'no';
}

/** What a run would need. Bytes. */
export interface Estimate {
  readonly parameters: number;
  /** Parameters, gradients and moments. */
  readonly modelData: number;
  /** GPU memory with no budget, and the least that works. */
  readonly unlimited: number;
  readonly smallest: number;
  /** Of what the settings ask for: the peak, and how it is dealt out. Absent where it does not fit. */
  readonly fit?: {
    readonly peak: number;
    readonly activations: number;
    readonly chunkBytes: number;
    readonly slots: number;
    readonly chunks: number;
  };
  /** Why it does not fit, and what would. */
  readonly problem?: string;
  readonly room: DiskRoom;
}

export interface StepEvent {
  readonly type: 'step';
  readonly step: number;
  readonly loss: number;
  readonly lr: number;
  readonly gradNorm: number;
  readonly skipped: boolean;
  readonly tokensPerSecond: number;
}

/** In the order in which it happened. `run` is the id. */
export type RunEvent = { readonly run: string } & (
  | { readonly type: 'preparing' }
  | {
      readonly type: 'ready';
      readonly firstStep: number;
      readonly steps: number;
      readonly parameters: number;
      readonly corpusBytes: number;
      readonly dispatches: number;
    }
  | StepEvent
  | { readonly type: 'validation'; readonly step: number; readonly loss: number }
  | { readonly type: 'sample'; readonly step: number; readonly text: string }
  | { readonly type: 'saved'; readonly step: number }
  /** At most one a batch of events. */
  | { readonly type: 'memory'; readonly report: MemoryReport; readonly gpuBytes: number; readonly gpuPeak: number }
  | { readonly type: 'paused'; readonly step: number }
  | { readonly type: 'going on' }
  /** The GPU device was lost; the run goes on with another, from the last step or from the last checkpoint. */
  | { readonly type: 'recovered'; readonly from: 'step' | 'checkpoint'; readonly reason: string }
  | { readonly type: 'ended'; readonly summary: RunSummary }
  | { readonly type: 'failed'; readonly message: string }
);

/** Resolves when the page has room for more. */
export type Listener = (events: RunEvent[]) => Promise<void> | void;

export type History = SavedState['history'];

/** A token that may come next. */
export interface Candidate {
  readonly token: number;
  /** As text; what is not printable, as hexadecimal. */
  readonly text: string;
  readonly probability: number;
}

export interface SampleRequest {
  readonly prompt: string;
  /** @default 160 */
  readonly tokens?: number;
  /** @default 0.7 */
  readonly temperature?: number;
  /** @default 0.95 */
  readonly topP?: number;
  /** @default 1 */
  readonly seed?: number;
}
