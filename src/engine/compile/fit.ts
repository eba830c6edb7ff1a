// The fit of a workload into a budget, worked out before anything is allocated: the layout of the chunks, the bytes of
// everything that is not chunks, and what is left for slots and staging. Exact: the executor allocates just this, so
// the predicted peak is the counted one. Pure: `holdfast plan` uses it with no GPU.
//
// Chunk sizes come from one fixed list, whatever the budget: a budget is accepted if one of them fits, so the
// smallest budget that works is a fact that a refusal can name.

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import { bytesOf, type Program, type Tensor } from '../../graph/graph.ts';
import { liveBytes, type Placement, place } from '../../graph/liveness.ts';
import type { ActivationMode } from '../../graph/recompute.ts';
import { type ChunkMap, mapChunks, type StoredParameter } from '../../memory/layout/chunk-map.ts';
import { ELEMENT_BYTES } from '../../memory/layout/kinds.ts';
import { chunkRange, leastChunkElements } from '../../memory/layout/layout.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { isChunkRange, type Operation, uniformBlocks } from './lower.ts';
import { operationsOf, type Pass, type Passes } from './pass.ts';

/** What is to run: everything that shares one device's memory. */
export interface Workload<P extends Passes = Passes> {
  readonly parameters: readonly StoredParameter[];
  /** Whether those that train have gradients and moments. */
  readonly training: boolean;
  /** Their activations share the arenas. */
  readonly programs: readonly Program[];
  /** The passes over chunks of a layout, made of these programs. */
  passes(map: ChunkMap): P;
  /** Small results that come back while the GPU works on: bytes of each, and how many may be under way at once. */
  readonly readback: ReadbackSize;
  /** What of its activations is kept. @default 'keep' */
  readonly activations?: ActivationMode;
  /** The same results in less memory, for more work: what is tried where this does not fit. @default none */
  readonly smaller?: Workload<P> | undefined;
}

/** `step`: every step's state is also kept below the GPU. `checkpoint`: it is not. */
export type Recovery = 'step' | 'checkpoint';

/** Where memory goes that is not chunks, in bytes. */
export interface NonModelMemory {
  /** Activations as placed, and the most that are alive at once, which no placement could undercut. */
  readonly arenas: number;
  readonly alive: number;
  /** Inputs, scalars, tables, masks, uniform blocks, results under way. */
  readonly persistent: number;
  readonly uniforms: number;
}

/** The adapter's limits on one buffer, in bytes. */
export interface BufferLimits {
  readonly binding: number;
  readonly buffer: number;
}

/** What every WebGPU adapter allows. */
export const DEFAULT_LIMITS: BufferLimits = { binding: 128 * 2 ** 20, buffer: 256 * 2 ** 20 };

/** Staging, in chunks: values on their way down, and values on their way up that the GPU has not taken yet. */
export interface StagingSize {
  readonly down: number;
  readonly up: number;
}

export interface ReadbackSize {
  readonly bytes: number;
  readonly reads: number;
}

/** Of a workload whose results are waited for. */
export const NO_READBACK: ReadbackSize = { bytes: 0, reads: 0 };

export interface Fit<P extends Passes = Passes> {
  /** The one that was asked for, or the first after it that fits. */
  readonly workload: Workload<P>;
  readonly map: ChunkMap;
  readonly passes: P;
  readonly placements: readonly Placement[];
  readonly nonModel: NonModelMemory;
  /** Whether every step's state is also kept below: a training within a budget, with recovery by `step`. */
  readonly durable: boolean;
  /** Chunks on the GPU at once. */
  readonly slots: number;
  readonly staging: StagingSize;
  /** Bytes of all GPU buffers. */
  readonly peak: number;
}

/** Larger chunks gain nothing: a transfer of this size is as fast as any. */
const LARGEST_CHUNK = 32 * 2 ** 20;
const LEAST_CHUNK = 16 * 1024;
/** More of them of a kind cost more for dispatches, uniforms and planning than they save. */
const MOST_CHUNKS = 1024;
const MOST_STAGING = 8;
/** One chunk of staging each way for so many slots. */
const SLOTS_PER_STAGING = 5;

/** What must go down at once: the three chunks of an update, where each step's state is kept below. */
const leastStaging = (durable: boolean): StagingSize => ({ down: durable ? 3 : 1, up: 1 });

/** Within a budget: without one, nothing goes below. */
const isDurable = ({ training }: Workload, recovery: Recovery): boolean => training && recovery === 'step';

/**
 * The best fit into `budget` bytes of GPU memory; without one, everything at once. Errors: HoldfastError that names the
 * smallest budget that works.
 */
export function fitMemory<P extends Passes>(
  workload: Workload<P>,
  limits: BufferLimits,
  budget: number | undefined,
  recovery: Recovery = 'step',
): Fit<P> {
  let least = { bytes: Number.POSITIVE_INFINITY, activations: 0 };
  for (let tried: Workload<P> | undefined = workload; tried; tried = tried.smaller) {
    const found = fitOne(tried, limits, budget, recovery);
    if ('peak' in found) return found;
    if (found.bytes < least.bytes) least = found;
  }
  throw new HoldfastError(
    `${formatBytes(budget ?? 0)} of GPU memory are too little: ${least.bytes} bytes (${formatBytes(least.bytes)}) is the smallest ` +
      `budget that works, ${formatBytes(least.activations)} of it for activations; give that much, or use a smaller batch or context`,
  );
}

/** The best fit of one workload, or the least that it would need and what of it is activations, in bytes. */
function fitOne<P extends Passes>(
  workload: Workload<P>,
  limits: BufferLimits,
  budget: number | undefined,
  recovery: Recovery,
): Fit<P> | { bytes: number; activations: number } {
  const placements = placeAll(workload, limits);
  const candidates = chunkSizes(workload, limits);
  const durable = budget !== undefined && isDurable(workload, recovery);
  const at = (bytes: number) => candidate(workload, placements, bytes, durable);
  if (budget === undefined) {
    const bytes = isMixed(workload) ? leastPadded(workload, candidates) : (candidates.at(-1) as number);
    return sized(at(bytes), undefined);
  }
  const held = workload.parameters.length === 0 ? 0 : budget - at(candidates.at(-1) as number).other;
  const { maxBytes: wanted } = chunkRange(workload.parameters, Math.max(0, held), limits.binding);
  // Those nearest to what suits the budget first.
  const order = candidates.toSorted((a, b) => Math.abs(Math.log(a / wanted)) - Math.abs(Math.log(b / wanted)));
  for (const bytes of order) {
    const found = at(bytes);
    if (leastPeak(found) <= budget) return sized(found, budget);
  }
  const tried = candidates.map(at);
  const bytes = tried.map(leastPeak).reduce((a, b) => Math.min(a, b));
  return { bytes, activations: (tried[0] as Candidate).nonModel.arenas };
}

/** Padding that larger chunks may cost where nothing moves, as a share of the model data. */
const MOST_PADDING = 0.05;

/**
 * The largest of these chunk sizes; but where some parameters are frozen, all chunks are as large as the larger part's, and
 * those of the smaller part must not be empty for the most part.
 */
function leastPadded(workload: Workload, candidates: readonly number[]): number {
  const largestFirst = candidates.toReversed().map((bytes) => ({ bytes, map: mapOf(workload, bytes) }));
  const [largest] = largestFirst;
  assert(largest, 'there is a chunk size');
  const size = ({ map }: typeof largest) => map.count * map.chunkBytes;
  const least = Math.min(...largestFirst.map(size));
  return (largestFirst.find((found) => size(found) <= (1 + MOST_PADDING) * least) ?? largest).bytes;
}

const isMixed = ({ parameters, training }: Workload): boolean =>
  training && new Set(parameters.map(({ trainable = true }) => trainable)).size > 1;

const again = <P extends Passes>(found: Fit<P>): Candidate<P> => {
  const { arenas, persistent } = found.nonModel;
  return { ...found, other: arenas + persistent, atOnce: chunksAtOnce(found.passes) };
};

/** The smallest budget into which these chunks fit, in bytes: staging and everything else included. */
export const leastBudget = (found: Fit): number => leastPeak(again(found));

/** The same chunks under another budget. Errors: HoldfastError that names the smallest that these chunks need. */
export function refitMemory<P extends Passes>(found: Fit<P>, budget: number): Fit<P> {
  const candidate = again(found);
  const least = leastPeak(candidate);
  if (budget < least) {
    throw new HoldfastError(
      `${formatBytes(budget)} of GPU memory are too little: with chunks of ${formatBytes(found.map.chunkBytes)} this run ` +
        `needs ${least} bytes (${formatBytes(least)}); give that much, or start the run with the smaller budget`,
    );
  }
  // The passes stay as they are: schedules are made for them.
  return { ...sized(candidate, budget), passes: found.passes };
}

/** The smallest budget that `fitMemory` accepts, in bytes. */
export function smallestBudget(workload: Workload, limits: BufferLimits, recovery: Recovery = 'step'): number {
  const placements = placeAll(workload, limits);
  const durable = isDurable(workload, recovery);
  const least = chunkSizes(workload, limits).map((bytes) => leastPeak(candidate(workload, placements, bytes, durable)));
  if (workload.smaller) least.push(smallestBudget(workload.smaller, limits, recovery));
  return least.reduce((a, b) => Math.min(a, b));
}

interface Candidate<P extends Passes = Passes> {
  readonly workload: Workload<P>;
  readonly map: ChunkMap;
  readonly passes: P;
  readonly placements: readonly Placement[];
  readonly nonModel: NonModelMemory;
  readonly durable: boolean;
  /** All of nonModel. */
  readonly other: number;
  /** Chunks that one operator needs at once. */
  readonly atOnce: number;
}

function placeAll({ programs }: Workload, { binding, buffer }: BufferLimits): Placement[] {
  return programs.map((program) => place(program, Math.min(binding, buffer)));
}

/** Ascending, by powers of two up to the largest that makes sense here. */
function chunkSizes({ parameters }: Workload, { binding, buffer }: BufferLimits): number[] {
  const held = parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0) * ELEMENT_BYTES;
  const least = Math.max(LEAST_CHUNK, held / MOST_CHUNKS, leastChunkElements(parameters) * ELEMENT_BYTES);
  const most = Math.min(binding, buffer, Math.max(LARGEST_CHUNK, least));
  const sizes = [most];
  for (let bytes = most / 2; bytes >= least; bytes /= 2) sizes.unshift(bytes);
  return sizes;
}

const mapOf = ({ parameters, training }: Workload, chunkBytes: number): ChunkMap =>
  mapChunks(parameters, training, { minBytes: chunkBytes / 2, maxBytes: chunkBytes });

function candidate<P extends Passes>(
  workload: Workload<P>,
  placements: readonly Placement[],
  chunkBytes: number,
  durable: boolean,
): Candidate<P> {
  const map = mapOf(workload, chunkBytes);
  const passes = workload.passes(map);
  const nonModel = nonModelMemory(workload, placements, passes);
  const atOnce = chunksAtOnce(passes);
  return { workload, map, passes, placements, nonModel, durable, other: nonModel.arenas + nonModel.persistent, atOnce };
}

const chunksAtOnce = (passes: Passes): number =>
  Object.values(passes).reduce(
    (most, { trace }) => trace.moments.reduce((n, { accesses }) => Math.max(n, accesses.length), most),
    0,
  );

function leastPeak({ map, durable, other, atOnce }: Candidate): number {
  const { down, up } = leastStaging(durable);
  return other + (Math.min(atOnce, map.count) + down + up) * map.chunkBytes;
}

/** Deals the room that a budget leaves for chunks to slots and staging. */
function sized<P extends Passes>(found: Candidate<P>, budget: number | undefined): Fit<P> {
  const { workload, map, passes, placements, nonModel, durable, other, atOnce } = found;
  const least = leastStaging(durable);
  let slots = map.count;
  let staging = least;
  if (budget !== undefined) {
    const room = Math.floor((budget - other) / map.chunkBytes);
    const spare = room - least.down - least.up - atOnce;
    assert(spare >= 0, 'a budget was accepted that does not fit');
    if (room < map.count + least.down + least.up) {
      const more = Math.min(MOST_STAGING, Math.floor(spare / SLOTS_PER_STAGING));
      staging = { down: Math.max(least.down, more), up: Math.max(least.up, more) };
    }
    slots = Math.min(map.count, room - staging.down - staging.up);
  }
  const peak = other + (slots + staging.down + staging.up) * map.chunkBytes;
  const nonModelBytes = peak - slots * map.chunkBytes;
  const withBytes = Object.entries(passes).map(([name, pass]): [string, Pass] => {
    const moments = pass.trace.moments.map((moment) => ({ ...moment, nonModelBytes }));
    return [name, { ...pass, trace: { ...pass.trace, moments } }];
  });
  return {
    workload,
    map,
    passes: Object.fromEntries(withBytes) as P,
    placements,
    nonModel,
    durable,
    slots,
    staging,
    peak,
  };
}

function nonModelMemory(
  { programs, readback }: Workload,
  placements: readonly Placement[],
  passes: Passes,
): NonModelMemory {
  const dispatches = new Set<Operation>(operationsOf(passes));
  const uniforms = uniformBlocks(dispatches).count * UNIFORM_STRIDE;
  const tensors = new Set<Tensor>();
  for (const { operands } of dispatches) {
    for (const operand of Object.values(operands)) {
      if (!isChunkRange(operand) && operand.role === 'persistent') tensors.add(operand);
    }
  }
  const others = uniforms + readback.reads * readback.bytes;
  const persistent = [...tensors].reduce((sum, tensor) => sum + bytesOf(tensor), others);
  return {
    arenas: arenaSizes(placements).reduce((a, b) => a + b, 0),
    alive: programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0),
    persistent,
    uniforms,
  };
}

/** Programs share arenas: each is as large as the largest program needs. Bytes. */
export function arenaSizes(placements: readonly Placement[]): number[] {
  const sizes: number[] = [];
  for (const { arenas } of placements) {
    arenas.forEach((bytes, i) => {
      sizes[i] = Math.max(sizes[i] ?? 0, bytes);
    });
  }
  return sizes;
}
