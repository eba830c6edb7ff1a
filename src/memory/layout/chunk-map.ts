// Every chunk of a model by number: one list of chunks per kind of model data, and where in them each tensor
// lies. Parameters that train have gradients and moments beside them in chunks of the same layout; frozen ones
// have chunks of their own, of the same size. Pure arithmetic.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { ChunkList } from '../plan/trace.ts';
import { ALL_KINDS, ELEMENT_BYTES, KINDS, type Kind } from './kinds.ts';
import {
  BLOCK_ELEMENTS,
  leastChunkElements,
  type Piece,
  packTensors,
  type ShapedTensor,
  searchLayout,
  type TiledLayout,
} from './layout.ts';

/** What of a model's parameters decides where they lie. */
export interface StoredParameter extends ShapedTensor {
  /** @default true */
  readonly trainable?: boolean;
}

export class ChunkMap {
  readonly chunkElements: number;
  readonly chunkBytes: number;
  readonly lists: readonly ChunkList[];
  /** Chunks of all kinds. */
  readonly count: number;
  readonly trainable: TiledLayout;
  readonly frozen: TiledLayout;
  /** Of each trainable chunk: the number of its first block of BLOCK_ELEMENTS, whatever the chunks' size. */
  readonly firstBlock: readonly number[];
  /** Blocks of all trainable parameters. */
  readonly blocks: number;
  readonly #inChunks: readonly Piece[][];

  constructor(trainable: TiledLayout, frozen: TiledLayout) {
    this.trainable = trainable;
    this.frozen = frozen;
    this.chunkElements = Math.max(trainable.chunkElements, frozen.chunkElements);
    this.chunkBytes = this.chunkElements * ELEMENT_BYTES;
    const lists: ChunkList[] = [];
    let first = 0;
    for (const kind of ALL_KINDS) {
      const { chunks } = this[KINDS[kind].layout];
      if (chunks > 0) lists.push({ kind, first, chunks });
      first += chunks;
    }
    this.lists = lists;
    this.count = first;
    const firstBlock: number[] = [];
    let blocks = 0;
    for (const used of trainable.used) {
      firstBlock.push(blocks);
      blocks += used / BLOCK_ELEMENTS;
    }
    this.firstBlock = firstBlock;
    this.blocks = blocks;
    this.#inChunks = trainable.used.map((): Piece[] => []);
    for (const piece of [...trainable.pieces.values()].flat()) this.#inChunks[piece.chunk]?.push(piece);
  }

  trains(name: string): boolean {
    return this.trainable.pieces.has(name);
  }

  list(kind: Kind): ChunkList {
    return this.lists.find((list) => list.kind === kind) ?? { kind, first: 0, chunks: 0 };
  }

  /** Where the tensors of a kind lie in the chunks of its list. */
  layoutOf(kind: Kind): TiledLayout {
    return this[KINDS[kind].layout];
  }

  /** The list that a chunk belongs to. */
  holding(chunk: number): ChunkList {
    const list = this.lists.find(({ first, chunks }) => chunk >= first && chunk < first + chunks);
    assert(list, `there is no chunk ${chunk}`);
    return list;
  }

  /** The list in which a kind of a tensor lies: parameters that do not train have their own. */
  listOf(kind: Kind, name: string): ChunkList {
    return this.list(kind === 'parameter' && !this.trains(name) ? 'frozen' : kind);
  }

  /** The pieces of a tensor, in the order of its rows; `chunk` counts within the kind's list. */
  pieces(name: string): readonly Piece[] {
    const pieces = this.trainable.pieces.get(name) ?? this.frozen.pieces.get(name);
    assert(pieces, `parameter ${name} lies in no chunk`);
    return pieces;
  }

  /** The pieces in the trainable chunks of an index, in the order of the tensors. */
  piecesIn(index: number): readonly Piece[] {
    return at(this.#inChunks, index);
  }

  /** What lies in each chunk of all kinds, from its start on. */
  contents(): Piece[][] {
    return this.lists.flatMap(({ kind, chunks }) => {
      const found = Array.from({ length: chunks }, (): Piece[] => []);
      for (const pieces of this.layoutOf(kind).pieces.values()) {
        for (const piece of pieces) found[piece.chunk]?.push(piece);
      }
      return found.map((pieces) => pieces.sort((a, b) => a.offset - b.offset));
    });
  }

  /** Elements of a chunk up to the end of its last piece. */
  used(chunk: number): number {
    const { kind, first } = this.holding(chunk);
    return at(this.layoutOf(kind).used, chunk - first);
  }
}

/**
 * Lays out a model in chunks of about these sizes: the larger part of it, what trains or what is frozen, decides.
 * Without `training` nothing trains. Errors: HoldfastError when no chunk within the limits can hold a tensor's row.
 */
export function mapChunks(
  parameters: readonly StoredParameter[],
  training: boolean,
  limits: { minBytes: number; maxBytes: number },
): ChunkMap {
  const trains = ({ trainable = true }: StoredParameter) => training && trainable;
  const parts = [parameters.filter(trains), parameters.filter((parameter) => !trains(parameter))] as const;
  const size = (part: readonly StoredParameter[]) =>
    part.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const [larger, smaller] = size(parts[0]) >= size(parts[1]) ? parts : [parts[1], parts[0]];
  const least = leastChunkElements(parameters) * ELEMENT_BYTES;
  const layout = searchLayout(larger, { minBytes: Math.max(limits.minBytes, least), maxBytes: limits.maxBytes });
  const elements = Math.max(layout.chunkElements, Math.ceil(least / ELEMENT_BYTES));
  const other = packTensors(smaller, elements, 'any');
  return larger === parts[0] ? new ChunkMap(layout, other) : new ChunkMap(other, layout);
}
