// Everything that shares one device's memory: the chunks of a model in their tiers, the programs that use them, and
// the executor that runs passes over them, one at a time. Made once, within the budget or not at all; what it
// predicted is what it allocates.
//
// A lost device takes with it what exists only on the GPU. A durable session keeps the state of every step below as
// well, so that a new device goes on from there.

import { type Device, OutOfMemory } from '../gpu/device.ts';
import type { Tensor } from '../graph/graph.ts';
import type { ActivationMode } from '../graph/recompute.ts';
import { Backing } from '../memory/backing.ts';
import type { ChunkMap } from '../memory/chunk-map.ts';
import { ALL_KINDS, KINDS, type Kind } from '../memory/kinds.ts';
import { LARGEST_PUT } from '../memory/tier-limits.ts';
import type { Trace } from '../memory/trace.ts';
import type { BlockFile } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import type { TensorSource } from '../util/tensor-source.ts';
import type { ChoiceRecord, KernelChoices } from './choices.ts';
import type { Executor } from './executor.ts';
import { type BufferLimits, type Fit, fitMemory, refitMemory, type Workload } from './fit.ts';
import type { LinkLedger } from './link.ts';
import { makeOnDevice, type OnDevice } from './on-device.ts';
import type { Pass } from './pass.ts';
import { probeMemory } from './probe.ts';
import { type Policy, type Schedule, schedule } from './schedule.ts';
import { Replaced, Turns } from './turns.ts';
import { setTensors, tensorsOf } from './values.ts';
import { WarmUp } from './warm-up.ts';

/** Budgets, tiers and policy: where model data lies. No result depends on them. */
export interface MemoryOptions {
  /**
   * Bytes of GPU memory, for everything; `auto`: as much as can be had. Absent: all model data stays on the GPU, as
   * long as there is memory for it.
   */
  readonly gpu?: number | 'auto';
  /**
   * What of a block's activations is kept for the backward pass; `auto`: all where the budget has room for it, else
   * only the block's input. Changes no bit. @default 'auto'
   */
  readonly activations?: ActivationMode | 'auto';
  /** Bytes of host memory for chunks. @default no limit */
  readonly host?: number;
  /** The slow tier. @default none */
  readonly disk?: { readonly open: (bytes: number) => Promise<BlockFile>; readonly limit?: number };
  /** Who leaves when. @default 'planned' */
  readonly policy?: Policy;
  /** Whether chunks on disk are read before they are needed. @default true */
  readonly prefetch?: boolean;
  /**
   * `step`: every step's state is also kept below the GPU, and a lost device costs one step at most. `checkpoint`:
   * it is not, which moves fewer bytes. Without a budget nothing is kept below. @default 'step'
   */
  readonly recovery?: 'step' | 'checkpoint';
}

/** What a session can tell of its memory at any time. Bytes. */
export interface MemoryReport {
  /** What its budget is, and what the plan needs at once. */
  readonly gpu: { readonly budget: number | undefined; readonly predictedPeak: number };
  /** Of the chunks in host memory. */
  readonly host: { readonly budget: number | undefined; readonly peak: number };
  /** Of the file. */
  readonly disk: { readonly budget: number | undefined; readonly peak: number };
  /** What went between GPU and host, and what was waited for. */
  readonly link: LinkLedger;
  /** What went between host memory and the file, and lies there. */
  readonly below: Backing['ledger'];
}

/** What is tried next where the GPU has less memory than was asked of it. */
const SHRINK = 0.8;

export class Session {
  /** As it is now: the budget may change on the way. */
  memory: Readonly<MemoryOptions>;
  readonly durable: boolean;
  readonly #choices: KernelChoices;
  readonly #backing: Backing;
  #fit: Fit;
  #schedules: ReadonlyMap<Pass, Schedule>;
  #warmUp: WarmUp | undefined;
  #on: OnDevice;
  #closed = false;
  readonly turns = new Turns();

  /** Errors: HoldfastError for a budget that is too small, naming the smallest that works. */
  static async open(
    device: Device,
    workload: Workload,
    choices: KernelChoices,
    memory: MemoryOptions = {},
  ): Promise<Session> {
    const limits = limitsOf(device);
    const keepsSteps = (memory.recovery ?? 'step') === 'step' && workload.training;
    let budget = memory.gpu === 'auto' ? await autoBudget(device, workload) : memory.gpu;
    let exhausted: OutOfMemory | undefined;
    for (;;) {
      const durable = budget !== undefined && keepsSteps;
      const found = fitOr(exhausted, () => fitMemory(workload, limits, budget, durable));
      try {
        const { gpu: _, ...rest } = memory;
        const settled = budget === undefined ? rest : { ...rest, gpu: budget };
        return await Session.#make(device, found, choices, settled, durable);
      } catch (error) {
        if (!(error instanceof OutOfMemory)) throw error;
        exhausted = error;
        budget = Math.floor(found.peak * SHRINK);
      }
    }
  }

  static async #make(
    device: Device,
    found: Fit,
    choices: KernelChoices,
    memory: MemoryOptions,
    durable: boolean,
  ): Promise<Session> {
    const { map } = found;
    // Trials need operands of their own: before anything else is there, they fit.
    await choices.settle(found.passes.flatMap(({ operations }) => operations));
    const bytes = (map.count + LARGEST_PUT) * map.chunkBytes;
    const diskLimit = Math.min(memory.disk?.limit ?? Number.POSITIVE_INFINITY, bytes);
    const file = await memory.disk?.open(diskLimit);
    let backing: Backing | undefined;
    try {
      backing = new Backing({
        chunks: map.count,
        chunkBytes: map.chunkBytes,
        hostLimit: memory.host ?? Number.POSITIVE_INFINITY,
        ...(file && { disk: file, diskLimit }),
      });
      for (const kind of ALL_KINDS.filter((kind) => KINDS[kind].zero)) {
        const { first, chunks } = map.list(kind);
        for (let chunk = first; chunk < first + chunks; chunk++) backing.setZero(chunk);
      }
      const on = await makeOnDevice(device, found, choices, backing, durable, memory.prefetch ?? true);
      return new Session(found, memory, durable, choices, backing, on);
    } catch (error) {
      await (backing ? backing.close() : file?.remove());
      throw error;
    }
  }

  private constructor(
    found: Fit,
    memory: MemoryOptions,
    durable: boolean,
    choices: KernelChoices,
    backing: Backing,
    on: OnDevice,
  ) {
    this.#fit = found;
    this.memory = memory;
    this.durable = durable;
    this.#choices = choices;
    this.#backing = backing;
    this.#on = on;
    const policy = memory.policy ?? 'planned';
    this.#schedules = schedulesFor(found, policy);
    const [step] = found.passes;
    if (step?.update && found.slots < found.map.count) this.#warmUp = new WarmUp(step, found, policy);
  }

  get fit(): Fit {
    return this.#fit;
  }
  get map(): ChunkMap {
    return this.fit.map;
  }
  get device(): Device {
    return this.#on.device;
  }
  get executor(): Executor {
    return this.#on.executor;
  }
  get choices(): ChoiceRecord {
    return this.#choices.record();
  }

  readonly scheduleOf = (pass: Pass): Schedule => this.#schedules.get(pass) as Schedule;

  /** The first steps are watched; undefined when they are over, or where everything fits. */
  get warmUp(): WarmUp | undefined {
    return this.#warmUp;
  }

  /** A step of warm-up is encoded. After the last, what it learned is used. */
  endWarmUpStep(): void {
    const warmUp = this.#warmUp;
    if (!warmUp) return;
    warmUp.end();
    if (!warmUp.isOver) return;
    this.#warmUp = undefined;
    this.measured = warmUp.trace;
    const { diskReadBytes, waits } = this.#backing.ledger;
    const loads = warmUp.schedule.plan.moments.reduce((sum, { load }) => sum + load.length, 0);
    if (this.memory.prefetch ?? true) {
      this.executor.readAhead = warmUp.readAhead(diskReadBytes / waits.diskReadMs, loads / warmUp.schedule.plan.steps);
    }
  }

  /** The step's trace with the times of warm-up, once that is over. */
  measured: Trace | undefined;

  report(): MemoryReport {
    const { gpu, host, disk } = this.memory;
    const { ledger } = this.#backing;
    return {
      gpu: { budget: gpu === 'auto' ? undefined : gpu, predictedPeak: this.fit.peak },
      host: { budget: host, peak: ledger.hostPeak },
      disk: { budget: disk?.limit, peak: ledger.diskPeak },
      link: structuredClone(this.executor.ledger),
      below: ledger,
    };
  }

  /** Runs `work` when everything before it has been encoded: passes never mix. Errors: the session is closed. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return this.turns.exclusive(() => {
      if (this.#closed) throw new HoldfastError('internal: this session is closed, and its buffers are gone');
      return work();
    });
  }

  /** The same for work that can be done again: after a lost device it is, in its turn, once there is another. */
  steady<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const attempt = async () => {
        const { device } = this;
        try {
          resolve(await this.exclusive(work));
        } catch (error) {
          // It is attempted again.
          if (error instanceof Replaced) return;
          const reason = await this.recover(error, device).then(
            () => undefined,
            (reason: unknown) => ({ reason }),
          );
          if (!reason) return;
          reject(reason.reason);
        }
        this.turns.done(attempt);
      };
      this.turns.keep(attempt);
    });
  }

  /** Set by who can go on after a lost device: throws the error where it is another or where nobody can. */
  recover: (error: unknown, device: Device) => Promise<void> = async (error, device) => {
    await device.showsLoss(error);
    device.check();
    throw error;
  };

  /** Sets an input or a scalar, for what is encoded from now on. */
  write(tensor: Tensor, data: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>): void {
    this.#on.storage.write(tensor, data);
  }

  bufferOf(tensor: Tensor): GPUBuffer {
    return this.#on.storage.range(tensor).buffer;
  }

  /** An output or a persistent tensor. Waits for the queue; call it within `exclusive`. */
  async read(tensor: Tensor): Promise<Float32Array<ArrayBuffer>> {
    const { buffer, offset } = this.#on.storage.range(tensor);
    const values = new Float32Array(tensor.size);
    const bytes = new Uint8Array(values.buffer);
    await this.executor.readBuffer(buffer, offset, bytes.length, (piece, at) => bytes.set(piece, at));
    return values;
  }

  /** The value of a chunk below the GPU is of no use any more. */
  forget(chunk: number): void {
    this.#backing.discard(chunk);
  }

  /** Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. */
  setValues(kind: Kind, source: TensorSource): Promise<void> {
    return this.steady(async () => {
      // What is on its way down lies neither here nor below.
      await this.executor.settle();
      await setTensors(this.map, kind, source, {
        get: (chunk, words) => this.#getChunk(chunk, words),
        set: (chunk, words) => this.#setChunk(chunk, words),
      });
    });
  }

  /** The tensors of a kind, as they are when they are read. */
  values(kind: Kind): TensorSource {
    return this.#source(kind, (work) => this.steady(work));
  }

  /** The same for who has the turn already. */
  valuesNow(kind: Kind): TensorSource {
    return this.#source(kind, (work) => work());
  }

  #source(kind: Kind, turn: (work: () => Promise<void>) => Promise<void>): TensorSource {
    return tensorsOf(this.map, kind, (chunk, offset, into) => turn(() => this.executor.read(chunk, offset, into)));
  }

  async #setChunk(chunk: number, words: Float32Array<ArrayBuffer>): Promise<void> {
    const bytes = new Uint8Array(words.buffer);
    const { slots, executor } = this.#on;
    // Without a tier below in use, values live on the GPU alone.
    if (this.memory.gpu === undefined) {
      await executor.upload(chunk, bytes);
      return;
    }
    await executor.settle();
    if (slots.holds(chunk)) slots.release(chunk);
    await this.#backing.putAll([{ chunk, bytes }]);
  }

  async #getChunk(chunk: number, words: Float32Array<ArrayBuffer>): Promise<void> {
    if (this.#backing.where(chunk) === 'nothing' && !this.#on.slots.holds(chunk)) return;
    await this.executor.read(chunk, 0, new Uint8Array(words.buffer));
  }

  /**
   * Goes on with another device, or with another budget on this one: everything is made anew, model data comes from
   * the tiers below, and the small persistent tensors hold zeros until they are written. Call it with nothing under
   * way, or after a loss. Errors: HoldfastError for a budget that these chunks do not fit into; nothing changed then.
   */
  async moveTo(device: Device, budget?: number): Promise<void> {
    const found = budget === undefined ? this.#fit : refitMemory(this.#fit, budget, this.durable);
    await this.executor.abandon();
    if (device === this.device) this.#on.release();
    if (budget !== undefined) {
      this.memory = { ...this.memory, gpu: budget };
      // Of the memory under this budget.
      device.allocator.restartPeak();
    }
    this.#on = await makeOnDevice(
      device,
      found,
      this.#choices,
      this.#backing,
      this.durable,
      this.memory.prefetch ?? true,
    );
    if (found === this.#fit) return;
    this.#fit = found;
    this.#warmUp = undefined;
    this.#schedules = schedulesFor(found, this.memory.policy ?? 'planned');
  }

  /** Frees every buffer and removes the file, behind what is under way; what comes later fails. The device stays open. */
  async close(): Promise<void> {
    await this.exclusive(async () => {
      this.#closed = true;
      await this.executor.settle();
    }).catch(() => {});
    // A value on its way down is in staging until it has arrived.
    await this.executor.abandon();
    this.#on.release();
    await this.#backing.close();
  }
}

export function limitsOf({ adapter }: Device): BufferLimits {
  return { binding: adapter.limits.maxStorageBufferBindingSize, buffer: adapter.limits.maxBufferSize };
}

/** After the GPU ran out of memory that is what went wrong, not that nothing fits into less. */
function fitOr(exhausted: OutOfMemory | undefined, work: () => Fit): Fit {
  try {
    return work();
  } catch (refused) {
    throw exhausted ?? refused;
  }
}

/** What all model data on the GPU needs, or as much of it as there is; undefined when there is enough. */
async function autoBudget(device: Device, workload: Workload): Promise<number | undefined> {
  const { peak } = fitMemory(workload, limitsOf(device), undefined, false);
  const found = await probeMemory(device, peak);
  return found < peak ? Math.floor(found * SHRINK) : undefined;
}

const schedulesFor = ({ passes, slots }: Fit, policy: Policy): ReadonlyMap<Pass, Schedule> =>
  new Map(passes.map((pass) => [pass, schedule(pass, slots, policy)]));
