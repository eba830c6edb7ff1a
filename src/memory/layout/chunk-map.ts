// `ChunkMap`: every chunk of a model by number: one list of chunks per kind of model data, and where in them each
// tensor lies. Parameters that train have gradients and moments beside them in chunks of the same layout; frozen ones
// have chunks of their own for each way of storing them, all of the same bytes. Pure arithmetic.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { ChunkList } from '../plan/trace.ts';
import { LARGEST_PUT } from '../tiers/tier-limits.ts';
import { halved } from './halved.ts';
import {
  ALL_KINDS,
  ELEMENT_BYTES,
  elementBytesOf,
  FROZEN_KINDS,
  indicesIn,
  indicesTogether,
  KINDS,
  type Kind,
  type LayoutName,
  lastingKinds,
  type MomentDtype,
  type TrainingDtype,
  trainedKinds,
} from './kinds.ts';
import {
  BLOCK_ELEMENTS,
  bytesHeld,
  chunkBytesFor,
  elementBytesIn,
  type LayoutCosts,
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
  /** Where it trains: what kernels read of it. All that train are alike in this. @default 'f32' */
  readonly computedIn?: TrainingDtype;
  /** Where it trains: what its moments are kept as. All that train are alike in this. @default 'f32' */
  readonly momentsIn?: MomentDtype;
  /** Where it trains: whether the optimizer updates it on the host, with all that come behind it. @default on the GPU */
  readonly updatedOnHost?: boolean;
  /** Of the first of those: rows that the GPU updates, the first ones, a multiple of `rowStep`. @default none */
  readonly rowsOnGPU?: number;
}

/** What kernels read of the parameters that train. */
export const trainingDtypeOf = (parameters: readonly StoredParameter[]): TrainingDtype =>
  parameters.find(({ trainable = true }) => trainable)?.computedIn ?? 'f32';

/** What the moments of the parameters that train are kept as. */
export const momentDtypeOf = (parameters: readonly StoredParameter[]): MomentDtype =>
  parameters.find(({ trainable = true }) => trainable)?.momentsIn ?? 'f32';

/** Those of them that train and are updated on the host, or on the GPU, all of one or some of its rows. */
export const updatedOn = (device: 'gpu' | 'cpu', parameters: readonly StoredParameter[]): readonly StoredParameter[] =>
  parameters.filter(
    ({ trainable = true, updatedOnHost = false, rowsOnGPU = 0 }) =>
      trainable && (updatedOnHost === (device === 'cpu') || rowsOnGPU > 0),
  );

/** The kinds of what trains among them. */
export const trainedKindsOf = (parameters: readonly StoredParameter[]): readonly Kind[] =>
  trainedKinds(trainingDtypeOf(parameters), momentDtypeOf(parameters));

/** The layout that a parameter has its place in, where trainable ones train or where nothing does. */
export function layoutFor(parameter: StoredParameter, training: boolean): PackedLayout {
  const { trainable = true, stored = 'f32', name } = parameter;
  assert(!trainable || stored === 'f32', `${name} is stored as ${stored}, and what trains is f32`);
  return training && trainable ? 'trainable' : KINDS[FROZEN_KINDS[stored]].layout;
}

/** Those that tensors are packed in; that of halves follows from one. */
type PackedLayout = Exclude<LayoutName, 'trainableHalves'>;
type Layouts = Readonly<Record<LayoutName, TiledLayout>>;

const NO_TENSORS: TiledLayout = {
  ...{ chunkElements: 0, chunks: 0, pieces: new Map(), used: [], held: 0, padding: 0, tiled: 0 },
};

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
  /** The trainable chunks that hold something, by index. */
  readonly indices: readonly number[];
  /** From this index on what trains is updated on the host. */
  readonly hostIndex: number;
  readonly #listOf: ReadonlyMap<Kind, ChunkList>;
  readonly #readLists = new Map<string, ChunkList>();
  readonly #byIndex = new Map<LayoutName, Piece[][]>();
  #contents: readonly (readonly Piece[])[] | undefined;
  /** What kernels read of what trains. */
  readonly dtype: TrainingDtype;
  /** What moments are kept as. */
  readonly momentDtype: MomentDtype;
  /** The kinds of what trains. */
  readonly trainedKinds: readonly Kind[];

  constructor(
    layouts: Readonly<Record<PackedLayout, TiledLayout>>,
    dtype: TrainingDtype = 'f32',
    momentDtype: MomentDtype = 'f32',
    hostIndex = layouts.trainable.chunks,
  ) {
    const packed = Object.values(FROZEN_KINDS).map((kind) => [kind, layouts[KINDS[kind].layout]] as const);
    this.trainable = layouts.trainable;
    this.chunkBytes = chunkBytesFor(
      packed.reduce(
        (most, [kind, { chunkElements }]) => Math.max(most, chunkElements * elementBytesOf(kind)),
        this.trainable.chunkElements * ELEMENT_BYTES,
      ),
    );
    this.chunkElements = this.chunkBytes / ELEMENT_BYTES;
    this.dtype = dtype;
    this.momentDtype = momentDtype;
    this.trainedKinds = trainedKinds(dtype, momentDtype);
    const halves = indicesTogether(this.trainedKinds) > 1 ? this.trainable : NO_TENSORS;
    this.layouts = { ...layouts, trainableHalves: halved(halves, this.chunkElements) };
    const isOther = (kind: Kind) => KINDS[kind].layout.startsWith('trainable') && !this.trainedKinds.includes(kind);
    const lists: ChunkList[] = [];
    let first = 0;
    for (const kind of ALL_KINDS.filter((kind) => !isOther(kind))) {
      const { chunks } = this.layoutOf(kind);
      if (chunks > 0) lists.push({ kind, first, chunks });
      first += chunks;
    }
    this.lists = lists;
    this.#listOf = new Map(lists.map((list) => [list.kind, list]));
    this.count = first;
    const firstBlock: number[] = [];
    let blocks = 0;
    for (const used of this.trainable.used) {
      firstBlock.push(blocks);
      blocks += used / BLOCK_ELEMENTS;
    }
    this.firstBlock = firstBlock;
    this.blocks = blocks;
    this.indices = this.trainable.used.flatMap((used, index) => (used > 0 ? [index] : []));
    this.hostIndex = hostIndex;
  }

  /** Pieces that its tensors lie in. */
  get pieceCount(): number {
    let count = 0;
    for (const { pieces } of Object.values(this.layouts)) for (const { length } of pieces.values()) count += length;
    return count;
  }

  /** What kernels read as parameters that train. */
  get readKind(): Kind {
    return at(this.trainedKinds, 0);
  }

  /** Indices of what trains that a chunk of one of its kinds holds, at most. */
  get together(): number {
    return indicesTogether(this.trainedKinds);
  }

  /** Chunks that go below the GPU together, at most: what an update completes at once. */
  get largestPut(): number {
    return Math.max(
      LARGEST_PUT,
      lastingKinds(this.dtype, this.momentDtype).reduce((sum, kind) => sum + this.together / indicesIn(kind), 0),
    );
  }

  /** Chunks of a kind of what trains whose indices are updated on the GPU. */
  updatedOnGPU(kind: Kind): number {
    return Math.ceil(this.hostIndex / indicesIn(kind));
  }

  trains(name: string): boolean {
    return this.trainable.pieces.has(name);
  }

  list(kind: Kind): ChunkList {
    return this.#listOf.get(kind) ?? { kind, first: 0, chunks: 0 };
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
    if (kind !== 'parameter') return this.list(kind);
    const isIn = (frozen: Kind) => this.layoutOf(frozen).pieces.has(name);
    const list = this.#readLists.get(name) ?? this.list(Object.values(FROZEN_KINDS).find(isIn) ?? this.readKind);
    this.#readLists.set(name, list);
    return list;
  }

  /** The names of a kind's tensors; of parameters, those that do not train as well. */
  names(kind: Kind): string[] {
    const kinds = kind === 'parameter' ? (['parameter', ...Object.values(FROZEN_KINDS)] as const) : [kind];
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

  /**
   * The pieces of a tensor in the chunks of a kind, in the order of its rows; `chunk` counts within the kind's list. Those
   * of what trains are the same rows in all of its kinds.
   */
  pieces(name: string, kind: Kind = this.listOf('parameter', name).kind): readonly Piece[] {
    const found = this.layoutOf(kind).pieces.get(name);
    assert(found, `parameter ${name} lies in no chunk of ${kind}`);
    return found;
  }

  /** The pieces at an index of what trains in the chunks of one of its kinds, in the order of the tensors. */
  piecesIn(kind: Kind, index: number): readonly Piece[] {
    const { layout } = KINDS[kind];
    const known = this.#byIndex.get(layout) ?? this.#piecesByIndex(this.layouts[layout]);
    this.#byIndex.set(layout, known);
    return at(known, index);
  }

  #piecesByIndex({ pieces }: TiledLayout): Piece[][] {
    const found = this.trainable.used.map((): Piece[] => []);
    for (const [name, all] of this.trainable.pieces) {
      all.forEach(({ chunk }, i) => {
        at(found, chunk).push(at(pieces.get(name) ?? [], i));
      });
    }
    return found;
  }

  /** The chunk of a kind at an index of what trains, and the element at which the index begins in it. */
  placeOf(kind: Kind, index: number): { readonly chunk: number; readonly offset: number } {
    const each = indicesIn(kind);
    return { chunk: this.list(kind).first + Math.floor(index / each), offset: (index % each) * this.chunkElements };
  }

  /** What lies in each chunk of all kinds, from its start on. */
  contents(): readonly (readonly Piece[])[] {
    this.#contents ??= this.lists.flatMap(({ kind, chunks }) => {
      const found = Array.from({ length: chunks }, (): Piece[] => []);
      for (const pieces of this.layoutOf(kind).pieces.values()) {
        for (const piece of pieces) found[piece.chunk]?.push(piece);
      }
      return found.map((pieces) => pieces.sort((a, b) => a.offset - b.offset));
    });
    return this.#contents;
  }

  /** Elements of a chunk up to the end of its last piece. */
  used(chunk: number): number {
    const { kind, first } = this.holding(chunk);
    return at(this.layoutOf(kind).used, chunk - first);
  }
}

/**
 * Lays out a model in chunks of about these sizes: the largest part of it, what trains or what is frozen in one width,
 * decides. Without `training` nothing trains. `costs`: @default padding is worse than tiles. Errors: HoldfastError when no
 * chunk within the limits can hold a tensor's row.
 */
export function mapChunks(
  parameters: readonly StoredParameter[],
  training: boolean,
  limits: { minBytes: number; maxBytes: number },
  costs?: LayoutCosts,
): ChunkMap {
  const parts = partsOf(parameters, training);
  const largest = largestOf(parts);
  const least = leastChunkBytes(parameters);
  const layout = searchLayout(largest, { ...limits, minBytes: Math.max(limits.minBytes, least) }, costs);
  const bytes = Math.max(chunkBytesFor(layout.chunkElements * elementBytesIn(largest)), least);
  const layoutOf = (part: readonly StoredParameter[]) =>
    part === largest ? layout : packTensors(part, bytes / elementBytesIn(part), 'any');
  return packed(parts, layoutOf);
}

/**
 * Bytes that the chunks of `mapChunks` have at least, told before they are laid out. Where there are several of the largest
 * part, what does not fit into one lies in the next: one of two neighbours is more than half of the least size that is sought.
 */
export function leastBytesWith(
  parameters: readonly StoredParameter[],
  training: boolean,
  { minBytes }: { minBytes: number },
): number {
  const largest = largestOf(partsOf(parameters, training));
  // Where a tensor opens a chunk, what could lie in one lies in two.
  const parts = largest.some(({ opensChunk }) => opensChunk !== undefined) ? 2 : 1;
  return Math.min(minBytes / 2, bytesHeld(largest) / parts);
}

/**
 * The chunks of a model as `mapChunks` has them, but of one size, or a little smaller, whatever else the model has: a
 * tensor that is the first of two models lies in the same pieces in both. `least`: bytes that they have whatever lies in them.
 */
export function packChunks(
  parameters: readonly StoredParameter[],
  training: boolean,
  bytes: number,
  least = 0,
): ChunkMap {
  return packed(partsOf(parameters, training), (part) => {
    const width = elementBytesIn(part);
    const layout = packTensors(part, bytes / width, 'any', 16);
    return { ...layout, chunkElements: Math.max(layout.chunkElements, least / width) };
  });
}

const largestOf = (parts: Parts): readonly StoredParameter[] =>
  Object.values(parts).reduce((most, part) => (bytesHeld(part) > bytesHeld(most) ? part : most));

type Parts = Readonly<Record<PackedLayout, readonly StoredParameter[]>>;

function partsOf(parameters: readonly StoredParameter[], training: boolean): Parts {
  const parts: Record<PackedLayout, StoredParameter[]> = {
    ...{ trainable: [], frozen: [], frozenBF16: [], frozenF16: [], frozenQ8: [], frozenQ4: [], frozenNF4: [] },
    ...{ frozenQ5: [], frozenQ4K: [], frozenQ5K: [], frozenQ6K: [] },
  };
  for (const parameter of parameters) parts[layoutFor(parameter, training)].push(parameter);
  return { ...parts, trainable: splitByDevice(parts.trainable) };
}

/** Whether the GPU or the host updates it is alike in all that a chunk of any kind holds. */
function splitByDevice(trainable: readonly StoredParameter[]): readonly StoredParameter[] {
  const first = firstOnHost(trainable);
  const opensAt = trainable[first]?.rowsOnGPU ?? 0;
  if (first < 0 || (first === 0 && opensAt === 0)) return trainable;
  assert(
    trainable.slice(first).every(({ updatedOnHost }) => updatedOnHost),
    'what the host updates comes last',
  );
  const opensChunk = indicesTogether(trainedKindsOf(trainable));
  return trainable.map((parameter, i) => (i === first ? { ...parameter, opensChunk, opensAt } : parameter));
}

const firstOnHost = (trainable: readonly StoredParameter[]): number =>
  trainable.findIndex(({ updatedOnHost }) => updatedOnHost);

/** The index of the chunk that it opens. */
function hostIndexIn(trainable: readonly StoredParameter[], { pieces, chunks }: TiledLayout): number {
  const first = trainable[firstOnHost(trainable)];
  if (!first) return chunks;
  const { name, rowsOnGPU = 0 } = first;
  return pieces.get(name)?.find(({ row }) => row >= rowsOnGPU)?.chunk ?? chunks;
}

function packed(parts: Parts, layoutOf: (part: readonly StoredParameter[]) => TiledLayout): ChunkMap {
  const trainable = layoutOf(parts.trainable);
  return new ChunkMap(
    {
      trainable,
      frozen: layoutOf(parts.frozen),
      frozenBF16: layoutOf(parts.frozenBF16),
      frozenF16: layoutOf(parts.frozenF16),
      frozenQ8: layoutOf(parts.frozenQ8),
      frozenQ4: layoutOf(parts.frozenQ4),
      frozenNF4: layoutOf(parts.frozenNF4),
      frozenQ5: layoutOf(parts.frozenQ5),
      frozenQ4K: layoutOf(parts.frozenQ4K),
      frozenQ5K: layoutOf(parts.frozenQ5K),
      frozenQ6K: layoutOf(parts.frozenQ6K),
    },
    trainingDtypeOf(parts.trainable),
    momentDtypeOf(parts.trainable),
    hostIndexIn(parts.trainable, trainable),
  );
}
