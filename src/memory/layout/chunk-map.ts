// Every chunk of a model by number: one list of chunks per kind of model data, and where in them each tensor
// lies. Parameters that train have gradients and moments beside them in chunks of the same layout; frozen ones
// have chunks of their own for each way of storing them, all of the same bytes. Pure arithmetic.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { ChunkList } from '../plan/trace.ts';
import { ALL_KINDS, ELEMENT_BYTES, elementBytesOf, FROZEN_KINDS, KINDS, type Kind, type LayoutName } from './kinds.ts';
import {
  BLOCK_ELEMENTS,
  bytesHeld,
  chunkBytesFor,
  elementBytesIn,
  leastChunkBytes,
  type Piece,
  packTensors,
  type ShapedTensor,
  searchLayout,
  type TiledLayout,
} from './layout.ts';

/** What of a model's parameters decides where they lie. */
export interface StoredParameter extends ShapedTensor {
  /** Those that are not stored as f32 do not train. @default true */
  readonly trainable?: boolean;
}

/** The layout that a parameter has its place in, where trainable ones train or where nothing does. */
export function layoutFor(parameter: StoredParameter, training: boolean): LayoutName {
  const { trainable = true, stored = 'f32', name } = parameter;
  assert(!trainable || stored === 'f32', `${name} is stored as ${stored}, and what trains is f32`);
  return training && trainable ? 'trainable' : KINDS[FROZEN_KINDS[stored]].layout;
}

type Layouts = Readonly<Record<LayoutName, TiledLayout>>;

export class ChunkMap {
  /** Of float32. */
  readonly chunkElements: number;
  readonly chunkBytes: number;
  readonly lists: readonly ChunkList[];
  /** Chunks of all kinds. */
  readonly count: number;
  readonly layouts: Layouts;
  readonly trainable: TiledLayout;
  /** Of each trainable chunk: the number of its first block of BLOCK_ELEMENTS, whatever the chunks' size. */
  readonly firstBlock: readonly number[];
  /** Blocks of all trainable parameters. */
  readonly blocks: number;
  readonly #inChunks: readonly Piece[][];

  constructor(layouts: Layouts) {
    this.layouts = layouts;
    this.trainable = layouts.trainable;
    this.chunkBytes = chunkBytesFor(
      Math.max(...ALL_KINDS.map((kind) => layouts[KINDS[kind].layout].chunkElements * elementBytesOf(kind))),
    );
    this.chunkElements = this.chunkBytes / ELEMENT_BYTES;
    const lists: ChunkList[] = [];
    let first = 0;
    for (const kind of ALL_KINDS) {
      const { chunks } = this.layoutOf(kind);
      if (chunks > 0) lists.push({ kind, first, chunks });
      first += chunks;
    }
    this.lists = lists;
    this.count = first;
    const firstBlock: number[] = [];
    let blocks = 0;
    for (const used of this.trainable.used) {
      firstBlock.push(blocks);
      blocks += used / BLOCK_ELEMENTS;
    }
    this.firstBlock = firstBlock;
    this.blocks = blocks;
    this.#inChunks = this.trainable.used.map((): Piece[] => []);
    for (const piece of [...this.trainable.pieces.values()].flat()) this.#inChunks[piece.chunk]?.push(piece);
  }

  trains(name: string): boolean {
    return this.trainable.pieces.has(name);
  }

  list(kind: Kind): ChunkList {
    return this.lists.find((list) => list.kind === kind) ?? { kind, first: 0, chunks: 0 };
  }

  /** Where the tensors of a kind lie in the chunks of its list. */
  layoutOf(kind: Kind): TiledLayout {
    return this.layouts[KINDS[kind].layout];
  }

  /** The list that a chunk belongs to. */
  holding(chunk: number): ChunkList {
    const list = this.lists.find(({ first, chunks }) => chunk >= first && chunk < first + chunks);
    assert(list, `there is no chunk ${chunk}`);
    return list;
  }

  /** The list in which a kind of a tensor lies: parameters that do not train have their own. */
  listOf(kind: Kind, name: string): ChunkList {
    const frozen = Object.values(FROZEN_KINDS).find((frozen) => this.layoutOf(frozen).pieces.has(name));
    return this.list((kind === 'parameter' && frozen) || kind);
  }

  /** The names of a kind's tensors; of parameters, those that do not train as well. */
  names(kind: Kind): string[] {
    const kinds = kind === 'parameter' ? [kind, ...Object.values(FROZEN_KINDS)] : [kind];
    return kinds.flatMap((each) => [...this.layoutOf(each).pieces.keys()]);
  }

  /** What nothing trains, in all its layouts: chunks, elements and padding, and tensors in tiles. */
  get frozen(): Pick<TiledLayout, 'chunks' | 'held' | 'padding' | 'tiled'> {
    const layouts = Object.values(FROZEN_KINDS).map((kind) => this.layoutOf(kind));
    const sum = (of: (layout: TiledLayout) => number) => layouts.reduce((all, layout) => all + of(layout), 0);
    return {
      chunks: sum(({ chunks }) => chunks),
      held: sum(({ held }) => held),
      padding: sum(({ padding }) => padding),
      tiled: sum(({ tiled }) => tiled),
    };
  }

  /** The pieces of a tensor, in the order of its rows; `chunk` counts within the kind's list. */
  pieces(name: string): readonly Piece[] {
    for (const { pieces } of Object.values(this.layouts)) {
      const found = pieces.get(name);
      if (found) return found;
    }
    throw new Error(`internal: parameter ${name} lies in no chunk`);
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
 * Lays out a model in chunks of about these sizes: the largest part of it, what trains or what is frozen in one width,
 * decides. Without `training` nothing trains. Errors: HoldfastError when no chunk within the limits can hold a tensor's row.
 */
export function mapChunks(
  parameters: readonly StoredParameter[],
  training: boolean,
  limits: { minBytes: number; maxBytes: number },
): ChunkMap {
  const parts: Record<LayoutName, StoredParameter[]> = {
    ...{ trainable: [], frozen: [], frozenBF16: [], frozenF16: [], frozenQ8: [], frozenQ4: [], frozenNF4: [] },
  };
  for (const parameter of parameters) parts[layoutFor(parameter, training)].push(parameter);
  const largest = Object.values(parts).reduce((most, part) => (bytesHeld(part) > bytesHeld(most) ? part : most));
  const least = leastChunkBytes(parameters);
  const layout = searchLayout(largest, { minBytes: Math.max(limits.minBytes, least), maxBytes: limits.maxBytes });
  const bytes = Math.max(chunkBytesFor(layout.chunkElements * elementBytesIn(largest)), least);
  const layoutOf = (part: StoredParameter[]) =>
    part === largest ? layout : packTensors(part, bytes / elementBytesIn(part), 'any');
  return new ChunkMap({
    trainable: layoutOf(parts.trainable),
    frozen: layoutOf(parts.frozen),
    frozenBF16: layoutOf(parts.frozenBF16),
    frozenF16: layoutOf(parts.frozenF16),
    frozenQ8: layoutOf(parts.frozenQ8),
    frozenQ4: layoutOf(parts.frozenQ4),
    frozenNF4: layoutOf(parts.frozenNF4),
  });
}
