// Several texts from a model at once: each step of the model takes a token, or a block of them, of every text, so that its
// weights are read, and moved, once for all of them. Each text has its own positions and its own keys and values.
//
// Invariant: each text is the one that it would be by itself. A text goes through the model in the same pieces as alone, where a
// step takes pieces of one length; a text that has none of that length is given any token at its next position, and what that leaves
// in its cache is overwritten by the true one.

import type { Session } from '../../engine/run/session.ts';
import type { Device } from '../../gpu/device.ts';
import type { Model } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { ASYNC_DISPOSE } from '../../util/dispose.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { check, object, show } from '../../util/json.ts';
import type { Random } from '../../util/random.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { continuation, type GenerationOptions, nothingFed, type TokensFed } from './continuation.ts';
import { type Generation, type GenerationPasses, passNameOf } from './generation-workload.ts';
import { type GeneratorOptions, openGeneration } from './generator.ts';
import type { SamplingOptions } from './sampling.ts';

/** How a generator of several texts is made. */
export interface BatchGeneratorOptions extends GeneratorOptions {
  /** Texts at once, 1 or more. */
  readonly batch: number;
}

/** A text that waits for the logits behind its last tokens. */
interface Asked {
  readonly place: number;
  readonly tokensFed: TokensFed;
  readonly resolve: (logits: Float32Array) => void;
  readonly reject: (error: unknown) => void;
}

/** A text in a round: what is still to go through the model, and from which position on. */
interface Lane {
  readonly asked: Asked;
  readonly pieces: (readonly number[])[];
  position: number;
}

/** Writes several texts with a model at once. */
export class BatchGenerator {
  readonly #session: Session<GenerationPasses>;
  readonly #model: Model;
  readonly #generation: Generation;
  readonly #batch: number;
  /** Places of texts that are being written, and the adapter of all of them. */
  readonly #open = new Set<number>();
  #adapter: string | undefined;
  /** Texts that wait for logits, one of each place at most. */
  #waiting: Asked[] = [];
  #isRunning = false;
  #isOver = false;
  /** By place, the text of which keys and values are in the caches, and the move of the session since which they are. */
  #cached: { readonly texts: readonly (TokensFed | undefined)[]; readonly epoch: number } | undefined;

  /** Errors: as `Generator.open`; HoldfastError for a batch that is none. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    options: BatchGeneratorOptions,
  ): Promise<BatchGenerator> {
    check(object({}), options, 'the options of a generator');
    const { batch, ...each } = options;
    if (!Number.isSafeInteger(batch) || batch < 1)
      throw new HoldfastError(`a batch of ${show(batch)} texts: must be a whole number of texts, 1 or more`);
    const { session, generation } = await openGeneration(device, model, weights, each, batch);
    return new BatchGenerator(session, model, generation, batch);
  }

  private constructor(session: Session<GenerationPasses>, model: Model, generation: Generation, batch: number) {
    this.#session = session;
    this.#model = model;
    this.#generation = generation;
    this.#batch = batch;
  }

  /** Tokens that each text sees: a longer one is cut at its beginning. */
  get capacity(): number {
    return this.#generation.capacity;
  }

  /** The device in use. Where it is lost, texts end with that error. */
  get device(): Device {
    return this.#session.device;
  }

  /**
   * As `Generator.generate`. As many texts as the batch has may be written at once, and are to be read side by side: the model goes
   * on when each of them waits for a token, or is closed. Errors: HoldfastError for one more, and for another adapter than
   * that of the others.
   */
  async *generate(
    prompt: Int32Array,
    count: number,
    sampling: SamplingOptions,
    random: Random,
    options: GenerationOptions = {},
  ): AsyncGenerator<number> {
    const place = this.#take(nothingFed(this.#model, options));
    const feed = (tokensFed: TokensFed, ids: readonly number[]) => this.#feed(place, tokensFed, ids);
    try {
      yield* continuation(
        { model: this.#model, capacity: this.capacity, feed },
        prompt,
        count,
        sampling,
        random,
        options,
      );
    } finally {
      this.#open.delete(place);
      this.#runWaiting();
    }
  }

  #take({ adapter }: TokensFed): number {
    if (this.#open.size > 0 && adapter !== this.#adapter)
      throw new HoldfastError(
        `texts of a batch have one adapter: ${this.#adapter} is in use, ${adapter} was asked for`,
      );
    for (let place = 0; place < this.#batch; place++) {
      if (this.#open.has(place)) continue;
      this.#open.add(place);
      this.#adapter = adapter;
      return place;
    }
    throw new HoldfastError(`${this.#batch} texts are being written, which is the batch; read one to its end before`);
  }

  #feed(place: number, tokensFed: TokensFed, ids: readonly number[]): Promise<Float32Array> {
    tokensFed.parts.push([...ids]);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ place, tokensFed, resolve, reject });
      // Texts that are begun together go together.
      queueMicrotask(() => this.#runWaiting());
    });
  }

  #runWaiting(): void {
    if (this.#isRunning || this.#waiting.length === 0) return;
    // Behind the end none is waited for: others may have been left without being closed.
    if (this.#waiting.length < this.#open.size && !this.#isOver) return;
    this.#isRunning = true;
    const asked = this.#waiting;
    this.#waiting = [];
    const end = (tell: (one: Asked, i: number) => void) => {
      this.#isRunning = false;
      for (const [i, one] of asked.entries()) tell(one, i);
    };
    this.#round(asked).then(
      (logits) => end((one, i) => one.resolve(at(logits, i))),
      (error: unknown) => end((one) => one.reject(error)),
    );
  }

  /** The logits (V) of each text. */
  async #round(asked: readonly Asked[]): Promise<Float32Array[]> {
    this.#session.values.check();
    return this.#session.runWithRetry('the writing of texts', async () => {
      const { epoch } = this.#session;
      const there = this.#cached?.epoch === epoch ? this.#cached.texts : [];
      this.#cached = undefined;
      const lanes = asked.map((one): Lane => {
        const { place, tokensFed } = one;
        const isThere = there[place] === tokensFed;
        const before = isThere ? tokensFed.parts.slice(0, -1) : [];
        const position = before.reduce((sum, { length }) => sum + length, 0);
        const pieces = tokensFed.parts.slice(before.length).flatMap((part) => this.#cut(part));
        return { asked: one, pieces, position };
      });
      const logits = await this.#run(lanes);
      const texts: (TokensFed | undefined)[] = [];
      for (const { place, tokensFed } of asked) texts[place] = tokensFed;
      this.#cached = { texts, epoch };
      return logits;
    });
  }

  /** Tokens as they go through the model together: as those of a text by itself. */
  #cut(part: readonly number[]): (readonly number[])[] {
    const pieces: (readonly number[])[] = [];
    for (let done = 0; done < part.length; ) {
      const seq = this.#generation.inputs.find(({ seq }) => seq <= part.length - done)?.seq ?? 1;
      pieces.push(part.slice(done, done + seq));
      done += seq;
    }
    return pieces;
  }

  /** Runs all pieces of each text; returns the logits behind the last ones. */
  async #run(lanes: readonly Lane[]): Promise<Float32Array[]> {
    const { inputs, logits } = this.#generation;
    const found: Float32Array[] = [];
    for (;;) {
      const tokens = inputs.find(({ seq }) => lanes.some(({ pieces }) => pieces[0]?.length === seq));
      if (!tokens) return found;
      const { seq } = tokens;
      const taking = lanes.filter(({ pieces }) => pieces[0]?.length === seq);
      await this.#step(tokens, lanes, taking);
      for (const lane of taking) {
        lane.pieces.shift();
        lane.position += seq;
      }
      const done = taking.filter(({ pieces }) => pieces.length === 0);
      if (done.length === 0) continue;
      const all = await this.#session.read(logits);
      const size = all.length / this.#batch;
      for (const lane of done) {
        const { place } = lane.asked;
        found[lanes.indexOf(lane)] = all.slice(place * size, (place + 1) * size);
      }
    }
  }

  /** A piece of some of the texts. */
  async #step(tokens: Generation['inputs'][number], lanes: readonly Lane[], taking: readonly Lane[]): Promise<void> {
    const { capacity } = this.#generation;
    const { seq, ids, positions, places } = tokens;
    const given = new Int32Array(this.#batch * seq);
    const starts = positions.map(() => 0);
    for (const lane of lanes) starts[lane.asked.place] = lane.position;
    for (const { asked, pieces, position } of taking) {
      assert(position + seq <= capacity, 'the cache is full');
      given.set(at(pieces, 0), asked.place * seq);
    }
    const session = this.#session;
    const adapter = lanes[0]?.asked.tokensFed.adapter;
    const pass = session.fit.passes[passNameOf({ tokens, adapter })];
    assert(pass, `no pass takes ${seq} tokens`);
    const place = (_: unknown, i: number) => Math.min(at(starts, Math.floor(i / seq)) + (i % seq), capacity - 1);
    await session.run(pass, [
      [ids, given],
      ...positions.map((position, i) => [position, Uint32Array.of(at(starts, i))] as const),
      ...(places ? [[places.ids, Int32Array.from(given, place)] as const] : []),
    ]);
  }

  /** Frees every buffer; a text that waits for others ends with an error. */
  async close(): Promise<void> {
    this.#isOver = true;
    await this.#session.close();
    this.#runWaiting();
  }

  /** `await using`: as `close`. */
  [ASYNC_DISPOSE](): Promise<void> {
    return this.close();
  }
}
