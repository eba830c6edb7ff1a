// `KeepQueue`: values on the GPU of which copies are to be kept below, until there is room in staging for those copies, or until the
// values change or leave, or what they replace below changes: it is needed until they are there. Copies go in the order in which they
// were asked for.
//
// Invariant: a value that is in the queue is on the GPU, and as it was when it was put there.

import { assert } from '../../util/errors.ts';

/** Chunks whose values are kept together. */
export interface Keep {
  readonly chunks: readonly number[];
  /** Of no use below once they lie there: a new value of these is not to arrive before. */
  readonly frees: readonly number[];
}

/** Chunks that are not to change before it is taken. */
const heldBy = ({ chunks, frees }: Keep): number[] => [...chunks, ...frees];

export class KeepQueue<K extends Keep> {
  readonly #waiting: K[] = [];
  /** By chunk: how many in the queue it is not to change before. */
  readonly #counts = new Map<number, number>();

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  add(keep: K): void {
    this.#waiting.push(keep);
    for (const chunk of heldBy(keep)) this.#counts.set(chunk, (this.#counts.get(chunk) ?? 0) + 1);
  }

  /** Takes those for whose copies there is room, which is asked for before each. */
  *fitting(roomOf: () => number): Generator<K> {
    for (let [first] = this.#waiting; first && first.chunks.length <= roomOf(); [first] = this.#waiting) {
      yield this.#take();
    }
  }

  /** Takes those that are to be taken before these chunks change, and what is before them. */
  *before(chunks: readonly number[]): Generator<K> {
    while (this.#counts.size > 0 && chunks.some((chunk) => this.#counts.has(chunk))) yield this.#take();
  }

  /** Takes all. */
  *all(): Generator<K> {
    while (this.#waiting.length > 0) yield this.#take();
  }

  /** None of it is of use any more. */
  clear(): void {
    this.#waiting.length = 0;
    this.#counts.clear();
  }

  #take(): K {
    const keep = this.#waiting.shift();
    assert(keep, 'the queue of what is to be kept is empty');
    for (const chunk of heldBy(keep)) {
      const left = (this.#counts.get(chunk) ?? 0) - 1;
      if (left > 0) this.#counts.set(chunk, left);
      else this.#counts.delete(chunk);
    }
    return keep;
  }
}
