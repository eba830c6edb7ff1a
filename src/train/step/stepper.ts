// `Stepper`: the training steps of a session, several under way at once: encodes them one after the other, completes
// each when the GPU is done with it, and does again those that a lost device took.
//
// In a durable session a step commits chunk by chunk: the parameter, and both moments, of one index arrive below
// together, behind all gradients of the step, and before anything of the next one. Invariant: at any instant what lies
// below is the state before the oldest step under way, but for the indices that it committed, and for the others their
// gradients lie there too: the update can be finished.

import { isOnHost } from '../../engine/compile/operations.ts';
import { type Completion, type Pass, type StepPasses, updatesOf } from '../../engine/compile/pass.ts';
import type { ReadbackSize } from '../../engine/compile/workload.ts';
import { type Kept, Replaced } from '../../engine/run/device-mutex.ts';
import type { Inputs, Session } from '../../engine/run/session.ts';
import type { Device } from '../../gpu/device.ts';
import type { Tensor } from '../../graph/program.ts';
import { ELEMENT_TYPES } from '../../kernels/kernel.ts';
import { DECIDED, initialState, SCALER, STATE } from '../../kernels/step-control.ts';
import { at } from '../../util/at.ts';
import { type Deferred, deferred } from '../../util/deferred.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { DeviceRecovery } from './device-recovery.ts';
import { GradientsAside } from './gradients-aside.ts';
import type { StepHooks } from './step-hooks.ts';

/** Steps of a trainer that may be under way at once. */
export const STEP_READS = 4;
/** The numbers of steps, of a step control with so many. */
export const stepReadback = (size: number): ReadbackSize => ({ bytes: size * ELEMENT_TYPES.f32, reads: STEP_READS });

/** Steps that a training loop starts before it waits for the first of them. */
export const STEPS_AHEAD = 2;

/** One step, as data: whatever is needed to do it again. */
export interface StepJob {
  /** Its number in the training. */
  readonly step: number;
  /** For the whole step, its update included. */
  readonly scalars: Inputs;
  /** For each micro-batch. */
  readonly micro: readonly Inputs[];
  /** Called with the complete gradients before they are used up. */
  readonly inspect?: StepHooks['inspect'];
  readonly recorded?: StepHooks['recorded'];
}

interface UnderWay {
  readonly number: number;
  readonly job: StepJob;
  readonly kept: Kept;
  /** Whether what it makes goes below as well: another budget may change that for steps behind it. */
  durable: boolean;
  /** Of what was completed, the last index: its new state lies below. */
  readonly committed: Set<number>;
  /** See STATE; known once the GPU has decided. */
  state: Float32Array<ArrayBuffer> | undefined;
  /** What `state` will be; undefined until the step is submitted. */
  numbers: Promise<Float32Array<ArrayBuffer>> | undefined;
  readonly done: Deferred<Float32Array<ArrayBuffer>>;
}

export class Stepper {
  readonly #session: Session<StepPasses>;
  /** Where the step control's numbers are on the GPU. */
  readonly #control: Tensor;
  /** The step control's numbers before the oldest step under way. */
  #state: Float32Array<ArrayBuffer>;
  /** Of the step behind the last that is done; undefined before one is. */
  #next: number | undefined;
  /** See `unskipped`. */
  #unskipped: { readonly step: number; readonly state: Float32Array<ArrayBuffer> } | undefined;
  readonly #underWay: UnderWay[] = [];
  #started = 0;
  /** The step that was started last. */
  #last: number | undefined;
  readonly #recovery: DeviceRecovery;

  constructor(session: Session<StepPasses>, control: Tensor) {
    this.#session = session;
    this.#control = control;
    this.#state = initialState(control.size);
    this.#recovery = new DeviceRecovery(session, {
      place: () => this.#place,
      moveTo: (device) => this.#moveTo(device),
    });
    session.recoverBy(this.#recovery);
    session.hold(control, () => this.#finishing?.state ?? this.#state);
  }

  /** The step control's numbers after the last step that is done, those that a next step needs. */
  get state(): readonly number[] {
    return lastingOf(this.#state);
  }

  /** The number of the step that goes on from `state`; undefined where none was done since the start or `restore`. */
  get next(): number | undefined {
    return this.#next;
  }

  /** Where the last step was skipped: the first of those in a row, and the step control's numbers before it. */
  get unskipped(): { step: number; control: number[] } | undefined {
    return this.#unskipped && { step: this.#unskipped.step, control: lastingOf(this.#unskipped.state) };
  }

  /** Devices that were lost. */
  get recoveries(): number {
    return this.#recovery.losses;
  }

  /** Of this budget: another one may treat activations in another way. */
  get #pass(): Pass {
    return this.#session.fit.passes.step;
  }

  /** Errors: HoldfastError while steps are under way, and when the session is over. */
  restore(state: readonly number[]): void {
    this.#session.check();
    if (this.#underWay.length > 0) throw new HoldfastError('steps are under way; await them before restore: settle');
    // Steps so far may have been computed in another width, with a scale of gradients or without.
    const own = initialState(this.#control.size);
    own.set(state.slice(0, own.length));
    this.#state = own;
    this.#next = undefined;
    this.#unskipped = undefined;
    this.#session.write(this.#control, this.#state);
  }

  /** Starts a step; the promise brings the step control's numbers when the GPU has decided. */
  start(job: StepJob): Promise<Float32Array<ArrayBuffer>> {
    const step: UnderWay = {
      number: this.#started++,
      job,
      kept: { what: `step ${job.step}`, attempt: () => void this.#attempt(step) },
      durable: false,
      committed: new Set(),
      state: undefined,
      numbers: undefined,
      done: deferred(),
    };
    this.#underWay.push(step);
    this.#last = job.step;
    this.#session.mutex.keep(step.kept);
    return step.done.promise;
  }

  /** Waits until the state of every step so far is final, and below where the session is durable. */
  async settle(): Promise<void> {
    await Promise.all(this.#underWay.map(({ done }) => done.promise));
    await this.#session.runWithRetry('the end of steps', () => this.#session.executor.settle());
  }

  async #attempt(step: UnderWay): Promise<void> {
    // The recovery finishes it.
    if (step === this.#finishing) return;
    const { device } = this.#session;
    try {
      const numbers = await this.#session.exclusive(() => this.#encode(step));
      await numbers();
      this.#settleOldest();
      this.#tell();
    } catch (error) {
      // It is attempted again.
      if (error instanceof Replaced) return;
      await this.#recovery.recover(error, device).catch((reason: unknown) => this.#fail(step, reason));
    }
  }

  /**
   * Steps whose numbers are there are done in their order. Numbers may come in another: Firefox maps what was asked for
   * later now and then first.
   */
  #tell(): void {
    for (const { state, done } of this.#underWay) {
      if (!state) return;
      done.resolve(state);
    }
  }

  /** The oldest step, where it was committed in part. */
  get #finishing(): UnderWay | undefined {
    const [oldest] = this.#underWay;
    return oldest && oldest.committed.size > 0 ? oldest : undefined;
  }

  /** Nothing that follows may run on a step that was done in part. */
  #fail(step: UnderWay, reason: unknown): void {
    this.#session.end(reason);
    this.#session.mutex.done(step.kept);
    step.done.reject(reason);
    // Those behind it may have their numbers, and wait for it to be done.
    for (const later of this.#underWay) if (later.number > step.number) later.done.reject(reason);
  }

  /** Encodes and submits a step. Returns a function that brings its numbers. */
  async #encode(step: UnderWay): Promise<() => Promise<Float32Array<ArrayBuffer>>> {
    const { executor } = this.#session;
    try {
      return await this.#encodeOn(step);
    } catch (error) {
      // At once: the next in turn is not to find it in part.
      executor.stop(error);
      throw error;
    }
  }

  async #encodeOn(step: UnderWay): Promise<() => Promise<Float32Array<ArrayBuffer>>> {
    const { executor, ring } = this.#session;
    const { update, starts, inputs: ofEach } = this.#pass;
    assert(update, 'a step updates');
    assert(step.committed.size === 0, 'a step that was committed in part is finished, not repeated');
    step.state = undefined;
    step.numbers = undefined;
    step.durable = this.#session.fit.durable;
    await ring.room();
    executor.check();
    this.#session.feed(step.job.scalars);
    const { warmUp } = this.#session;
    warmUp?.begin(executor);
    const recorder = step.job.recorded && !warmUp ? executor.startRecording(this.#pass, 1) : undefined;
    await executor.begin(this.#pass, warmUp?.schedule ?? this.#session.scheduleOf(this.#pass));
    for (const [i, inputs] of step.job.micro.entries()) {
      const own = ofEach?.[i];
      this.#session.feed(own ? inputs.map(([tensor, data]) => [own.get(tensor) ?? tensor, data]) : inputs);
      await this.#run(step, at(starts, i), starts[i + 1] ?? update.decided);
    }
    const { inspect } = step.job;
    const keepsAside = inspect && this.#session.fit.workload.inBackward;
    const aside = keepsAside ? new GradientsAside(this.#session) : undefined;
    if (!aside) await inspect?.(await this.#unscaled(this.#session.values.now('gradient')));
    const run = (from: number, to: number) => this.#run(step, from, to);
    const runUpdate = (from: number, to: number) => aside?.run(this.#pass, from, to, run) ?? run(from, to);
    await runUpdate(update.decided, update.known);
    this.#askForNumbers(step);
    const { onHost = update.known } = update;
    if (update.onHost !== undefined) {
      await executor.markDecision();
      assert(step.numbers, 'the numbers of a step that is submitted are on their way');
      executor.decide(step.numbers);
      await runUpdate(update.known, onHost);
    }
    await runUpdate(onHost, this.#pass.trace.moments.length);
    if (aside) await inspect?.(await this.#unscaled(aside.tensors));
    executor.flush();
    if (warmUp) this.#session.endWarmUpStep();
    if (recorder) {
      recorder.end();
      step.job.recorded?.(at(recorder.recordings, 0), recorder.arrived());
    }
    return () => step.numbers as Promise<Float32Array<ArrayBuffer>>;
  }

  /** The step control's numbers come back, as they are behind what is encoded so far. */
  #askForNumbers(step: UnderWay): void {
    const { executor, ring } = this.#session;
    let read: (() => Promise<ArrayBuffer>) | undefined;
    const source = this.#session.bufferOf(this.#control);
    executor.command(
      (encoder) => {
        read = ring.copy(encoder, source);
      },
      () => {
        // Asked for before any of the update's values, which wait for it before they are committed.
        const arrives = (read as () => Promise<ArrayBuffer>)().then((bytes) => {
          executor.check();
          step.state = new Float32Array(bytes);
          // Without a copy below, a step is no more done than its update is encoded: see #attempt.
          if (step.durable) this.#settleOldest();
          return step.state;
        });
        // Of a lost device: `numbers` says so.
        arrives.catch(() => {});
        step.numbers = arrives;
      },
    );
  }

  /** Gradients of the step that is encoded, behind its decision, without the scale that they were rounded with. */
  async #unscaled(found: TensorSource): Promise<TensorSource> {
    if (this.#control.size < DECIDED.size) return found;
    const scale = (await this.#session.read(this.#control))[DECIDED.stepScale] ?? 1;
    return {
      names: found.names,
      async *read(name) {
        for await (const piece of found.read(name)) yield piece.map((value) => value / scale);
      },
    };
  }

  /** Moments `from` to `to`, and behind them, in a durable session, what they completed goes down. */
  async #run(step: UnderWay, from: number, to: number): Promise<void> {
    const { executor, fit, warmUp, device } = this.#session;
    const { update } = this.#pass;
    const run = (first: number, end: number): Promise<void> =>
      warmUp ? warmUp.run(executor, () => device.idle(), first, end) : executor.run(first, end);
    if (!fit.durable || !update) {
      await run(from, to);
      return;
    }
    executor.updated = (index) => this.#committed(step, index);
    let done = from;
    for (const completion of update.completions) {
      const { moment } = completion;
      if (moment < from || moment >= to || isOnHost(at(this.#pass.operations, moment))) continue;
      await run(done, moment + 1);
      done = moment + 1;
      if (moment >= update.decided) await this.#commit(step, completion);
      else {
        const arrived = executor.gradientsSent(completion.chunks);
        await executor.keepBelow(completion.chunks, { sequence: sequenceOf(step, 'gradients'), arrived });
        // What they were rounded from.
        for (const chunk of completion.frees) this.#session.forget(chunk);
      }
    }
    await run(done, to);
  }

  #commit(step: UnderWay, completion: Completion): Promise<void> {
    const { executor } = this.#session;
    const { index, chunks, frees } = completion;
    return executor.keepBelow(chunks, {
      frees,
      sequence: sequenceOf(step, 'commit'),
      known: () => step.numbers,
      arrived: () => this.#committed(step, index),
    });
  }

  /** The new state of an index, and of those that it completes, lies below. */
  #committed(step: UnderWay, index: number): void {
    assert(step.state && step === this.#underWay[0], 'a step is committed in its turn');
    step.committed.add(index);
    const completion = updatesOf(this.#pass).find((found) => found.index === index);
    for (const chunk of completion?.frees ?? []) this.#session.forget(chunk);
    this.#settleOldest();
  }

  /** Steps that nothing can undo any more are not remembered. */
  #settleOldest(): void {
    const updated = new Set(updatesOf(this.#pass).map(({ index }) => index)).size;
    for (;;) {
      const [oldest] = this.#underWay;
      if (!oldest?.state) return;
      if (oldest.durable && oldest.committed.size < updated) return;
      if (oldest.state[STATE.skip] === 0) this.#unskipped = undefined;
      else this.#unskipped ??= { step: oldest.job.step, state: this.#state };
      this.#state = oldest.state;
      this.#next = oldest.job.step + 1;
      this.#underWay.shift();
      this.#session.mutex.done(oldest.kept);
      oldest.done.resolve(oldest.state);
      this.#session.stepEnded(this.#underWay.length > 0);
    }
  }

  // ---- A lost device ----------------------------------------------------------------------------------

  /** What the loss of a device is blamed on. */
  get #place(): string {
    const { oldest } = this.#session.mutex;
    const step = this.#underWay.find(({ kept }) => kept === oldest);
    if (step || !oldest) return oldest?.what ?? 'no work';
    return this.#last === undefined ? oldest.what : `${oldest.what} after step ${this.#last}`;
  }

  /** The new device gets to know what it needs, and does the rest of an update that was committed in part. */
  async #moveTo(device: Device): Promise<void> {
    const session = this.#session;
    // What was on its way may have arrived, and a step with it.
    await session.executor.abandon();
    this.#settleOldest();
    await session.moveTo(device);
    const oldest = this.#finishing;
    if (!oldest) return;
    await this.#finish(oldest);
    oldest.done.resolve(oldest.state as Float32Array<ArrayBuffer>);
  }

  /** The rest of an update whose gradients lie below. */
  async #finish(step: UnderWay): Promise<void> {
    const { executor } = this.#session;
    this.#session.feed(step.job.scalars);
    await executor.begin(this.#pass, this.#session.scheduleOf(this.#pass));
    if (step.state) executor.decide(Promise.resolve(step.state));
    executor.updated = (index) => this.#committed(step, index);
    for (const completion of updatesOf(this.#pass)) {
      const { first, moment, index } = completion;
      if (step.committed.has(index)) continue;
      await executor.run(first, moment + 1);
      if (!isOnHost(at(this.#pass.operations, moment))) await this.#commit(step, completion);
    }
    executor.flush();
  }
}

/** Without what is of its own step alone. */
const lastingOf = (state: Float32Array): number[] => [...state.subarray(0, SCALER.size)];

/** For the link: what a step commits arrives below behind its gradients, and those behind the step before. */
const sequenceOf = ({ number }: UnderWay, part: 'gradients' | 'commit'): number =>
  2 * number + (part === 'commit' ? 1 : 0);
