// Empty commands for Firefox, which looks only every 100 ms whether the GPU is done, and whenever it gets commands. While
// something of a device is awaited, the queue gets empty ones, so that an answer arrives some milliseconds after the GPU has it: text is
// written 10 times as fast, and what is timed is the GPU. Invariant: nothing is submitted while nothing is awaited, and
// no object that others can see is changed.

/** Browsers make 4 of it when timers set timers. */
const NUDGE_MS = 1;

/** The devices that this adapter opens are nudged, each until it is lost or destroyed. */
export function withNudges(adapter: GPUAdapter): GPUAdapter {
  const requestDevice = adapter.requestDevice.bind(adapter);
  adapter.requestDevice = async (descriptor) => {
    const device = await requestDevice(descriptor);
    nudgeWhileAwaited(device);
    return device;
  };
  return adapter;
}

function nudgeWhileAwaited(device: GPUDevice): void {
  const { queue } = device;
  let awaited = 0;
  let isLost = false;
  let isNudging = false;
  const nudge = () => {
    isNudging = awaited > 0 && !isLost;
    if (!isNudging) return;
    queue.submit([]);
    setTimeout(nudge, NUDGE_MS);
  };
  const nudged = <T>(answer: Promise<T>): Promise<T> => {
    awaited++;
    if (!isNudging) setTimeout(nudge, NUDGE_MS);
    isNudging = true;
    const answered = () => {
      awaited--;
    };
    answer.then(answered, answered);
    return answer;
  };
  const onSubmittedWorkDone = queue.onSubmittedWorkDone.bind(queue);
  queue.onSubmittedWorkDone = () => nudged(onSubmittedWorkDone());
  const createBuffer = device.createBuffer.bind(device);
  device.createBuffer = (descriptor) => {
    const buffer = createBuffer(descriptor);
    const mapAsync = buffer.mapAsync.bind(buffer);
    buffer.mapAsync = (...range) => nudged(mapAsync(...range));
    return buffer;
  };
  void device.lost.then(() => {
    isLost = true;
  });
}
