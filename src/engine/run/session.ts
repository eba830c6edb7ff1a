// `Session`: everything that shares one device's memory: the chunks of a model in their tiers, the programs that use
// them, and the executor that runs passes over them, one at a time. Made once, within the budget or not at all; what it
// predicted is what it allocates.
//
// A lost device takes with it what exists only on the GPU. A durable session keeps the state of every step below as
// well, so that a new device goes on from there.

import type { Device } from '../../gpu/device.ts';
import type { ReadbackRing } from '../../gpu/readback.ts';
import type { Tensor, TensorElements } from '../../graph/program.ts';
import type { HostUpdater } from '../../kernels/host-adamw.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import type { Below } from '../../memory/tiers/below.ts';
import type { Threads } from '../../runtime/host.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, finishing, HoldfastError, messageOf } from '../../util/errors.ts';
import { show } from '../../util/json.ts';
import type { KernelChoices } from '../compile/choices.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass, Passes } from '../compile/pass.ts';
import { stepOf } from '../compile/pass-figures.ts';
import type { Rates } from '../compile/rates.ts';
import type { PassSchedule } from '../compile/schedule.ts';
import type { Workload } from '../compile/workload.ts';
import type { Ranks } from '../ranks/ranks.ts';
import { Adaptation } from './adaptation.ts';
import { type Arrangement, checkMemory, limitsOf, type MemoryOptions } from './arrangement.ts';
import { DeviceMutex, type Kept, Replaced } from './device-mutex.ts';
import type { Executor } from './executor.ts';
import type { LinkLedger } from './link-ledger.ts';
import type { MemoryReport } from './memory-report.ts';
import { ModelValues } from './model-values.ts';
import { openParts, type SessionParts } from './session-parts.ts';
import { type SessionState, StateBuilder } from './state-builder.ts';
import { WarmUp } from './warm-up.ts';

/** Tensors, and what to set them to. */
export type Inputs = readonly (readonly [tensor: Tensor, data: TensorElements])[];

/** What becomes of work that met an error on a device. */
export interface LossRecovery {
  /** Resolves when there is another device to do it again on. Errors: `error`, where nothing is lost; why nothing can go on. */
  recover(error: unknown, device: Device): Promise<void>;
}

export class Session<P extends Passes = Passes> {
  readonly mutex = new DeviceMutex();
  /** Its model data, by the names of tensors. */
  readonly values: ModelValues;
  readonly #below: Below;
  readonly #ledger: LinkLedger;
  readonly #updater: HostUpdater;
  readonly #builder: StateBuilder<P>;
  #state: SessionState<P>;
  #epoch = 0;
  #warmUp: WarmUp | undefined;
  readonly #adaptation: Adaptation | undefined;
  #recovery: LossRecovery = {
    async recover(error, device) {
      await device.isGone(error);
      device.check();
      throw error;
    },
  };
  #over: { readonly reason: unknown } | undefined;
  #closing: Promise<void> | undefined;

  /**
   * `threads`: what is computed on the host is computed there. Errors: HoldfastError for a budget that is too small, naming
   * the smallest that works.
   */
  static async open<P extends Passes>(
    device: Device,
    workload: Workload<P>,
    choices: KernelChoices,
    memory: MemoryOptions = {},
    threads?: Threads,
    ranks?: Ranks,
  ): Promise<Session<P>> {
    return new Session(await openParts(workload, { device, choices, memory, threads, ranks }));
  }

  private constructor({ state, choices, below, ledger, updater, ranks }: SessionParts<P>) {
    this.#state = state;
    this.#below = below;
    this.#ledger = ledger;
    this.#updater = updater;
    this.#builder = new StateBuilder(choices, below, ledger, updater, ranks?.step);
    const { fit, memory } = state;
    this.values = new ModelValues(this, ranks);
    this.#adaptation = Adaptation.of(fit, memory, ranks === undefined);
    const step = stepOf(fit.passes);
    const warmsUp = fit.slots < fit.residents || this.#adaptation;
    if (step && warmsUp) this.#warmUp = new WarmUp(step, fit, memory.policy ?? 'planned');
  }

  /** As it is now: the budget may change on the way. */
  get memory(): Readonly<MemoryOptions> {
    return this.#state.memory;
  }
  get fit(): Fit<P> {
    return this.#state.fit;
  }
  get map(): ChunkMap {
    return this.fit.map;
  }
  get device(): Device {
    return this.#state.deviceState.device;
  }
  get executor(): Executor {
    return this.#state.deviceState.executor;
  }
  /** For small results that come back while the GPU works on. */
  get ring(): ReadbackRing {
    return this.#state.deviceState.ring;
  }

  /**
   * Counts moves, to another device or another budget. What was written into persistent tensors in an earlier one is
   * gone, save constants and what was given to `hold`.
   */
  get epoch(): number {
    return this.#epoch;
  }

  readonly scheduleOf = (pass: Pass): PassSchedule => this.#state.schedules.get(pass) as PassSchedule;

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
    const { diskReadBytes, waits } = this.#below.ledger;
    const loads = warmUp.schedule.plan.moments.reduce((sum, { load }) => sum + load.length, 0);
    if (this.memory.prefetch ?? true) {
      const readAhead = warmUp.readAhead(diskReadBytes / waits.diskReadMs, loads / warmUp.schedule.plan.steps);
      this.#state = { ...this.#state, readAhead };
      this.executor.readAhead = readAhead;
    }
    const { rates } = limitsOf(this.device, this.memory);
    this.#planBy(this.#adaptation?.warmedUp(warmUp.groups, rates));
  }

  /** A step is done; `goesOn`: another one is under way. Where the last ones took longer than planned, another plan may follow. */
  stepEnded(goesOn: boolean): void {
    if (this.#warmUp) return;
    const limits = limitsOf(this.device, this.memory);
    this.#planBy(this.#adaptation?.stepEnded(performance.now(), goesOn, this.fit, limits));
  }

  report(): MemoryReport {
    const { gpu, host, disk } = this.memory;
    const { ledger } = this.#below;
    return {
      gpu: { budget: gpu === 'auto' ? undefined : gpu, predictedPeak: this.fit.peak },
      host: { budget: host, peak: ledger.hostPeak },
      disk: { budget: disk?.limit, peak: ledger.diskPeak },
      link: structuredClone(this.#ledger),
      below: ledger,
      ...(this.#adaptation?.planned && { plannedAgain: this.#adaptation.planned }),
    };
  }

  /** Why nothing can be asked of this session any more. */
  get over(): { readonly reason: unknown } | undefined {
    return this.#over;
  }

  /** Errors: why the session is over. */
  check(): void {
    if (this.#over) throw this.#over.reason;
  }

  /** From now on everything fails for this reason, or for an earlier one. */
  end(reason: unknown): void {
    this.#over ??= { reason };
    this.executor.stop(this.#over.reason);
  }

  /** Runs `work` when everything before it has been encoded: passes never mix. Errors: the session is over. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return this.mutex.exclusive(() => {
      this.check();
      return work();
    });
  }

  /**
   * As `exclusive`, and repeated on another device where this one is lost meanwhile: the work must be one that can be. `what` names
   * it in messages: "the GPU device was lost during ...".
   */
  runWithRetry<T>(what: string, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const attempt = async () => {
        const { device } = this;
        try {
          resolve(await this.exclusive(work));
        } catch (error) {
          // It is attempted again.
          if (error instanceof Replaced) return;
          const reason = await this.#recovery.recover(error, device).then(
            () => undefined,
            (reason: unknown) => ({ reason }),
          );
          if (!reason) return;
          reject(reason.reason);
        }
        this.mutex.done(kept);
      };
      const kept: Kept = { what, attempt: () => void attempt() };
      this.mutex.keep(kept);
    });
  }

  /** From now on work that meets a lost device goes on by this; without it, the error is its end. */
  recoverBy(recovery: LossRecovery): void {
    this.#recovery = recovery;
  }

  /**
   * Runs a pass on these inputs, from its first moment to its last: all of it is submitted, nothing is waited for but
   * room. Call it within `exclusive`.
   */
  async run(pass: Pass, inputs: Inputs): Promise<void> {
    await this.executor.begin(pass, this.scheduleOf(pass));
    this.feed(inputs);
    await this.executor.run(0, pass.operations.length);
    this.executor.flush();
  }

  /** Sets inputs for what is encoded from now on; what was encoded before has those of before. */
  feed(inputs: Inputs): void {
    this.executor.flush();
    for (const [tensor, data] of inputs) this.write(tensor, data);
  }

  /** Sets a tensor for everything that is not yet submitted, up to the next move. */
  write(tensor: Tensor, data: TensorElements): void {
    this.#state.deviceState.storage.write(tensor, data);
  }

  /** Sets a tensor now, and to what `contents` then says whenever a move has made its buffer anew. */
  hold(tensor: Tensor, contents: () => TensorElements): void {
    this.#builder.contents.set(tensor, contents);
    this.write(tensor, contents());
  }

  bufferOf(tensor: Tensor): GPUBuffer {
    return this.#state.deviceState.storage.range(tensor).buffer;
  }

  /** An output or a persistent tensor. Waits for the queue; call it within `exclusive`. */
  async read(tensor: Tensor): Promise<Float32Array<ArrayBuffer>> {
    const { buffer, offset } = this.#state.deviceState.storage.range(tensor);
    const values = new Float32Array(tensor.size);
    const bytes = new Uint8Array(values.buffer);
    await this.executor.readBuffer(buffer, offset, bytes.length, (piece, at) => bytes.set(piece, at));
    return values;
  }

  /** The value of a chunk below the GPU is of no use any more. */
  forget(chunk: number): void {
    this.executor.copies.forgetBelow(chunk);
  }

  // ---- Moves ------------------------------------------------------------------------------------------

  /**
   * Goes on within another GPU budget, when everything before it is done. Errors: HoldfastError for a budget that these
   * chunks do not fit into; nothing changed then. The same for one that the GPU has not the memory for: then it goes
   * on as before, or within as much as can be had, and the error says so. Where that is too little, the session is over.
   */
  async setBudget(budget: number): Promise<void> {
    if (typeof budget !== 'number')
      throw new HoldfastError(`the GPU budget is ${show(budget)}; it must be a number of bytes`);
    checkMemory({ gpu: budget });
    let tried: Device | undefined;
    return this.runWithRetry(`a change of the GPU budget to ${formatBytes(budget)}`, async () => {
      // The GPU found only while it ran that it has not the memory, and the recovery from that made the budget smaller.
      if (tried?.status === 'exhausted') throw this.#refusal(budget, 'it ran out of memory');
      const arranged = this.#builder.within(budget, this.#state, this.device);
      tried = this.device;
      await this.#rearrange(arranged, budget);
    });
  }

  /** Another plan, by these rates, behind all that is asked for by now: where it saves enough. */
  #planBy(rates: Rates | undefined): void {
    const adaptation = this.#adaptation;
    if (!adaptation || !rates) return;
    const work = async () => {
      const { gpu } = this.memory;
      assert(typeof gpu === 'number', 'what is confined has a budget');
      const from = { ...this.#state, memory: { ...this.memory, rates } };
      const arranged = this.#builder.within(gpu, from, this.device);
      const limits = limitsOf(this.device, from.memory);
      const gain = adaptation.gainOf(arranged.fit, this.fit, limits);
      if (!gain) return;
      await this.#rearrange(arranged, gpu);
      adaptation.made(gain);
    };
    // What was refused leaves the run as it is; what ended it is told to whatever is asked for next.
    this.runWithRetry('a change of the plan', work).catch(() => {});
  }

  /** Two arrangements do not fit at once: the old buffers go first. */
  async #rearrange(arranged: Arrangement<P>, budget: number): Promise<void> {
    // From here on nothing lives on the GPU alone, and nothing there is waited for.
    await this.executor.empty();
    await this.ring.idle();
    const before = this.#state;
    const { device } = this;
    before.deviceState.release();
    try {
      this.#commit(await this.#builder.build(device, arranged));
    } catch (error) {
      // The recovery makes everything as it was.
      if (await device.isGone(error)) throw error;
      try {
        this.#commit(await this.#builder.buildWhatFits(device, before));
      } catch (second) {
        if (!(await device.isGone(second))) this.end(error);
        throw second;
      }
      throw this.#refusal(budget, messageOf(error));
    }
  }

  #refusal(budget: number, why: string): HoldfastError {
    const { peak } = this.fit;
    return new HoldfastError(
      `the GPU has not the memory for a budget of ${formatBytes(budget)} (${why}); ` +
        `the run goes on within ${formatBytes(peak)}, ask for less than was refused`,
    );
  }

  /**
   * Goes on with another device after the loss of this one: everything is made anew, and model data comes from the tiers
   * below. Where that has less memory, or where the one before ran out of it, within a smaller budget. Errors:
   * HoldfastError where nothing fits.
   */
  async moveTo(device: Device): Promise<void> {
    const before = this.device;
    // A device that ran out of memory is there still; it must not keep its.
    if (before.status !== 'lost') before.close();
    await this.executor.abandon();
    const arranged = before.status === 'exhausted' ? this.#builder.smaller(this.#state, device) : this.#state;
    this.#commit(await this.#builder.buildWhatFits(device, arranged));
  }

  /** The smallest budget that `setBudget` takes, in bytes. */
  get leastBudget(): number {
    return this.#builder.leastBudget(this.#state, this.device);
  }

  #commit(state: SessionState<P>): void {
    if (state.fit !== this.fit) this.#warmUp = undefined;
    this.#state = state;
    this.#epoch++;
  }

  // ---- The end ----------------------------------------------------------------------------------------

  /** Frees every buffer and removes the file, behind what is under way; what comes later fails. The device stays open. */
  close(): Promise<void> {
    this.#closing ??= finishing(
      () => this.#finish(),
      // A value on its way down is in staging until it has arrived.
      () => this.executor.abandon(),
      () => this.#state.deviceState.release(),
      () => this.#below.close(),
      () => this.#updater.end?.(),
    );
    return this.#closing;
  }

  /** The last work of all, behind recoveries that came between. Errors of earlier work were told where it was awaited. */
  async #finish(): Promise<void> {
    const last = async () => {
      this.#over ??= { reason: new HoldfastError('this trainer or generator was closed; make another') };
      await this.executor.settle();
      await this.ring.idle();
    };
    const isReplaced = (error: unknown) => error instanceof Replaced;
    while (await this.mutex.exclusive(last).then(() => false, isReplaced));
  }
}
