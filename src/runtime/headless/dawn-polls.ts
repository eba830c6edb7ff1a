// A slower poll for Dawn's binding for Node, which polls the GPU until its work is done, in a loop of `setImmediate` that takes
// a whole core for as long as anything is awaited. A software adapter needs that core to compute: while one has a device,
// the loop is made to sleep a little in each round. Not for real GPUs, where the core is idle and the sleep would only
// come on top. Invariant: without such a device `setImmediate` is the one that was there before.

/** Linux adds half as much again. A dispatch on a software adapter takes longer than both. */
const NAP_MS = 0.1;
/** Naps become longer by this part of what has passed since work was submitted last: what takes long may be known as much later. */
const OF_WAITED = 1 / 16;
const LONGEST_NAP_MS = 1;

/** Software devices that are open. */
let open = 0;
/** When work was submitted to one of them last. */
let submitted = 0;
let real = globalThis.setImmediate;
let replaced: typeof setImmediate | undefined;

/** The devices that this GPU's adapters open are polled with naps, each until it is lost or destroyed. */
export function withNaps(gpu: GPU): GPU {
  const requestAdapter = gpu.requestAdapter.bind(gpu);
  gpu.requestAdapter = async (options) => {
    const adapter = await requestAdapter(options);
    if (!adapter) return adapter;
    const requestDevice = adapter.requestDevice.bind(adapter);
    adapter.requestDevice = async (descriptor) => {
      const device = await requestDevice(descriptor);
      const { queue } = device;
      queue.submit = (buffers) => {
        submitted = performance.now();
        return Object.getPrototypeOf(queue).submit.call(queue, buffers);
      };
      napUntil(device.lost);
      return device;
    };
    return adapter;
  };
  return gpu;
}

/** The binding takes `setImmediate` from the global object: until `end` it finds one that naps before its polls. */
export function napUntil(end: Promise<unknown>): void {
  if (open++ === 0) replace();
  const ended = () => {
    // A replacement that was made meanwhile holds on to ours: with nothing open that is as good as the real one.
    if (--open === 0 && globalThis.setImmediate === replaced) globalThis.setImmediate = real;
  };
  end.then(ended, ended);
}

function replace(): void {
  if (globalThis.setImmediate === replaced) return;
  real = globalThis.setImmediate;
  const before = real;
  const never = new Int32Array(new SharedArrayBuffer(4));
  const napping = (callback: (...args: unknown[]) => void, ...args: unknown[]) => {
    if (open === 0 || !isNative(callback)) return before(callback, ...args);
    return before(() => {
      const waited = performance.now() - submitted;
      Atomics.wait(never, 0, 0, Math.min(LONGEST_NAP_MS, Math.max(NAP_MS, OF_WAITED * waited)));
      callback(...args);
    });
  };
  // What `util.promisify` looks for is a property.
  replaced = Object.defineProperties(
    napping as unknown as typeof setImmediate,
    Object.getOwnPropertyDescriptors(before),
  );
  globalThis.setImmediate = replaced;
}

/** Whether a callback is that of a native binding; a function that was bound looks the same, and may nap as well. */
function isNative(callback: unknown): boolean {
  return String(callback) === 'function () { [native code] }';
}
