// `RemoteService`: the service as a page has it. Its methods run in the worker, and functions among their arguments in the page. What
// cannot be sent there is refused by its place, and what waits for a worker that is ended is refused, too.

import { proxy, type Remote } from 'comlink';
import { HoldfastError } from '../util/errors.ts';
import type { TrainerService } from './service.ts';

type Called = (...given: unknown[]) => Promise<unknown>;

/** Why no call is answered: the worker was ended. */
const CLOSED = 'this Holdfast was closed, and its worker ended; open another with openHoldfast';

/** The service in a worker, until that is ended. */
export class RemoteService {
  /** Its methods take functions as they are. */
  readonly trainer: Remote<TrainerService>;
  /** Of calls that are not answered yet: what refuses them. No worker that was ended answers, nor does comlink for it. */
  readonly #waiting = new Set<(reason: unknown) => void>();
  readonly #end: () => void;
  #isClosed = false;

  /**
   * `end` ends the worker. Errors, of each method: HoldfastError naming the argument that holds what no worker can be sent, such as
   * a function among options, and where it is closed before it has answered.
   */
  constructor(service: Remote<TrainerService>, end: () => void) {
    this.#end = end;
    this.trainer = new Proxy(service, {
      get: (_, name) => {
        const found: unknown = Reflect.get(service, name);
        // Of symbols and of `then` comlink makes its own use.
        if (typeof name === 'symbol' || name === 'then') return found;
        return (...given: unknown[]) => this.#untilClosed(() => sending(name, found as Called, given));
      },
    });
  }

  /** Ends the worker; what waits for it, and what is called from here on, is refused. */
  close(): void {
    this.#isClosed = true;
    this.#end();
    for (const refuse of this.#waiting) refuse(new HoldfastError(CLOSED));
    this.#waiting.clear();
  }

  #untilClosed(call: () => Promise<unknown>): Promise<unknown> {
    if (this.#isClosed) return Promise.reject(new HoldfastError(CLOSED));
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      call()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }
}

async function sending(name: string, method: Called, given: readonly unknown[]): Promise<unknown> {
  try {
    // Each in a function of its own: comlink writes on what it passes, and one that is frozen could not be.
    return await method(
      ...given.map((each) => (isFunction(each) ? proxy((...args: unknown[]) => each(...args)) : each)),
    );
  } catch (error) {
    if ((error as { name?: unknown } | undefined)?.name !== 'DataCloneError') throw error;
    const at = given.findIndex((each) => !isFunction(each) && !canBeSent(each));
    if (at < 0) throw error;
    throw new HoldfastError(
      `trainer.${name}: argument ${at + 1} holds what cannot be sent to a worker, such as a function or an element of the page; leave that out`,
    );
  }
}

const isFunction = (given: unknown): given is (...args: unknown[]) => unknown => typeof given === 'function';

function canBeSent(given: unknown): boolean {
  try {
    structuredClone(given);
    return true;
  } catch {
    return false;
  }
}
