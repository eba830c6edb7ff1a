// The page's side: starts the worker, brings its events once a frame, and makes the requests that only a page can make.
// All else is the service's (service.ts), whose methods can be called here as they are.

import { type Remote, wrap } from 'comlink';
import { callable } from '../util/arguments.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, closed, optional } from '../util/json.ts';
import type { Environment, RunEvent } from './protocol.ts';
import { RemoteService } from './remote-service.ts';
import type { TrainerService } from './service.ts';
import { SCRIPT, type WorkerScript } from './worker-script.ts';

/** Until a worker has loaded its script and answered, over a slow network too. One with another script may never answer. */
const SILENT_MS = 120_000;

/** The library as a page has it. */
export interface Holdfast {
  /** The service in the worker: every method returns a promise. Functions among its arguments are called in the page. */
  readonly trainer: Remote<TrainerService>;
  /** What the place offers. */
  readonly environment: Environment;
  /** Asks the browser not to clear this site's files; some ask the person. Call it when training is wanted. */
  persist(): Promise<boolean>;
  /**
   * Ends the worker at once; `trainer.close()` before it saves a run that is open. What the trainer is asked behind that, and what
   * it has not answered, is refused with a HoldfastError.
   */
  close(): void;
}

/** How it is opened. */
export interface HoldfastOptions {
  /** Gets what happened since its last call, at most once a frame (once a second in a hidden tab). @default none */
  onEvents?: (events: RunEvent[]) => void;
  /** Makes the worker, where a bundler cannot find workers/trainer.js by itself. @default the package's */
  worker?: () => Worker;
}

const holdfastOptions = closed<HoldfastOptions>({ onEvents: optional(callable), worker: optional(callable) });

/**
 * The library, opened: its worker runs. Errors: HoldfastError where the browser has no WebGPU, no adapter or no private files, and
 * where the worker cannot start or runs another script; one that never answers is given two minutes.
 */
export async function openHoldfast(options: HoldfastOptions = {}): Promise<Holdfast> {
  check(holdfastOptions, options, 'the options of openHoldfast');
  const { onEvents, worker: make = startWorker } = options;
  if (!globalThis.navigator?.gpu) {
    const where = globalThis.isSecureContext ? '' : ', and pages get it on https and localhost only';
    throw new HoldfastError(
      `this browser shows no WebGPU (navigator.gpu); recent Chrome, Edge, Safari and Firefox have it${where}`,
    );
  }
  const worker = make();
  if (!(worker instanceof Worker))
    throw new HoldfastError(
      'the option `worker` of openHoldfast made no worker; it must return a Worker of workers/trainer.js',
    );
  const broken = new Promise<never>((_, reject) => {
    worker.addEventListener('error', (event) =>
      reject(new HoldfastError(`the worker cannot start: ${event.message || 'its script was not found'}`)),
    );
  });
  try {
    const remote = wrap<WorkerScript>(worker);
    await Promise.race([answered(remote), broken]);
    const opened = (await Promise.race([remote.open(), broken])) as unknown as Remote<TrainerService>;
    const service = new RemoteService(opened, () => worker.terminate());
    const { trainer } = service;
    if (onEvents) {
      const listener = async (events: RunEvent[]) => {
        onEvents(events);
        await nextFrame();
      };
      await Promise.race([trainer.listen(listener), broken]);
    }
    const environment = await Promise.race([trainer.environment(), broken]);
    return { trainer, environment, persist: () => navigator.storage.persist(), close: () => service.close() };
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

/** Resolves once the worker has said that it runs the script that it should. Errors: HoldfastError where it runs another, or is silent. */
async function answered(remote: Remote<WorkerScript>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const refuse = (problem: string) =>
    new HoldfastError(`the worker ${problem}; it must be a Worker of workers/trainer.js, of the same version`);
  const silent = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(refuse(`has not answered for ${SILENT_MS / 1000} s`)), SILENT_MS);
  });
  const script: unknown = await Promise.race([remote.script, silent]).finally(() => clearTimeout(timer));
  if (script !== SCRIPT) throw refuse('runs another script');
}

function startWorker(): Worker {
  return new Worker(new URL('../../workers/trainer.ts', import.meta.url), { type: 'module', name: 'holdfast trainer' });
}

/** A hidden tab has no frames. */
function nextFrame(): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
