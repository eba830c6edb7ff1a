// A device that can be lost cheaply and as often as a test wants: it does its work on a real one, and so needs to
// compile nothing again, and is dead from the moment it is told to. Then it behaves as the runtimes do: what is
// submitted or written is ignored, what is mapped goes away, what waits to be mapped fails, and the loss itself is
// told a turn of the event loop later.

import { Device } from '../../src/gpu/device.ts';

export type Call = 'createBuffer' | 'submit' | 'writeBuffer' | 'mapAsync' | 'onSubmittedWorkDone';

export interface Fragile {
  /** The device in use: another one after a loss. */
  device: Device;
  /** Called before each call on it; it may `lose` it or throw. */
  before: ((call: Call) => void) | undefined;
  lose(): void;
  /** What the next out-of-memory scope that is popped found: the allocation failed. */
  exhaust(): void;
  /** Bytes of buffers beyond which an allocation fails in that way. */
  memory: number;
  /** The GPU finds while running that it has not the memory: no error scope is open for it. */
  runOut(): void;
  losses: number;
}

/** `real` stays as it is. */
export async function fragileDevice(real: Device): Promise<Fragile> {
  let lose = () => {};
  let runOut = () => {};
  let exhausted = false;
  const fragile: Fragile = {
    device: real,
    before: undefined,
    losses: 0,
    memory: Number.POSITIVE_INFINITY,
    lose: () => lose(),
    runOut: () => runOut(),
    exhaust: () => {
      exhausted = true;
    },
  };
  const wasExhausted = () => {
    const was = exhausted;
    exhausted = false;
    return was;
  };
  const allocated = (bytes: number) => {
    if (bytes > fragile.memory) exhausted = true;
  };
  const open = async (): Promise<Device> => {
    const made = fragileGPU(real.gpu, (call) => fragile.before?.(call), allocated, wasExhausted);
    const { features, adapterInfo: info = {} } = real.gpu;
    const adapter = { features, info, requestDevice: async () => made.gpu } as unknown as GPUAdapter;
    fragile.device = await Device.open(adapter, real.adapter, { reopen: open, isDefault: false, host: {} });
    Object.assign(fragile.device, { pipelines: real.pipelines, traits: real.traits });
    lose = () => {
      fragile.losses++;
      made.lose();
    };
    runOut = made.runOut;
    return fragile.device;
  };
  await open();
  return fragile;
}

/** Neither collected nor destroyed until the real device answers, also after the pretended loss: see src/gpu/mapping.ts. */
const unanswered = new Map<GPUBuffer, Promise<unknown>>();

function fragileGPU(
  gpu: GPUDevice,
  onCall: (call: Call) => void,
  /** Hears of the bytes of all buffers whenever there is one more. */
  onAllocated: (bytes: number) => void,
  wasExhausted: () => boolean,
): { gpu: GPUDevice; lose: () => void; runOut: () => void } {
  const buffers = new Set<GPUBuffer>();
  const maps = new Set<(reason: unknown) => void>();
  const scopes: GPUErrorFilter[] = [];
  let dead = false;
  const before = (call: Call) => {
    if (!dead) onCall(call);
  };
  let tell: (info: GPUDeviceLostInfo) => void = () => {};
  const lost = new Promise<GPUDeviceLostInfo>((resolve) => {
    tell = resolve;
  });
  let hear: (event: GPUUncapturedErrorEvent) => void = () => {};
  const runOut = () => {
    const error = { constructor: { name: 'GPUOutOfMemoryError' }, message: 'on purpose' };
    hear({ error } as unknown as GPUUncapturedErrorEvent);
  };
  const aborted = () => new DOMException('the device was lost', 'AbortError');
  const lose = () => {
    if (dead) return;
    dead = true;
    // The others stay: wgpu drops a whole submit over one write to a buffer that was destroyed meanwhile.
    for (const buffer of buffers) if (buffer.mapState === 'mapped') buffer.unmap();
    for (const reject of maps) reject(aborted());
    setTimeout(() => tell({ reason: 'unknown', message: 'on purpose' } as GPUDeviceLostInfo), 0);
  };
  const createBuffer = (given: GPUBufferDescriptor): GPUBuffer => {
    before('createBuffer');
    const buffer = gpu.createBuffer(given);
    buffers.add(buffer);
    onAllocated([...buffers].reduce((sum, { size }) => sum + size, 0));
    const map = buffer.mapAsync.bind(buffer);
    const destroy = buffer.destroy.bind(buffer);
    buffer.mapAsync = (...range) => {
      before('mapAsync');
      if (dead) return Promise.reject(aborted());
      return new Promise<undefined>((resolve, reject) => {
        maps.add(reject);
        const done = () => {
          maps.delete(reject);
          if (dead) reject(aborted());
          else resolve(undefined);
        };
        const answer = map(...range)
          .then(done, reject)
          .finally(() => unanswered.delete(buffer));
        unanswered.set(buffer, answer);
      });
    };
    buffer.destroy = () => {
      buffers.delete(buffer);
      const answer = unanswered.get(buffer);
      if (answer) answer.finally(destroy);
      else destroy();
    };
    return buffer;
  };
  const queue: Partial<GPUQueue> = {
    submit: (commands) => {
      before('submit');
      if (!dead) gpu.queue.submit(commands);
    },
    writeBuffer: ((...args: Parameters<GPUQueue['writeBuffer']>) => {
      before('writeBuffer');
      if (!dead) gpu.queue.writeBuffer(...args);
    }) as GPUQueue['writeBuffer'],
    onSubmittedWorkDone: () => {
      before('onSubmittedWorkDone');
      return dead ? Promise.resolve(undefined) : gpu.queue.onSubmittedWorkDone();
    },
  };
  const fake: Partial<GPUDevice> = {
    limits: gpu.limits,
    features: gpu.features,
    queue: queue as GPUQueue,
    lost,
    createBuffer,
    createBindGroup: (given) => gpu.createBindGroup(given),
    createCommandEncoder: (given) => gpu.createCommandEncoder(given),
    addEventListener: ((_: 'uncapturederror', listener: typeof hear) => {
      hear = listener;
    }) as GPUDevice['addEventListener'],
    removeEventListener: () => {},
    // Made of buffers that are gone, commands of a lost device are wrong: that error is not passed on.
    pushErrorScope: (filter) => {
      scopes.push(filter);
      gpu.pushErrorScope(filter);
    },
    popErrorScope: async () => {
      const filter = scopes.pop();
      const found = await gpu.popErrorScope();
      const exhausted = filter === 'out-of-memory' && wasExhausted();
      if (dead) return null;
      return exhausted ? ({ message: 'on purpose' } as GPUOutOfMemoryError) : found;
    },
    destroy: lose as GPUDevice['destroy'],
  };
  return { gpu: fake as GPUDevice, lose, runOut };
}
