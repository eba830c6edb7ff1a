// A candidate for a fit: a workload on chunks of one size with its activations placed, and what memory that takes. Most are only
// measured, on a part of their micro-batches; the one that is taken has all of them (`whole`).

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import { liveBytes, type Placement, place } from '../../graph/liveness.ts';
import { bytesOf, holderOf, type Program, type Tensor } from '../../graph/program.ts';
import { type ChunkMap, trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { MOMENT_KINDS } from '../../memory/layout/kinds.ts';
import { mostHeld } from '../../memory/plan/trace.ts';
import type { NeedBelow } from '../../memory/tiers/shares.ts';
import { mapOf } from './chunk-sizes.ts';
import { isChunkRange } from './lower.ts';
import {
  chunksAtOnce,
  completeAtOnce,
  dispatchesOf,
  exchangedTensors,
  heldAtOnce,
  type Passes,
  stashesIn,
} from './pass.ts';
import { uniformCount } from './uniform-blocks.ts';
import { type AdapterLimits, updatesOnHost, type Workload } from './workload.ts';

/** Where memory goes that is not chunks, in bytes. */
export interface NonModelMemory {
  /** Activations as placed, and the most that are alive at once, which no placement could undercut. */
  readonly arenas: number;
  readonly alive: number;
  /** Inputs, scalars, tables, masks, uniform blocks, results under way. */
  readonly persistent: number;
  readonly uniforms: number;
}

/** Staging, in chunks: values on their way down, and values on their way up that the GPU has not taken yet. */
export interface StagingSize {
  readonly down: number;
  readonly up: number;
}

/** What a workload takes on chunks of one size. */
export interface Measured<P extends Passes = Passes> {
  /** The one that was asked for, or one that differs from it in what becomes of its activations. */
  readonly workload: Workload<P>;
  readonly map: ChunkMap;
  readonly passes: P;
  readonly placements: readonly Placement[];
  readonly nonModel: NonModelMemory;
  /** Bytes of each piece of an activation that lies below the GPU, by its number behind those of chunks. */
  readonly stashes: readonly number[];
  /** Whether every step's state is also kept below: a training within a budget, with recovery by `step`. */
  readonly durable: boolean;
  /**
   * With so many slots nothing ever leaves the GPU. Moments are never there where the host updates them, nor is what other
   * ranks have, nor, for long, what gradients in bf16 are rounded from.
   */
  readonly residents: number;
  /** Chunks that have values at once, wherever they lie. */
  readonly held: number;
}

export interface Candidate<P extends Passes = Passes> extends Measured<P> {
  /** All of nonModel. */
  readonly other: number;
  /** Chunks that one operator needs at once. */
  readonly atOnce: number;
}

/** What must go down at once: the chunks that an update on the GPU completes together, where each step's state is kept below. */
export const leastStaging = (durable: boolean, workload: Workload, passes: Passes): StagingSize => ({
  down: durable && !updatesOnHost(workload) ? completeAtOnce(passes) : 1,
  up: 1,
});

const placed = new WeakMap<Program, Map<string, Placement>>();

export function placeAll({ programs }: Workload, { binding, buffer }: AdapterLimits, tight: boolean): Placement[] {
  const most = Math.min(binding, buffer);
  return programs.map((program) => {
    const known = placed.get(program) ?? new Map<string, Placement>();
    placed.set(program, known);
    const key = `${most} ${tight}`;
    const placement = known.get(key) ?? place(program, most, tight);
    known.set(key, placement);
    return placement;
  });
}

export const arenaBytes = (placements: readonly Placement[]): number =>
  arenaSizes(placements).reduce((a, b) => a + b, 0);

export function candidate<P extends Passes>(
  workload: Workload<P>,
  placements: readonly Placement[],
  chunkBytes: number,
  durable: boolean,
): Candidate<P> {
  const map = mapOf(workload, chunkBytes);
  return sketched(workload, map, placements, durable);
}

/** The same workload is measured on the same chunks for one budget after the other. */
const sketches = new WeakMap<Workload, WeakMap<ChunkMap, Passes>>();

/** Micro-batches that are looked at to measure a step: what the second one needs, the others do. */
const SKETCHED = 2;

/** Measured on a part of its micro-batches: most candidates are only measured. */
export function sketched<P extends Passes>(
  workload: Workload<P>,
  map: ChunkMap,
  placements: readonly Placement[],
  durable: boolean,
): Candidate<P> {
  // What ranks hold goes by what their passes hold.
  const most = workload.isShared ? undefined : SKETCHED;
  const known = (sketches.get(workload) ?? new WeakMap()) as WeakMap<ChunkMap, P>;
  sketches.set(workload, known);
  const passes = known.get(map) ?? workload.passes(map, most);
  known.set(map, passes);
  return measured(workload, map, passes, placements, durable);
}

/** With all of its micro-batches. */
export const whole = <P extends Passes>(found: Candidate<P>): Candidate<P> => ({
  ...found,
  passes: found.workload.isShared ? found.passes : found.workload.passes(found.map),
});

export function measured<P extends Passes>(
  workload: Workload<P>,
  map: ChunkMap,
  passes: P,
  placements: readonly Placement[],
  durable: boolean,
): Candidate<P> {
  const { atOnce, stashes, ...counted } = countedIn(passes, map.count);
  const nonModel = nonModelMemory(workload, placements, counted);
  const other = nonModel.arenas + nonModel.persistent;
  const onGPU = workload.isShared
    ? Math.max(...Object.values(passes).map(({ trace }) => mostHeld(trace)))
    : heldAtOnce(Object.values(passes), map, workload.inBackward !== undefined);
  const residents = workload.isShared ? onGPU : residentChunks(workload, map) - (map.count - onGPU);
  // What is given up stays below until the step is committed, where steps are.
  const held = workload.isShared || workload.inBackward ? onGPU : map.count;
  return { workload, map, passes, placements, nonModel, stashes, durable, other, atOnce, residents, held };
}

export function leastPeak({ workload, map, passes, durable, other, atOnce }: Candidate): number {
  const { down, up } = leastStaging(durable, workload, passes);
  return other + (Math.min(atOnce, map.count) + down + up) * map.chunkBytes;
}

/**
 * Chunks that `leastPeak` counts at least, told from the programs, before there are passes: where something trains, those that
 * an update of one index uses, and in staging those that it completes and one on its way up.
 */
export function leastChunks(workload: Workload, durable: boolean): number {
  const { parameters, training, programs, isShared } = workload;
  const kinds = new Set(trainedKindsOf(parameters));
  let [uses, completes] = [Math.min(1, parameters.length), 1];
  if (training && !isShared && parameters.some(({ trainable = true }) => trainable)) {
    for (const instruction of programs.flatMap(({ instructions }) => instructions)) {
      if (instruction.op !== 'dispatch each chunk') continue;
      const used = Object.values(instruction.operands).flatMap((operand) => ('kind' in operand ? [operand.kind] : []));
      uses = Math.max(uses, new Set(used.filter((kind) => kinds.has(kind))).size);
      completes = Math.max(completes, new Set(instruction.completes.filter((kind) => kinds.has(kind))).size);
    }
  }
  return uses + (durable && !updatesOnHost(workload) ? completes : 1) + 1;
}

const residentChunks = (workload: Workload, map: ChunkMap): number =>
  map.count -
  (updatesOnHost(workload) ? MOMENT_KINDS[map.moments].reduce((sum, kind) => sum + map.list(kind).chunks, 0) : 0);

/** What follows from passes alone, whatever they are measured for. */
interface Counted {
  readonly atOnce: number;
  readonly stashes: readonly number[];
  /** Bytes of uniform blocks, and of tensors that live on. */
  readonly uniforms: number;
  readonly persistent: number;
}

const counts = new WeakMap<Passes, Counted>();

function countedIn(passes: Passes, chunks: number): Counted {
  const known = counts.get(passes);
  if (known) return known;
  const dispatches = new Set(dispatchesOf(passes));
  const tensors = new Set<Tensor>(exchangedTensors(passes));
  for (const { operands } of dispatches) {
    for (const name in operands) {
      const operand = operands[name];
      if (operand && !isChunkRange(operand) && operand.role === 'persistent') tensors.add(holderOf(operand));
    }
  }
  const found = {
    atOnce: chunksAtOnce(passes),
    stashes: stashesIn(passes, chunks),
    uniforms: uniformCount(dispatches) * UNIFORM_STRIDE,
    persistent: [...tensors].reduce((sum, tensor) => sum + bytesOf(tensor), 0),
  };
  counts.set(passes, found);
  return found;
}

function nonModelMemory(
  { programs, readback }: Workload,
  placements: readonly Placement[],
  { uniforms, persistent }: Pick<Counted, 'uniforms' | 'persistent'>,
): NonModelMemory {
  return {
    arenas: arenaBytes(placements),
    alive: programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0),
    persistent: persistent + uniforms + readback.reads * readback.bytes,
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

/** What a fit needs below the GPU. */
export const needBelow = ({
  map,
  workload,
  held,
  stashes,
}: Pick<Measured, 'map' | 'workload' | 'held' | 'stashes'>): NeedBelow => ({
  ...{ chunks: map.count, held, chunkBytes: map.chunkBytes, largestPut: map.largestPut },
  ...{ updates: updatesOnHost(workload), stashes },
});
