// `Walk`: the dry run of a pass: follows the states of all pieces of model data through its operations and writes the
// trace. Pure. Invariant: an access that makes no sense is an error here, with the names of the tensor and the
// operation.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS, type Kind } from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import { type State, strongest, TensorStates } from '../../memory/layout/states.ts';
import type { AccessMode, AccessTier, ChunkAccess, ChunkList, Moment, Trace } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { isDispatch, type Operation } from './operations.ts';

export class Walk {
  readonly #map: ChunkMap;
  readonly #moments: Moment[] = [];
  readonly #states: TensorStates;
  /** Of each chunk: how many of its pieces are in each state. */
  readonly #pieces: Record<State, number>[];
  readonly #after: State[][] = [];

  /** `isElsewhere`: of a chunk, whether another rank has its value between two steps. */
  constructor(map: ChunkMap, isElsewhere: (chunk: number) => boolean = () => false) {
    this.#map = map;
    const none = { FREE: 0, COMPUTE: 0, HOLD: 0, HOLD_AFTER_FWD: 0, HOLD_AFTER_BWD: 0 };
    this.#pieces = Array.from({ length: map.count }, () => ({ ...none }));
    const states: [string, State][] = [];
    for (const list of map.lists) {
      for (const piece of [...map.layoutOf(list.kind).pieces.values()].flat()) {
        const state = isElsewhere(list.first + piece.chunk) ? 'FREE' : KINDS[list.kind].between;
        states.push([key(list, piece), state]);
        this.#piecesOf(list.first + piece.chunk)[state]++;
      }
    }
    this.#states = new TensorStates(states);
  }

  /** The next moment is this operation's; what it used is in state `next` behind it. */
  step(operation: Operation, next: State): void {
    const { label, uses, each } = operation;
    const where = { operator: label, moment: this.#moments.length };
    const accesses = new Map<number, AccessMode>();
    const held = new Map<number, boolean>();
    for (const { list, piece, access } of uses) {
      const chunk = list.first + piece.chunk;
      if (!held.has(chunk)) held.set(chunk, this.#stateOf(chunk) !== 'FREE');
      this.#change(list, piece, (name) => this.#states.pin(name, access !== 'write', where));
      if (access === 'read') {
        if (!accesses.has(chunk)) accesses.set(chunk, 'read');
      } else accesses.set(chunk, held.get(chunk) ? 'write' : 'overwrite');
    }
    for (const { list, piece } of uses) {
      this.#change(list, piece, (name) => this.#states.unpin(name, next, where));
    }
    this.#after.push([...accesses.keys()].map((chunk) => this.#stateOf(chunk)));
    const frees: number[] = [];
    const free = (kind: Kind, index: number) => {
      const list = this.#map.list(kind);
      for (const piece of this.#map.piecesIn(kind, index)) {
        this.#change(list, piece, (name) => this.#states.move(name, 'FREE', where));
      }
      const { chunk } = this.#map.placeOf(kind, index);
      // Of a narrow kind, another index may have its value there.
      if (this.#stateOf(chunk) === 'FREE') frees.push(chunk);
    };
    if (each) for (const kind of each.frees) free(kind, each.index);
    for (const index of operation.releases ?? []) free(this.#map.readKind, index);
    for (const chunk of operation.givesBack ?? []) {
      const list = this.#map.holding(chunk);
      for (const piece of at(this.#map.contents(), chunk)) {
        this.#change(list, piece, (name) => this.#states.move(name, 'FREE', where));
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
      work: isDispatch(operation) ? operation.kernel.flops(operation.problem) : 0,
      ...(fetches.length > 0 && { fetches }),
    });
  }

  /** The trace, and of each moment and each of its accesses, in their order: the state of the chunk behind it. */
  end(): { readonly trace: Trace; readonly states: readonly (readonly State[])[] } {
    const { chunkBytes, lists } = this.#map;
    return { trace: { chunkBytes, lists, moments: this.#moments }, states: this.#after };
  }

  #change(list: ChunkList, piece: Piece, change: (name: string) => void): void {
    const name = key(list, piece);
    const pieces = this.#piecesOf(list.first + piece.chunk);
    pieces[this.#states.of(name)]--;
    change(name);
    pieces[this.#states.of(name)]++;
  }

  #piecesOf(chunk: number): Record<State, number> {
    return at(this.#pieces, chunk);
  }

  #stateOf(chunk: number): State {
    const pieces = this.#piecesOf(chunk);
    return strongest((Object.keys(pieces) as State[]).filter((state) => pieces[state] > 0));
  }
}

const key = ({ kind }: ChunkList, { tensor, row }: Piece) => `${kind} ${tensor}${row > 0 ? ` from row ${row}` : ''}`;
