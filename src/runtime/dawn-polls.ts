// Dawn's binding for Node asks the GPU again and again whether it is done, in a loop of `setImmediate` that takes a
// whole core for as long as anything is awaited. A software adapter needs that core to compute: there the loop is made
// to sleep a little in each round. Not for real GPUs, where the core is idle and the sleep would only come on top.

/** Linux adds half as much again. A dispatch on a software adapter takes longer than both. */
const NAP_MS = 0.1;

let napping = false;

/** The binding takes `setImmediate` from the global object: from now on it finds one that naps before its polls. */
export function napBetweenPolls(): void {
  if (napping) return;
  napping = true;
  const real = globalThis.setImmediate;
  const never = new Int32Array(new SharedArrayBuffer(4));
  const nap = () => Atomics.wait(never, 0, 0, NAP_MS);
  const replaced = (callback: (...args: unknown[]) => void, ...args: unknown[]) => {
    if (!isNative(callback)) return real(callback, ...args);
    return real(() => {
      nap();
      callback(...args);
    });
  };
  // What `util.promisify` looks for is a property.
  globalThis.setImmediate = Object.defineProperties(
    replaced as unknown as typeof setImmediate,
    Object.getOwnPropertyDescriptors(real),
  );
}

/** Of a binding; what somebody bound looks the same, and may nap as well. */
function isNative(callback: unknown): boolean {
  return String(callback) === 'function () { [native code] }';
}
