// Web Locks of this site: each ends when it is released, or with the worker that holds it, whatever ends that.

/** Ends the hold on a lock. */
export type Release = () => void;

/**
 * Holds a lock. Undefined where it is held already, here or in another tab. `patience`: milliseconds to wait for it: what was released a
 * moment ago may look held. @default none
 */
export function holdLock(name: string, patience = 0): Promise<Release | undefined> {
  return new Promise((resolve, reject) => {
    const held = (lock: Lock | null): Promise<void> | undefined => {
      if (lock) return new Promise((release) => resolve(release));
      resolve(undefined);
      return undefined;
    };
    const waiting = patience > 0 ? AbortSignal.timeout(patience) : undefined;
    const how = waiting ? { signal: waiting } : { ifAvailable: true };
    navigator.locks.request(name, how, held).catch((error: unknown) => {
      if (waiting?.aborted) resolve(undefined);
      else reject(error);
    });
  });
}

/** The names of those that are held, here and in other tabs. */
export async function heldLocks(): Promise<ReadonlySet<string>> {
  const { held = [] } = await navigator.locks.query();
  return new Set(held.map(({ name }) => name ?? ''));
}
