// `Trial`: one kernel's operands on scratch buffers of a device, to time its variants on.

import type { Device } from '../../gpu/device.ts';
import { type BoundDispatch, type BufferRange, encodeDispatch } from '../../gpu/dispatch.ts';
import { ELEMENT_TYPES, type Kernel, type StoredOperands, type Variant } from '../../kernels/kernel.ts';
import { readingNarrow, storedBytes } from '../../kernels/stored.ts';
import { assert, Stopped } from '../../util/errors.ts';
import { Scratch } from './scratch.ts';

/** A trial's round repeats the dispatch for about so long, so that the clock's grain does not matter. */
const TRIAL_MS = 4;
/** It repeats it for so many times what an answer alone takes, too: a browser may look only now and then whether the GPU is done. */
const TRIAL_ANSWERS = 8;
/** A round is no longer than this: more is not worth a choice. */
const MOST_TRIAL_MS = 250;
/** A round has no more dispatches than these. */
const MOST_DISPATCHES = 1024;
const TRIAL_ROUNDS = 3;
/** A variant that took so many times what the fastest takes needs no further round: trials are waited for before a first step. */
const BEATEN = 1.5;
/** In the first round, before a GPU computes as fast as it can. */
const BEATEN_AT_FIRST = 4;

// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
type AnyKernel = Kernel<any>;

/** A variant that is being timed. */
interface Timed {
  readonly name: string;
  readonly bound: BoundDispatch;
  /** Dispatches of a round. */
  readonly count: number;
  /** Milliseconds of a dispatch, of the rounds that count. */
  ms: number;
}

/** Those that take less than so many times what the fastest takes. */
function notBeaten(timed: Timed[], times: number): Timed[] {
  const fastest = Math.min(...timed.map(({ ms }) => ms));
  return timed.filter(({ ms }) => ms <= times * fastest);
}

export class Trial {
  readonly #device: Device;
  readonly #kernel: AnyKernel;
  readonly #problem: object;
  readonly #stored: StoredOperands;
  readonly #together: readonly string[];
  readonly #scratch: Scratch;
  readonly #operands: Record<string, BufferRange> = {};
  /** Milliseconds of the answer that nothing was computed. */
  #answer: number | undefined;

  /** Errors: HoldfastError where an operand's buffer cannot be had; none is left of the others then. */
  static async open(
    device: Device,
    kernel: AnyKernel,
    problem: object,
    stored: StoredOperands = {},
    together: readonly string[] = [],
  ): Promise<Trial> {
    const trial = new Trial(device, kernel, problem, stored, together);
    try {
      for (const [name, { size, type }] of Object.entries(kernel.operands(problem))) {
        const narrow = stored[name];
        const bytes = narrow ? storedBytes(narrow, size) : size * ELEMENT_TYPES[type];
        trial.#operands[name] = trial.#scratch.room(name, bytes);
      }
      return trial;
    } catch (error) {
      trial.close();
      throw error;
    }
  }

  private constructor(
    device: Device,
    kernel: AnyKernel,
    problem: object,
    stored: StoredOperands,
    together: readonly string[],
  ) {
    this.#device = device;
    this.#kernel = kernel;
    this.#problem = problem;
    this.#stored = stored;
    this.#together = together;
    this.#scratch = new Scratch(device, (part) => `trial ${part}`);
  }

  /** Milliseconds of one dispatch: the best of a few rounds, each long enough to measure. */
  async time(variant: Variant<object>): Promise<number> {
    const timed = await this.#firstRound(variant);
    let best = timed.ms;
    for (let round = 1; round < TRIAL_ROUNDS; round++) best = Math.min(best, await this.#round(timed));
    return best;
  }

  /**
   * The name of the variant that takes least. Each has its rounds among those of the others, and its first is not compared: a GPU
   * that has rested computes slowly for a while. Errors: Stopped, where `signal` says so.
   */
  async fastest(variants: readonly Variant<object>[], signal?: AbortSignal): Promise<string> {
    const check = () => {
      if (signal?.aborted) throw new Stopped('stopped while kernels were measured, before the first step; start again');
    };
    let timed: Timed[] = [];
    for (const variant of variants) {
      check();
      timed.push(await this.#firstRound(variant));
    }
    timed = notBeaten(timed, BEATEN_AT_FIRST);
    for (const one of timed) one.ms = Number.POSITIVE_INFINITY;
    for (let round = 1; round < TRIAL_ROUNDS; round++) {
      for (const one of timed) {
        check();
        one.ms = Math.min(one.ms, await this.#round(one));
      }
      timed = notBeaten(timed, BEATEN);
    }
    const [best] = timed.sort((one, other) => one.ms - other.ms);
    assert(best, `no variant of ${this.#kernel.name} was given`);
    return best.name;
  }

  /** Compiles it, finds how many dispatches make a round, and times one. */
  async #firstRound(variant: Variant<object>): Promise<Timed> {
    const { pipelines, traits } = this.#device;
    const dispatch = variant.dispatch(this.#problem, traits);
    const label = `${this.#kernel.name}.${variant.name}`;
    const shader = readingNarrow(dispatch.shader, this.#stored);
    const pipeline = await pipelines.get(label, shader, dispatch.constants, this.#together);
    const bound = this.#scratch.bind(label, pipeline, dispatch, this.#operands);
    await this.#run(bound, 1); // compiles on the driver's side
    this.#answer ??= Math.min(await this.#run(bound, 0), await this.#run(bound, 0));
    const wanted = Math.min(MOST_TRIAL_MS, Math.max(TRIAL_MS, TRIAL_ANSWERS * this.#answer));
    let count = 1;
    let ms = await this.#run(bound, count);
    // Again, and with more, where most of the time was that of the answer. Half of what is wanted is enough.
    while (ms < wanted / 2 && count < MOST_DISPATCHES) {
      count = Math.min(MOST_DISPATCHES, Math.ceil((count * wanted) / Math.max(ms, 0.01)));
      ms = await this.#run(bound, count);
    }
    return { name: variant.name, bound, count, ms: ms / count };
  }

  /** Milliseconds of a dispatch in one round more. */
  async #round({ bound, count }: Timed): Promise<number> {
    return (await this.#run(bound, count)) / count;
  }

  /** Milliseconds of so many dispatches, and of the answer that they are done. */
  async #run(bound: BoundDispatch, count: number): Promise<number> {
    const encoder = this.#device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let i = 0; i < count; i++) encodeDispatch(pass, bound);
    pass.end();
    const start = performance.now();
    this.#device.submit(encoder);
    await this.#device.idle();
    return performance.now() - start;
  }

  close(): void {
    this.#scratch.close();
  }
}
