// Documents in rows of T tokens: several in a row that do not see each other, or one a row; in an order of their own each
// epoch. Which tokens they have is documents.ts.
//
// Invariant: an epoch has every token of every piece once, and no target belongs to another document than its position.
// The order is made from the seed and the number of the epoch: where a run goes on is an epoch and a row.

import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { TokenBatch } from './batches.ts';
import type { Documents } from './documents.ts';
import { permutation } from './epoch-order.ts';
import { idOf, isMarked } from './marked-texts.ts';

/** Rows of several documents. */
export interface PackedBatch extends TokenBatch {
  /** (batch, seq): equal numbers side by side are one document. What is left of a row is one more. */
  readonly documents: Int32Array<ArrayBuffer>;
  /** (batch, seq): they begin anew in each document. */
  readonly positions: Int32Array<ArrayBuffer>;
}

/** How documents become rows. */
export interface RowOptions {
  /** Tokens in a row. */
  readonly seq: number;
  /** Whether rows hold several documents. */
  readonly pack: boolean;
  /** What becomes of documents longer than a row: pieces of it, or its beginning alone. */
  readonly longer: 'split' | 'cut';
}

/** Tokens of a document that stand in one row. */
interface Piece {
  readonly begin: number;
  readonly end: number;
  /** Where its document ends: the target of its last token may lie in the next piece. */
  readonly documentEnd: number;
}

const number = (value: number) => value.toLocaleString('en');

/** Rows that are filled at the same time: each piece goes where it leaves the least room. */
const OPEN_ROWS = 64;

/** Pieces of some documents, and what was cut off. */
export class Pieces {
  readonly #documents: Documents;
  readonly #options: RowOptions;
  readonly #pieces: Piece[] = [];
  /** The first token that is learned of the first piece's document. */
  readonly #firstLearned: number;
  /** Documents that are longer than a row. */
  readonly longer: number;
  /** Tokens that are in no piece. */
  readonly tokensCut: number;
  /** Documents of which nothing that is learned is left. */
  readonly emptied: number;
  /** Tokens of a row with which the first of those would have something; Infinity where there is none. */
  readonly leastSeq: number;

  constructor(documents: Documents, chosen: Iterable<number>, options: RowOptions) {
    const { seq } = options;
    let [longer, tokensCut, emptied, leastSeq] = [0, 0, 0, Number.POSITIVE_INFINITY];
    let firstOfAll: number | undefined;
    for (const document of chosen) {
      const [begin, end] = documents.range(document);
      const first = documents.firstLearned(document);
      if (end - begin > seq) longer++;
      if (options.longer === 'split') {
        for (let at = begin; at < end; at += seq) {
          this.#pieces.push({ begin: at, end: Math.min(at + seq, end), documentEnd: end });
        }
        firstOfAll ??= first;
        continue;
      }
      const kept = Math.min(end, begin + seq);
      tokensCut += end - kept;
      if (first < kept) {
        this.#pieces.push({ begin, end: kept, documentEnd: kept });
        firstOfAll ??= first;
      } else {
        emptied++;
        leastSeq = Math.min(leastSeq, first - begin + 1);
      }
    }
    this.#documents = documents;
    this.#options = options;
    this.#firstLearned = firstOfAll ?? 0;
    [this.longer, this.tokensCut, this.emptied, this.leastSeq] = [longer, tokensCut, emptied, leastSeq];
  }

  /** How many. */
  get count(): number {
    return this.#pieces.length;
  }

  /** Errors: HoldfastError where there is none, with what rows must have; `what` the documents are, in its message. */
  checkLearned(what: string): void {
    if (this.count > 0) return;
    const { seq } = this.#options;
    throw new HoldfastError(
      `${what}: each answer begins behind the ${number(seq)} tokens of a row, the first of them at token ${number(this.leastSeq)}; give a --context of ${this.leastSeq} at least, or shorten what is in front of the answers`,
    );
  }

  /** Tokens of the pieces. */
  get tokens(): number {
    return this.#pieces.reduce((sum, { begin, end }) => sum + end - begin, 0);
  }

  /** Rows of pieces, taken in an order (all of them, as they come). */
  rows(order: ArrayLike<number> = Array.from(this.#pieces.keys())): number[][] {
    const { seq, pack } = this.#options;
    if (!pack) return Array.from(order, (piece) => [piece]);
    const rows: number[][] = [];
    const open: { room: number; readonly pieces: number[] }[] = [];
    for (const piece of Array.from(order)) {
      const size = this.#sizeOf(piece);
      let best: (typeof open)[number] | undefined;
      for (const row of open) if (row.room >= size && (!best || row.room < best.room)) best = row;
      if (best) {
        best.pieces.push(piece);
        best.room -= size;
        if (best.room > 0) continue;
        open.splice(open.indexOf(best), 1);
        rows.push(best.pieces);
        continue;
      }
      if (open.length === OPEN_ROWS) {
        const fullest = open.reduce((a, b) => (b.room < a.room ? b : a));
        open.splice(open.indexOf(fullest), 1);
        rows.push(fullest.pieces);
      }
      if (size < seq) open.push({ room: seq - size, pieces: [piece] });
      else rows.push([piece]);
    }
    return [...rows, ...open.map(({ pieces }) => pieces)];
  }

  /** A batch of such rows. Errors: as those of a TokenRun. */
  async batch(rows: readonly (readonly number[])[]): Promise<TokenBatch | PackedBatch> {
    const { seq, pack } = this.#options;
    const size = rows.length * seq;
    const [ids, documents, positions] = [new Int32Array(size), new Int32Array(size), new Int32Array(size)];
    const targets = new Int32Array(size).fill(IGNORE_INDEX);
    const all = rows.flat().map((piece) => this.#piece(piece));
    // The last token's target lies behind the piece, where its document goes on.
    const read = await this.#documents.read(
      all.map(({ begin, end, documentEnd }) => [begin, Math.min(end + 1, documentEnd)]),
    );
    let next = 0;
    for (const [row, pieces] of rows.entries()) {
      let at = row * seq;
      const end = at + seq;
      for (const [number, piece] of pieces.entries()) {
        const marked = read[next++] ?? [];
        const length = this.#sizeOf(piece);
        for (let token = 0; token < length; token++, at++) {
          ids[at] = idOf(marked[token] ?? 0);
          documents[at] = number;
          positions[at] = token;
          const target = marked[token + 1];
          if (target !== undefined && isMarked(target)) targets[at] = idOf(target);
        }
      }
      for (let i = 0; at < end; i++, at++) {
        documents[at] = pieces.length;
        positions[at] = i;
      }
    }
    const batch = { ids, targets, batch: rows.length, seq };
    return pack ? { ...batch, documents, positions } : batch;
  }

  /** The tokens of the first piece in front of what is learned. Errors: as those of a TokenRun. */
  async prompt(): Promise<Int32Array<ArrayBuffer>> {
    const { begin, end } = this.#piece(0);
    const first = this.#firstLearned < end ? this.#firstLearned : begin;
    const [marked = []] = await this.#documents.read([[begin, Math.max(begin + 1, first)]]);
    return Int32Array.from(marked, idOf);
  }

  #piece(piece: number): Piece {
    const found = this.#pieces[piece];
    if (found) return found;
    throw new Error(`internal: there is no piece ${piece}`);
  }

  #sizeOf(piece: number): number {
    const { begin, end } = this.#piece(piece);
    return end - begin;
  }
}

/** Rows of pieces, epoch after epoch without end. */
export class ShuffledRows {
  readonly #pieces: Pieces;
  readonly #seed: number;
  #epoch = 0;
  #row = 0;
  /** Of the epoch. */
  #rows: number[][];

  constructor(pieces: Pieces, seed: number) {
    this.#pieces = pieces;
    this.#seed = seed;
    this.#rows = this.#rowsOf(0);
  }

  /** Rows in the first so many epochs. */
  count(epochs: number): number {
    let count = 0;
    for (let epoch = 0; epoch < epochs; epoch++) count += this.countOf(epoch);
    return count;
  }

  /** Rows in one epoch. */
  countOf(epoch: number): number {
    return (epoch === this.#epoch ? this.#rows : this.#rowsOf(epoch)).length;
  }

  /** The next so many, drawn at once; the last of an epoch are followed by the first of the next. Errors: as those of a TokenRun. */
  next(count: number): Promise<TokenBatch | PackedBatch> {
    const taken: number[][] = [];
    while (taken.length < count) {
      if (this.#row >= this.#rows.length) this.#begin(this.#epoch + 1);
      const some = this.#rows.slice(this.#row, this.#row + count - taken.length);
      this.#row += some.length;
      taken.push(...some);
    }
    return this.#pieces.batch(taken);
  }

  /** The epoch, and its next row. */
  state(): number[] {
    return this.#row < this.#rows.length ? [this.#epoch, this.#row] : [this.#epoch + 1, 0];
  }

  /** Goes on from where `state` was taken. Errors: HoldfastError where there is no such row. */
  restore(state: readonly number[]): void {
    const [epoch = -1, row = -1] = state;
    const isPlace = state.length === 2 && [epoch, row].every((value) => Number.isSafeInteger(value) && value >= 0);
    if (isPlace && epoch !== this.#epoch) this.#begin(epoch);
    if (!isPlace || row >= this.#rows.length) {
      throw new HoldfastError(
        `the place in the data is row ${row} of epoch ${epoch}; an epoch has ${this.#rows.length} rows, the checkpoint is damaged`,
      );
    }
    this.#row = row;
  }

  #begin(epoch: number): void {
    this.#epoch = epoch;
    this.#row = 0;
    this.#rows = this.#rowsOf(epoch);
  }

  #rowsOf(epoch: number): number[][] {
    return this.#pieces.rows(permutation(this.#pieces.count, new Random(this.#seed, `epoch ${epoch}`)));
  }
}
