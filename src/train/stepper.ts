// Steps under way: encodes them one after the other, hears when each is done, and does again what a lost device
// took. In a durable session a step commits chunk by chunk: the parameter, and both moments, of one index arrive
// below together. So at any instant what lies below is the state before the oldest step under way, but for the
// indices that it committed, and for the others their gradients lie there too: the update can be finished.

import type { Batch } from '../data/batches.ts';
import type { Pass } from '../engine/pass.ts';
import type { Session } from '../engine/session.ts';
import type { Device } from '../gpu/device.ts';
import { ReadbackRing } from '../gpu/readback.ts';
import type { StepScalars } from '../graph/operators/optimizer.ts';
import { STATE } from '../kernels/step-control.ts';
import { type Deferred, deferred } from '../util/deferred.ts';
import { assert } from '../util/errors.ts';
import type { TensorSource } from '../util/tensor-source.ts';

/** Steps whose numbers may be under way at once. */
export const READS_IN_FLIGHT = 4;
export const READBACK_BYTES = READS_IN_FLIGHT * STATE.size * 4;

/** Of the memory in use: what is tried after the GPU ran out of it. */
const SHRINK = 0.8;

/** One step, as data: whatever is needed to do it again. */
export interface StepJob {
  readonly batches: readonly Batch[];
  /** See HYPER. */
  readonly hyper: Float32Array<ArrayBuffer>;
  readonly lossScale: number;
  /** Called with the complete gradients before they are used up. */
  readonly inspect?: ((gradients: TensorSource) => Promise<void>) | undefined;
}

interface UnderWay {
  readonly job: StepJob;
  /** Indices whose new state lies below. */
  readonly committed: Set<number>;
  /** See STATE; known once the GPU has decided. */
  state: Float32Array<ArrayBuffer> | undefined;
  readonly done: Deferred<Float32Array<ArrayBuffer>>;
}

export interface StepperInputs {
  readonly scalars: StepScalars;
  writeTokens(batch: Batch): void;
  /** Writes what lives as long as the device: tables, masks. */
  writeConstants(): void;
}

export class Stepper {
  readonly #session: Session;
  readonly #pass: Pass;
  readonly #inputs: StepperInputs;
  #ring: ReadbackRing;
  /** The step control's numbers before the oldest step under way. */
  #state = new Float32Array(STATE.size);
  readonly #underWay: UnderWay[] = [];
  #recovery: Promise<void> | undefined;
  /** Devices that were lost. */
  recoveries = 0;

  constructor(session: Session, pass: Pass, inputs: StepperInputs) {
    this.#session = session;
    this.#pass = pass;
    this.#inputs = inputs;
    this.#ring = makeRing(session);
    session.recover = (error, device) => this.#recover(error, device);
    inputs.writeConstants();
  }

  /** The step control's numbers after the last step that is done. */
  get state(): readonly number[] {
    return [...this.#state];
  }

  restore(state: readonly number[]): void {
    assert(this.#underWay.length === 0, 'steps are under way');
    this.#state = Float32Array.from(state);
    this.#session.write(this.#inputs.scalars.state, this.#state);
  }

  /** Starts a step; the promise brings the step control's numbers when the GPU has decided. */
  start(job: StepJob): Promise<Float32Array<ArrayBuffer>> {
    const step: UnderWay = { job, committed: new Set(), state: undefined, done: deferred() };
    this.#underWay.push(step);
    void this.#attempt(step);
    return step.done.promise;
  }

  /** Waits until the state of every step so far is final, and below where the session is durable. */
  async settle(): Promise<void> {
    await Promise.all(this.#underWay.map(({ done }) => done.promise));
    await this.#session.steady(() => this.#session.executor.settle());
  }

  /** Goes on with another budget, between steps. Errors: HoldfastError for one that the chunks do not fit into. */
  async resize(budget: number): Promise<void> {
    await this.settle();
    const session = this.#session;
    await session.exclusive(() => session.executor.empty());
    this.#ring.destroy();
    try {
      await session.moveTo(session.device, budget);
    } finally {
      this.#ring = makeRing(session);
    }
    this.#inputs.writeConstants();
    session.write(this.#inputs.scalars.state, this.#state);
  }

  destroy(): void {
    this.#ring.destroy();
  }

  async #attempt(step: UnderWay): Promise<void> {
    const { device } = this.#session;
    try {
      const state = await this.#session.exclusive(() => this.#encode(step));
      step.state = new Float32Array(await state());
      this.#session.executor.check();
      this.#settleOldest();
      step.done.resolve(step.state);
    } catch (error) {
      try {
        await this.#recover(error, device);
      } catch (reason) {
        this.#underWay.splice(this.#underWay.indexOf(step), 1);
        step.done.reject(reason);
      }
    }
  }

  /** Encodes and submits a step. Returns a function that brings its numbers. */
  async #encode(step: UnderWay): Promise<() => Promise<ArrayBuffer>> {
    const { executor } = this.#session;
    const { update, starts } = this.#pass;
    assert(update, 'a step updates');
    this.#writeScalars(step.job);
    const { warmUp } = this.#session;
    warmUp?.begin(executor);
    await executor.begin(warmUp?.schedule ?? this.#session.scheduleOf(this.#pass));
    for (const [i, batch] of step.job.batches.entries()) {
      executor.flush();
      this.#inputs.writeTokens(batch);
      await this.#run(step, starts[i] as number, starts[i + 1] ?? update.decided);
    }
    await step.job.inspect?.(this.#session.valuesNow('gradient'));
    let read: (() => Promise<ArrayBuffer>) | undefined;
    let arrives: Promise<ArrayBuffer> | undefined;
    const source = this.#session.bufferOf(this.#inputs.scalars.state);
    executor.command(
      (encoder) => {
        read = this.#ring.copy(encoder, source);
      },
      () => {
        // Asked for before any of the update's values: so it is known before one of them is committed.
        arrives = (read as () => Promise<ArrayBuffer>)();
        arrives.then(
          (bytes) => {
            step.state ??= new Float32Array(bytes);
          },
          () => {},
        );
      },
    );
    await this.#run(step, update.decided, this.#pass.trace.moments.length);
    executor.flush();
    if (warmUp) this.#session.endWarmUpStep();
    return () => arrives as Promise<ArrayBuffer>;
  }

  /** Moments `from` to `to`, and behind them, in a durable session, what they completed goes down. */
  async #run(step: UnderWay, from: number, to: number): Promise<void> {
    const { executor, durable, map } = this.#session;
    const { update } = this.#pass;
    const { warmUp, device } = this.#session;
    const run = (first: number, end: number): Promise<void> =>
      warmUp ? warmUp.run(executor, () => device.idle(), first, end) : executor.run(first, end);
    if (!durable || !update) {
      await run(from, to);
      return;
    }
    const gradients = map.list('gradient').first;
    let done = from;
    for (const { moment, index, updated } of completions(this.#pass)) {
      if (moment < from || moment >= to) continue;
      await run(done, moment + 1);
      done = moment + 1;
      if (updated) await this.#commit(step, index, moment);
      else await executor.keepBelow([gradients + index], moment);
    }
    await run(done, to);
  }

  #commit(step: UnderWay, index: number, moment: number): Promise<void> {
    const { executor, map } = this.#session;
    const chunks = (['parameter', 'moment1', 'moment2'] as const).map((kind) => map.list(kind).first + index);
    return executor.keepBelow(chunks, moment, () => {
      step.committed.add(index);
      this.#session.forget(map.list('gradient').first + index);
      this.#settleOldest();
    });
  }

  #writeScalars({ hyper, lossScale }: StepJob): void {
    this.#session.write(this.#inputs.scalars.hyper, hyper);
    this.#session.write(this.#inputs.scalars.lossScale, new Float32Array([lossScale]));
  }

  /** Steps that nothing can undo any more are not remembered. */
  #settleOldest(): void {
    const { durable, map } = this.#session;
    for (;;) {
      const [oldest] = this.#underWay;
      if (!oldest?.state) return;
      if (durable && oldest.committed.size < map.trainable.chunks) return;
      this.#state = oldest.state;
      this.#underWay.shift();
    }
  }

  // ---- A lost device ----------------------------------------------------------------------------------

  /** Goes on with a new device in place of `device`, once for all who met the loss; or throws the error. */
  async #recover(error: unknown, device: Device): Promise<void> {
    // The loss of a device shows a turn later than what it broke.
    await new Promise((resolve) => setTimeout(resolve, 0));
    if (!this.#recovery && device === this.#session.device) {
      if (!(device.isLost || device.isExhausted) || !this.#session.durable) {
        device.check();
        throw error;
      }
      this.#recovery = this.#goOn().finally(() => {
        this.#recovery = undefined;
      });
    }
    await this.#recovery;
  }

  async #goOn(): Promise<void> {
    const session = this.#session;
    this.recoveries++;
    const { device, fit } = session;
    // A device that ran out of memory is there still; it must not keep its.
    const budget = device.isExhausted ? Math.floor(fit.peak * SHRINK) : undefined;
    if (!device.isLost) device.close();
    await session.moveTo(await device.reopen(), budget);
    this.#ring = makeRing(session);
    this.#inputs.writeConstants();
    this.#settleOldest();
    const steps = [...this.#underWay];
    const [oldest] = steps;
    if (oldest && oldest.committed.size > 0) {
      session.write(this.#inputs.scalars.state, oldest.state as Float32Array<ArrayBuffer>);
      await session.exclusive(() => this.#finish(oldest));
      steps.shift();
    } else session.write(this.#inputs.scalars.state, this.#state);
    for (const step of steps) void this.#attempt(step);
  }

  /** The rest of an update whose gradients lie below. */
  async #finish(step: UnderWay): Promise<void> {
    const { executor } = this.#session;
    this.#writeScalars(step.job);
    await executor.begin(this.#session.scheduleOf(this.#pass));
    for (const [index, moment] of (this.#pass.update?.adamw ?? []).entries()) {
      if (step.committed.has(index)) continue;
      await executor.run(moment, moment + 1);
      await this.#commit(step, index, moment);
    }
    executor.flush();
  }
}

function makeRing({ device }: Session): ReadbackRing {
  return new ReadbackRing(device.allocator, 'step', STATE.size * 4, READS_IN_FLIGHT);
}

interface Completion {
  readonly moment: number;
  readonly index: number;
  /** Its update, or its gradient. */
  readonly updated: boolean;
}

const completionsOf = new WeakMap<Pass, readonly Completion[]>();

/** The moments at which something is complete, in order. */
function completions(pass: Pass): readonly Completion[] {
  const known = completionsOf.get(pass);
  if (known) return known;
  const { gradient = [], adamw = [] } = pass.update ?? {};
  const found = [
    ...gradient.map((moment, index) => ({ moment, index, updated: false })),
    ...adamw.map((moment, index) => ({ moment, index, updated: true })),
  ].sort((a, b) => a.moment - b.moment);
  completionsOf.set(pass, found);
  return found;
}
