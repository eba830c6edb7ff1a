// The service as a page has it: its methods run in the worker, and functions among their arguments in the page. What cannot be
// sent there is refused by its place.

import { proxy, type Remote } from 'comlink';
import { HoldfastError } from '../util/errors.ts';
import type { TrainerService } from './service.ts';

type Called = (...given: unknown[]) => Promise<unknown>;

/**
 * The service, whose methods take functions as they are. Errors, of each: HoldfastError naming the argument that holds what no
 * worker can be sent, such as a function among options.
 */
export function withCallbacks(service: Remote<TrainerService>): Remote<TrainerService> {
  return new Proxy(service, {
    get(_, name) {
      const found: unknown = Reflect.get(service, name);
      // Of symbols and of `then` comlink makes its own use.
      if (typeof name === 'symbol' || name === 'then') return found;
      return (...given: unknown[]) => sending(name, found as Called, given);
    },
  });
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
