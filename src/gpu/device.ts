// The device: adapter choice, limits, features, loss and errors in one place. Everything above gets
// buffers, pipelines and reads from this class, and a lost device or a validation error is reported by it alone.

import type { Traits } from '../kernels/kernel.ts';
import { checkHost } from '../runtime/check-host.ts';
import type { CopyBytes, GPUSource, Host } from '../runtime/host.ts';
import { having } from '../util/arguments.ts';
import { DISPOSE } from '../util/dispose.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { check, closed, optional, text } from '../util/json.ts';
import { Allocator } from './allocator.ts';
import { GPUBufferUsage, GPUMapMode, isOutOfMemory } from './constants.ts';
import { mapBuffer } from './mapping.ts';
import { Pipelines } from './pipelines.ts';

const WANTED_FEATURES: readonly string[] = ['timestamp-query', 'subgroups'];
/** What subgroups take to multiply matrices, and to have one size where an adapter has several. */
const MATRIX_FEATURES: readonly string[] = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
const SIZE_FEATURE = 'subgroup-size-control';
/** Lanes of a subgroup that multiplies matrices. */
const MATRIX_LANES = 32;

/** Limits that kernels and buffers use; the adapter's own are asked for, the defaults are enough. */
const WANTED_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize',
] as const;

/** Calls on a lost device may fail before `device.lost` resolves: by less than this. */
const LOSS_SHOWS_MS = 100;

/** A GPU, or a software adapter, as it describes itself. */
export interface AdapterSummary {
  /** The source's name, then what the adapter calls itself. */
  readonly source: string;
  /** For people. */
  readonly name: string;
  /** In lower case; may be empty. */
  readonly vendor: string;
  /** In lower case; may be empty. */
  readonly architecture: string;
  /** Whether a CPU computes. */
  readonly software: boolean;
  /** Whether it arrived with the package. */
  readonly embedded: boolean;
  /** WebGPU's names, sorted. */
  readonly features: readonly string[];
  /** By WebGPU's names. */
  readonly limits: Readonly<Record<(typeof WANTED_LIMITS)[number], number>>;
  /** The least and the most invocations of a subgroup; 0 where it does not say. */
  readonly subgroups: readonly [number, number];
}

/** A product of subgroup matrices, as an adapter lists it. */
interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

/** Which adapter to open. */
export interface DeviceOptions {
  /**
   * `auto`: the first adapter found, GPUs before software; `software`: the embedded one; else a part of an
   * adapter's name, in any case.
   * @default 'auto'
   */
  adapter?: string;
}

const deviceOptions = closed<DeviceOptions>({ adapter: optional(text) });

/** Opens the adapter that the options choose. Errors: HoldfastError listing what there is. */
export async function openDevice(host: Host, options: DeviceOptions = {}): Promise<Device> {
  checkHost(host);
  const { adapter: wanted = 'auto' } = check(deviceOptions, options, 'the options of a device');
  const tried: string[] = [];
  for (const source of await host.gpuSources()) {
    // A source that cannot be it is not asked.
    if (wanted === 'software' && !source.embedded) continue;
    try {
      const found = await requestAdapter(source);
      if (!found) {
        tried.push(`${source.name} (no adapter)`);
        continue;
      }
      if (isAsked(wanted, found.summary)) {
        const reopen = () => openDevice(host, options);
        const given = { reopen, isDefault: wanted === 'auto', host };
        return await Device.open(found.adapter, found.summary, given).catch(async (error) => {
          // An adapter does not outlive a GPU process that dies, or is just being replaced; there is another then.
          const again = await requestAdapter(source);
          if (again?.summary.name !== found.summary.name) throw error;
          return Device.open(again.adapter, again.summary, given);
        });
      }
      tried.push(found.summary.name);
    } catch (error) {
      tried.push(`${source.name} (${messageOf(error)})`);
    }
  }
  const what = wanted === 'auto' ? 'no WebGPU adapter works here' : `no adapter matches "${wanted}"`;
  const list = tried.length > 0 ? `; tried: ${tried.join(', ')}` : '';
  throw new HoldfastError(`${what}${list}; see holdfast devices`);
}

/** Whether an adapter is one that is asked for by these words: see DeviceOptions. */
export function isAsked(
  wanted: string,
  { name, source, embedded }: Pick<AdapterSummary, 'name' | 'source' | 'embedded'>,
): boolean {
  if (wanted === 'auto') return true;
  return wanted === 'software' ? embedded : `${name} ${source}`.toLowerCase().includes(wanted.toLowerCase());
}

/** Every adapter that the host can reach, in the order of preference. */
export async function listAdapters(host: Host): Promise<(AdapterSummary | { source: string; error: string })[]> {
  checkHost(host);
  const found = [];
  for (const source of await host.gpuSources()) {
    try {
      const adapter = await requestAdapter(source);
      found.push(adapter ? adapter.summary : { source: source.name, error: 'no adapter' });
    } catch (error) {
      found.push({ source: source.name, error: messageOf(error) });
    }
  }
  return found;
}

async function requestAdapter(source: GPUSource) {
  const gpu = await source.open();
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return undefined;
  const { info } = adapter;
  const name = info.description || info.device || info.architecture || info.vendor || 'unnamed adapter';
  const limits = {} as Record<(typeof WANTED_LIMITS)[number], number>;
  for (const limit of WANTED_LIMITS) limits[limit] = adapter.limits[limit];
  const summary: AdapterSummary = {
    source: source.name,
    name,
    vendor: info.vendor,
    architecture: info.architecture,
    software: info.isFallbackAdapter === true || /llvmpipe|swiftshader/i.test(`${name} ${info.architecture}`),
    embedded: source.embedded,
    features: [...adapter.features].sort(),
    limits,
    subgroups: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0],
  };
  return { adapter, summary };
}

/** Of an adapter that lists f16 in, f32 out, 16 x 16 x 16 among the products of its subgroups: NVIDIA's and AMD's do, Apple's none that sums in f32. */
function subgroupMatricesOf(
  adapter: GPUAdapter,
  { features, subgroups: [least, most] }: AdapterSummary,
): Traits['subgroupMatrices'] {
  if (!MATRIX_FEATURES.every((name) => features.includes(name))) return undefined;
  const info: GPUAdapterInfo & { readonly subgroupMatrixConfigs?: Iterable<MatrixConfig> } = adapter.info;
  const isSuch = ({ componentType, resultComponentType, M, N, K }: MatrixConfig) =>
    componentType === 'f16' && resultComponentType === 'f32' && [M, N, K].every((side) => side === 16);
  if (![...(info.subgroupMatrixConfigs ?? [])].some(isSuch)) return undefined;
  if (least === MATRIX_LANES && most === MATRIX_LANES) return 'fixed';
  return features.includes(SIZE_FEATURE) && least <= MATRIX_LANES && most >= MATRIX_LANES ? 'sized' : undefined;
}

/** Errors: HoldfastError for what is no device. */
export const checkDevice = (device: Device): void =>
  void check(having<Device>('a device, as openDevice gives', 'check', 'adapter'), device, 'device');

/** The GPU has not the memory for something. */
export class OutOfMemory extends HoldfastError {
  constructor(what: string) {
    super(`${what} does not fit into the GPU's memory; use a smaller batch, context or model`);
  }
}

/**
 * What has become of a device: `exhausted` ran out of memory while it ran, and what was encoded since may be missing;
 * `lost` is gone; `failed` reported another error; `closed` was closed. The first of these that holds.
 */
export type DeviceStatus = 'exhausted' | 'lost' | 'failed' | 'closed' | 'works';

/** What an adapter's device gets of where it is opened. */
interface OpenOptions extends Pick<Device, 'reopen' | 'isDefault'> {
  readonly host: Pick<Host, 'startCopying'>;
}

/** An open GPU device. Errors of all that waits for it: HoldfastError once it is lost, reports an error or is closed. */
export class Device {
  /** WebGPU's own. */
  readonly gpu: GPUDevice;
  /** What it was opened on. */
  readonly adapter: AdapterSummary;
  /**
   * Counts every buffer.
   * @internal
   */
  readonly allocator: Allocator;
  /**
   * Compiled once each.
   * @internal
   */
  readonly pipelines: Pipelines;
  /**
   * What kernels choose their variants by.
   * @internal
   */
  readonly traits: Traits;
  /** Whether dispatches can be timed. */
  readonly hasTimestamps: boolean;
  /** Opens another device in place of one that was lost, chosen in the same way. */
  readonly reopen: () => Promise<Device>;
  /** Whether no adapter was asked for: this one comes first here. */
  readonly isDefault: boolean;
  /**
   * Between mapped buffers and host memory.
   * @internal
   */
  readonly copyBytes: CopyBytes;
  #failure: HoldfastError | undefined;
  #closed = false;
  #lost = false;
  #exhausted = false;
  readonly #whenLost: Promise<void>;
  /** Dawn in Node holds a listener for ever, and by it the device with its threads: it is removed at the device's end. */
  readonly #uncaptured = ({ error }: GPUUncapturedErrorEvent): void => {
    this.#exhausted ||= isOutOfMemory(error);
    this.#fail(`the GPU reported: ${error.message}`);
  };

  /**
   * Opens the adapter with all that the engine can use of it; `openDevice` chooses one.
   * @internal
   */
  static async open(adapter: GPUAdapter, summary: AdapterSummary, options: OpenOptions): Promise<Device> {
    const requiredLimits: Record<string, number> = { ...summary.limits };
    const matrices = subgroupMatricesOf(adapter, summary);
    const wanted = new Set([
      ...WANTED_FEATURES,
      ...(matrices ? MATRIX_FEATURES : []),
      ...(matrices === 'sized' ? [SIZE_FEATURE] : []),
    ]);
    const requiredFeatures = [...wanted].filter((name) => summary.features.includes(name)) as GPUFeatureName[];
    // A software adapter computes with the processors that would copy.
    const copying = summary.software ? undefined : options.host.startCopying?.();
    const gpu = await adapter.requestDevice({ requiredFeatures, requiredLimits });
    return new Device(gpu, summary, matrices, options, await copying);
  }

  private constructor(
    gpu: GPUDevice,
    adapter: AdapterSummary,
    subgroupMatrices: Traits['subgroupMatrices'],
    { reopen, isDefault }: OpenOptions,
    copyBytes: CopyBytes = (to, from) => to.set(from),
  ) {
    this.gpu = gpu;
    this.reopen = reopen;
    this.isDefault = isDefault;
    this.adapter = adapter;
    this.copyBytes = copyBytes;
    this.allocator = new Allocator(gpu);
    this.pipelines = new Pipelines(gpu);
    this.hasTimestamps = gpu.features.has('timestamp-query');
    const [least, most] = adapter.subgroups;
    this.traits = {
      software: adapter.software,
      subgroupSize: gpu.features.has('subgroups') && least === most ? least : 0,
      ...(subgroupMatrices && { subgroupMatrices }),
    };
    gpu.addEventListener('uncapturederror', this.#uncaptured);
    this.#whenLost = gpu.lost.then((info) => {
      gpu.removeEventListener('uncapturederror', this.#uncaptured);
      if (this.#closed) return;
      this.#lost = true;
      this.#fail(`the GPU device was lost (${info.reason}): ${info.message}`);
    });
  }

  #fail(message: string): void {
    this.#failure ??= new HoldfastError(message);
  }

  /** A loss may take a turn of the event loop until it shows. */
  get status(): DeviceStatus {
    if (this.#exhausted) return 'exhausted';
    if (this.#lost) return 'lost';
    if (this.#failure) return 'failed';
    return this.#closed ? 'closed' : 'works';
  }

  /**
   * Whether it is lost or exhausted; waits for that to show where `error` may have come of it.
   * @internal
   */
  async isGone(error: unknown): Promise<boolean> {
    const patience = error instanceof HoldfastError ? 0 : LOSS_SHOWS_MS;
    await Promise.race([this.#whenLost, new Promise((resolve) => setTimeout(resolve, patience))]);
    return this.#lost || this.#exhausted;
  }

  /** Throws what went wrong on the device since it was opened, or that it was closed: called wherever the engine waits. */
  check(): void {
    if (this.#failure) throw this.#failure;
    if (this.#closed) throw new HoldfastError('the GPU device was closed; open another one with openDevice');
  }

  /**
   * Hands commands to the queue.
   * @internal
   */
  submit(encoder: GPUCommandEncoder): void {
    this.gpu.queue.submit([encoder.finish()]);
  }

  /** Resolves when all submitted work is done. Errors: a lost device or an uncaptured error. */
  async idle(): Promise<void> {
    await this.gpu.queue.onSubmittedWorkDone();
    this.check();
  }

  /**
   * Runs `make` and throws the out-of-memory or validation error that it caused, naming `what`.
   * @internal
   */
  async guarded<T>(what: string, make: () => T | Promise<T>): Promise<T> {
    this.gpu.pushErrorScope('out-of-memory');
    this.gpu.pushErrorScope('validation');
    let result: T;
    let invalid: GPUError | null;
    let exhausted: GPUError | null;
    try {
      result = await make();
    } finally {
      invalid = await this.gpu.popErrorScope();
      exhausted = await this.gpu.popErrorScope();
    }
    if (exhausted) throw new OutOfMemory(what);
    if (invalid) throw new Error(`internal: ${what}: ${invalid.message}`);
    this.check();
    return result;
  }

  /**
   * One read of a whole buffer range, for checkpoints and tests: waits for the queue.
   * @internal
   */
  async read(source: GPUBuffer, offset: number, bytes: number): Promise<ArrayBuffer> {
    const staging = this.allocator.create('read', bytes, GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ);
    try {
      const encoder = this.gpu.createCommandEncoder();
      encoder.copyBufferToBuffer(source, offset, staging, 0, bytes);
      this.submit(encoder);
      await mapBuffer(staging, GPUMapMode.READ, bytes);
      this.check();
      return staging.getMappedRange(0, bytes).slice(0);
    } finally {
      this.allocator.destroy(staging);
    }
  }

  /** Frees all that is on it. */
  close(): void {
    this.#closed = true;
    this.gpu.destroy();
  }

  /** `using`: as `close`. */
  [DISPOSE](): void {
    this.close();
  }
}
