// The trainer's worker as a page first sees it (workers/trainer.ts): the name of its script, and the service.

import type { ProxyMarked } from 'comlink';
import type { TrainerService } from './service.ts';

/** The name of the script, which the page asks for before all else. */
export const SCRIPT = 'holdfast trainer';

export interface WorkerScript {
  readonly script: typeof SCRIPT;
  open(): Promise<TrainerService & ProxyMarked>;
}
