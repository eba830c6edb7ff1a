// `Walk`: the dry run of a pass: follows the states of all pieces of model data through its operations and writes the
// trace. Pure. Invariant: an access that makes no sense is an error here, with the names of the tensor and the
// operation.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS, type Kind } from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import { type State, type TensorAtFirst, TensorStates } from '../../memory/layout/states.ts';
import type { AccessMode, AccessTier, ChunkAccess, ChunkList, Moment, Trace } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import type { Operation } from './operations.ts';

export class Walk {
  readonly #map: ChunkMap;
  readonly #moments: Moment[] = [];
  readonly #states: TensorStates;
  /** By kind: the number of each piece among all. */
  readonly #numbers = new Map<Kind, Map<Piece, number>>();
  readonly #after: State[][] = [];

  /** `isElsewhere`: of a chunk, whether another rank has its value between two steps. */
  constructor(map: ChunkMap, isElsewhere: (chunk: number) => boolean = () => false) {
    this.#map = map;
    const all: TensorAtFirst[] = [];
    const named: [ChunkList, Piece][] = [];
    for (const list of map.lists) {
      const numbers = new Map<Piece, number>();
      this.#numbers.set(list.kind, numbers);
      for (const pieces of map.layoutOf(list.kind).pieces.values()) {
        for (const piece of pieces) {
          const chunk = list.first + piece.chunk;
          numbers.set(piece, all.length);
          all.push({ chunk, state: isElsewhere(chunk) ? 'FREE' : KINDS[list.kind].between });
          named.push([list, piece]);
        }
      }
    }
    this.#states = new TensorStates(all, map.count, (number) => nameOf(...at(named, number)));
  }

  /** The next moment is this operation's; what it used is in state `next` behind it. */
  step(operation: Operation, next: State): void {
    const { label, uses, each } = operation;
    const where = { operator: label, moment: this.#moments.length };
    const accesses = new Map<number, AccessMode>();
    const held = new Map<number, boolean>();
    for (const { list, piece, access } of uses) {
      const chunk = list.first + piece.chunk;
      if (!held.has(chunk)) held.set(chunk, this.#states.ofChunk(chunk) !== 'FREE');
      this.#states.pin(this.#numberOf(list, piece), access !== 'write', where);
      if (access === 'read') {
        if (!accesses.has(chunk)) accesses.set(chunk, 'read');
      } else accesses.set(chunk, held.get(chunk) ? 'write' : 'overwrite');
    }
    for (const { list, piece } of uses) this.#states.unpin(this.#numberOf(list, piece), next, where);
    this.#after.push([...accesses.keys()].map((chunk) => this.#states.ofChunk(chunk)));
    const frees: number[] = [];
    const free = (kind: Kind, index: number) => {
      const list = this.#map.list(kind);
      for (const piece of this.#map.piecesIn(kind, index)) {
        this.#states.move(this.#numberOf(list, piece), 'FREE', where);
      }
      const { chunk } = this.#map.placeOf(kind, index);
      // Of a narrow kind, another index may have its value there.
      if (this.#states.ofChunk(chunk) === 'FREE') frees.push(chunk);
    };
    if (each) for (const kind of each.frees) free(kind, each.index);
    for (const index of operation.releases ?? []) free(this.#map.readKind, index);
    for (const chunk of operation.givesBack ?? []) {
      const list = this.#map.holding(chunk);
      for (const piece of at(this.#map.contents(), chunk)) {
        this.#states.move(this.#numberOf(list, piece), 'FREE', where);
      }
      frees.push(chunk);
    }
    const isOnHost = operation.op === 'host';
    const tier: AccessTier = isOnHost ? 'host' : 'gpu';
    const listed = [...accesses].map(([chunk, mode]): ChunkAccess => ({ chunk, mode, tier }));
    const fetches = operation.op === 'fetch' ? operation.pieces.map(({ id }) => id) : [];
    this.#moments.push({
      ...{ label, accesses: isOnHost ? [] : listed, frees, nonModelBytes: 0 },
      ...(isOnHost && { onHost: listed }),
      ...(fetches.length > 0 && { fetches }),
    });
  }

  /** The trace, and of each moment and each of its accesses, in their order: the state of the chunk behind it. */
  end(): { readonly trace: Trace; readonly states: readonly (readonly State[])[] } {
    const { chunkBytes, lists } = this.#map;
    return { trace: { chunkBytes, lists, moments: this.#moments }, states: this.#after };
  }

  #numberOf(list: ChunkList, piece: Piece): number {
    const number = this.#numbers.get(list.kind)?.get(piece);
    if (number === undefined) throw new Error(`internal: ${nameOf(list, piece)} is no piece of the layout`);
    return number;
  }
}

const nameOf = ({ kind }: ChunkList, { tensor, row }: Piece) => `${kind} ${tensor}${row > 0 ? ` from row ${row}` : ''}`;
