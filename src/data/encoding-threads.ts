// Parts of a text, encoded: here, or several at once in threads, each of which has the tokenizer for itself.
//
// Invariant: ids do not depend on where they were made. What a thread fails to encode is encoded here: a thread that cannot
// be started, or dies, costs time only.

import type { Host, Thread, Threads } from '../runtime/host.ts';
import { type Deferred, deferred } from '../util/deferred.ts';
import type { EncodingReply, EncodingWork } from './encoding-thread.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Bytes of text for which a thread is worth being started: it reads the tokenizer first, a second for a large one. */
export const BYTES_A_THREAD = 2 ** 21;
/** Each holds a tokenizer: up to some 100 MB. */
const MOST_THREADS = 4;
/** Parts that a thread has before it, so that it never waits for the next. */
const PARTS_AHEAD = 2;

/** Encodes parts of a text. */
export interface PartEncoder {
  /** Parts that are worth being under way at once. */
  readonly atOnce: number;
  /** As the tokenizer's. */
  encode(text: string): Promise<Int32Array>;
  /** Nothing is encoded after it. */
  end(): Promise<void>;
}

/** In threads, where the host has them and a text of so many bytes is worth it. */
export async function partEncoder(
  { threads }: Pick<Host, 'threads'>,
  tokenizer: Tokenizer,
  bytes: number,
): Promise<PartEncoder> {
  const count = Math.min(threads?.count ?? 1, MOST_THREADS, Math.floor(bytes / BYTES_A_THREAD));
  if (threads && count > 1 && tokenizer.files) return EncodingThreads.start(threads, tokenizer, count);
  return { atOnce: 1, encode: async (text) => tokenizer.encode(text), end: async () => {} };
}

interface Part {
  readonly text: string;
  readonly ids: Deferred<Int32Array>;
}

/** A thread, and by number what it was given and has not answered. */
interface Hand {
  readonly thread: Thread;
  readonly parts: Map<number, Part>;
}

class EncodingThreads implements PartEncoder {
  readonly #tokenizer: Tokenizer;
  readonly #hands = new Set<Hand>();
  readonly atOnce: number;
  #next = 0;

  static async start(threads: Threads, tokenizer: Tokenizer, count: number): Promise<EncodingThreads> {
    const made = new EncodingThreads(tokenizer, count);
    await Promise.all(Array.from({ length: count }, () => made.#start(threads).catch(() => {})));
    return made;
  }

  private constructor(tokenizer: Tokenizer, count: number) {
    this.#tokenizer = tokenizer;
    this.atOnce = count * PARTS_AHEAD;
  }

  async encode(text: string): Promise<Int32Array> {
    const [hand] = [...this.#hands].sort((a, b) => a.parts.size - b.parts.size);
    if (!hand) return this.#tokenizer.encode(text);
    const id = this.#next++;
    const part = { text, ids: deferred<Int32Array>() };
    hand.parts.set(id, part);
    hand.thread.post({ id, text } satisfies EncodingWork);
    return part.ids.promise;
  }

  async end(): Promise<void> {
    const hands = [...this.#hands];
    this.#hands.clear();
    await Promise.all(hands.map(({ thread }) => thread.end()));
  }

  async #start(threads: Threads): Promise<void> {
    const { files } = this.#tokenizer;
    const parts: Hand['parts'] = new Map();
    let hand: Hand | undefined;
    let isGone = false;
    const thread = await threads.start('tokenizing', {
      message: (reply) => this.#answered(parts, reply as EncodingReply),
      failed: () => {
        isGone = true;
        if (hand) this.#failed(hand);
      },
    });
    if (isGone || !files) return;
    hand = { thread, parts };
    this.#hands.add(hand);
    thread.keepAlive(true);
    thread.post({ files } satisfies EncodingWork);
  }

  #answered(parts: Hand['parts'], { id, ids }: EncodingReply): void {
    const part = parts.get(id);
    // A thread that has failed may answer still: what it had was encoded here.
    if (!part) return;
    parts.delete(id);
    if (ids) part.ids.resolve(ids);
    else this.#encodeHere(part);
  }

  /** Whoever waits for its parts goes on; a second word of the same end finds nothing to do. */
  #failed(hand: Hand): void {
    if (!this.#hands.delete(hand)) return;
    void hand.thread.end();
    for (const part of hand.parts.values()) this.#encodeHere(part);
    hand.parts.clear();
  }

  #encodeHere({ text, ids }: Part): void {
    try {
      ids.resolve(this.#tokenizer.encode(text));
    } catch (error) {
      ids.reject(error);
    }
  }
}
