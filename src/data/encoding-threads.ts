// Texts, encoded: here, or many at once in threads, each of which has the tokenizer for itself; and what keeps them in order.
//
// Invariant: ids do not depend on where they were made. What a thread fails to encode is encoded here: a thread that cannot
// be started, or dies, costs time only.

import type { Host, Thread, Threads } from '../runtime/host.ts';
import { type Deferred, deferred } from '../util/deferred.ts';
import { assert } from '../util/errors.ts';
import type { DocumentTokenizer } from './documents.ts';
import { type Encoded, type EncodingTask, encodeTask } from './encoding-task.ts';
import type { EncodingReply, EncodingWork } from './encoding-thread.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Bytes of text for which a thread is worth being started: it reads the tokenizer first, a second for a large one. */
export const BYTES_A_THREAD = 2 ** 21;
/** Each holds a tokenizer: up to some 100 MB. */
const MOST_THREADS = 4;
/** Tasks that a thread has before it, so that it never waits for the next. */
const TASKS_AHEAD = 2;

/** Encodes texts. */
export interface Encoder {
  /** Tasks that are worth being under way at once. */
  readonly atOnce: number;
  encode(task: EncodingTask): Promise<Encoded>;
  /** Nothing is encoded after it. */
  end(): Promise<void>;
}

/** What encodes. A tokenizer with files can be made again in a thread. */
export type EncodingTokenizer = DocumentTokenizer & Pick<Tokenizer, 'files' | 'identity'>;

/** In threads, where the host has them and texts of so many bytes are worth it. */
export async function encoderFor(
  { threads }: Pick<Host, 'threads'>,
  tokenizer: EncodingTokenizer,
  bytes: number,
): Promise<Encoder> {
  const count = Math.min(threads?.count ?? 1, MOST_THREADS, Math.floor(bytes / BYTES_A_THREAD));
  if (threads && count > 1 && tokenizer.files) return EncodingThreads.start(threads, tokenizer, count);
  return { atOnce: 1, encode: async (task) => encodeTask(tokenizer, task), end: async () => {} };
}

interface Given {
  readonly task: EncodingTask;
  readonly encoded: Deferred<Encoded>;
}

/** A thread, and by number what it was given and has not answered. */
interface Hand {
  readonly thread: Thread;
  readonly given: Map<number, Given>;
}

/** An encoder with threads: a task goes to the one that has the fewest, or is done here. */
class EncodingThreads implements Encoder {
  readonly #tokenizer: EncodingTokenizer;
  readonly #hands = new Set<Hand>();
  readonly atOnce: number;
  #next = 0;

  static async start(threads: Threads, tokenizer: EncodingTokenizer, count: number): Promise<EncodingThreads> {
    const made = new EncodingThreads(tokenizer, count);
    await Promise.all(Array.from({ length: count }, () => made.#start(threads).catch(() => {})));
    return made;
  }

  private constructor(tokenizer: EncodingTokenizer, count: number) {
    this.#tokenizer = tokenizer;
    this.atOnce = count * TASKS_AHEAD;
  }

  async encode(task: EncodingTask): Promise<Encoded> {
    const [hand] = [...this.#hands].sort((a, b) => a.given.size - b.given.size);
    if (!hand) return encodeTask(this.#tokenizer, task);
    const id = this.#next++;
    const encoded = deferred<Encoded>();
    hand.given.set(id, { task, encoded });
    hand.thread.post({ id, task } satisfies EncodingWork);
    return encoded.promise;
  }

  async end(): Promise<void> {
    const hands = [...this.#hands];
    this.#hands.clear();
    await Promise.all(hands.map(({ thread }) => thread.end()));
  }

  async #start(threads: Threads): Promise<void> {
    const { files, identity } = this.#tokenizer;
    const alone = identity.kind === 'byte' || identity.overrides === undefined;
    const given: Hand['given'] = new Map();
    let hand: Hand | undefined;
    let isGone = false;
    const thread = await threads.start('tokenizing', {
      message: (reply) => this.#answered(given, reply as EncodingReply),
      failed: () => {
        isGone = true;
        if (hand) this.#failed(hand);
      },
    });
    if (isGone || !files) return;
    hand = { thread, given };
    this.#hands.add(hand);
    thread.keepAlive(true);
    thread.post({ files, alone } satisfies EncodingWork);
  }

  #answered(all: Hand['given'], { id, encoded }: EncodingReply): void {
    const given = all.get(id);
    // A thread that has failed may answer still: what it had was encoded here.
    if (!given) return;
    all.delete(id);
    if (encoded) given.encoded.resolve(encoded);
    else this.#encodeHere(given);
  }

  /** Its tasks are done all the same. A second word of the same end finds nothing to do. */
  #failed(hand: Hand): void {
    if (!this.#hands.delete(hand)) return;
    void hand.thread.end();
    for (const given of hand.given.values()) this.#encodeHere(given);
    hand.given.clear();
  }

  #encodeHere({ task, encoded }: Given): void {
    try {
      encoded.resolve(encodeTask(this.#tokenizer, task));
    } catch (error) {
      encoded.reject(error);
    }
  }
}

/** Takes what becomes of tasks in their order, with as many under way as the encoder has use for. */
export class EncodingQueue<Facts> {
  readonly #encoder: Pick<Encoder, 'atOnce' | 'encode'>;
  readonly #take: (encoded: Encoded, facts: Facts) => Promise<void>;
  readonly #underWay: { readonly encoded: Promise<Encoded>; readonly facts: Facts }[] = [];

  constructor(encoder: Pick<Encoder, 'atOnce' | 'encode'>, take: (encoded: Encoded, facts: Facts) => Promise<void>) {
    this.#encoder = encoder;
    this.#take = take;
  }

  /** `facts`: of the task, for what takes it. */
  async add(task: EncodingTask, facts: Facts): Promise<void> {
    const encoded = this.#encoder.encode(task);
    // Its rejection is thrown where it is awaited; until then it is no unhandled one.
    encoded.catch(() => {});
    this.#underWay.push({ encoded, facts });
    if (this.#underWay.length >= this.#encoder.atOnce) await this.#takeFirst();
  }

  /** All is taken. */
  async end(): Promise<void> {
    while (this.#underWay.length > 0) await this.#takeFirst();
  }

  async #takeFirst(): Promise<void> {
    const first = this.#underWay.shift();
    assert(first, 'a task is under way');
    await this.#take(await first.encoded, first.facts);
  }
}
