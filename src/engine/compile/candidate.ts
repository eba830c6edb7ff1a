// A candidate for a fit: a workload on chunks of one size with its activations placed, and what memory that takes. It has no
// passes: those of the one that is taken are made last (`passesOf`).

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import { liveBytes, type Placement, place } from '../../graph/liveness.ts';
import { bytesOf, type Program } from '../../graph/program.ts';
import { type ChunkMap, trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { lastingKinds, optimizerKinds } from '../../memory/layout/kinds.ts';
import { mostHeld, mostHeldAnywhere } from '../../memory/plan/trace.ts';
import type { NeedBelow } from '../../memory/tiers/shares.ts';
import { mapOf } from './chunk-sizes.ts';
import { heldAtOnce, type Passes } from './pass.ts';
import { type Tally, tally, tallyOf } from './tally.ts';
import { type AdapterLimits, heldByUpdate, updatesOnGPU, updatesOnHost, type Workload } from './workload.ts';

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

export interface FitCandidate<P extends Passes = Passes> extends Measured<P> {
  /** All of nonModel. */
  readonly other: number;
  /** Chunks that one operator needs at once. */
  readonly atOnce: number;
  /** Chunks that an update on the GPU completes together, at most. */
  readonly completed: number;
}

/** What must go down at once: the chunks that an update on the GPU completes together, where each step's state is kept below. */
export const leastStaging = ({ durable, workload, completed }: FitCandidate): StagingSize => ({
  down: durable && updatesOnGPU(workload) ? completed : 1,
  up: 1,
});

const placed = new WeakMap<Program, Map<number, Placement>>();

export function placeAll({ programs }: Workload, { binding, buffer }: AdapterLimits): Placement[] {
  const most = Math.min(binding, buffer);
  return programs.map((program) => {
    const known = placed.get(program) ?? new Map<number, Placement>();
    placed.set(program, known);
    const placement = known.get(most) ?? place(program, most);
    known.set(most, placement);
    return placement;
  });
}

export const arenaBytes = (placements: readonly Placement[]): number =>
  arenaSizes(placements).reduce((a, b) => a + b, 0);

export const candidate = <P extends Passes>(
  workload: Workload<P>,
  placements: readonly Placement[],
  chunkBytes: number,
  durable: boolean,
): FitCandidate<P> => measured(workload, mapOf(workload, chunkBytes), placements, durable);

export function measured<P extends Passes>(
  workload: Workload<P>,
  map: ChunkMap,
  placements: readonly Placement[],
  durable: boolean,
): FitCandidate<P> {
  const counted = countedOn(workload, map);
  const { atOnce, completed, stashes, onGPU, anywhere } = counted;
  const nonModel = nonModelMemory(workload, placements, counted);
  const other = nonModel.arenas + nonModel.persistent;
  const residents = workload.isShared ? onGPU : residentChunks(workload, map) - (map.count - onGPU);
  // What is given up stays below until the step is committed, where steps are.
  const held = workload.isShared || workload.inBackward ? anywhere : map.count;
  return { workload, map, placements, nonModel, stashes, durable, other, atOnce, completed, residents, held };
}

/** The passes of a candidate, with all of its micro-batches. */
export const passesOf = <P extends Passes>({ workload, map }: FitCandidate<P>): P =>
  workload.isShared ? sketchOf(workload, map) : workload.passes(map);

/** What a workload takes on the chunks of a layout, wherever its activations lie. */
interface Counted extends Tally {
  /** Chunks that have values on the GPU at once, at most. */
  readonly onGPU: number;
  /** Chunks that have values on the GPU or below it at once, at most. */
  readonly anywhere: number;
}

/** What was counted before: a workload is measured on its chunks for one budget after the other. */
const counts = new WeakMap<Workload, WeakMap<ChunkMap, Counted>>();

function countedOn(workload: Workload, map: ChunkMap): Counted {
  const known = counts.get(workload) ?? new WeakMap<ChunkMap, Counted>();
  counts.set(workload, known);
  const found = known.get(map) ?? count(workload, map);
  known.set(map, found);
  return found;
}

function count(workload: Workload, map: ChunkMap): Counted {
  // What other ranks have, or a step frees on its way, is told from its moments.
  if (workload.isShared) {
    const passes = sketchOf(workload, map);
    const most = (heldIn: typeof mostHeld) => Math.max(...Object.values(passes).map(({ trace }) => heldIn(trace)));
    return { ...tallyOf(passes, map), onGPU: most(mostHeld), anywhere: most(mostHeldAnywhere) };
  }
  if (workload.training && (workload.inBackward || map.dtype !== 'f32')) {
    const passes = sketchOf(workload, map);
    const onGPU = heldAtOnce(Object.values(passes), map, workload.inBackward !== undefined);
    return { ...tallyOf(passes, map), onGPU, anywhere: onGPU };
  }
  return { ...tally(workload.programs, map), onGPU: map.count, anywhere: map.count };
}

/** Micro-batches that are looked at to measure a step: what the second one needs, the others do. */
const SKETCHED = 2;

const sketches = new WeakMap<Workload, WeakMap<ChunkMap, Passes>>();

/** The passes with a part of their micro-batches. */
function sketchOf<P extends Passes>(workload: Workload<P>, map: ChunkMap): P {
  const known = (sketches.get(workload) ?? new WeakMap()) as WeakMap<ChunkMap, P>;
  sketches.set(workload, known);
  // What ranks hold goes by what their passes hold.
  const passes = known.get(map) ?? workload.passes(map, workload.isShared ? undefined : SKETCHED);
  known.set(map, passes);
  return passes;
}

export function leastPeak(found: FitCandidate): number {
  const { map, other, atOnce } = found;
  const { down, up } = leastStaging(found);
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
  return uses + (durable && updatesOnGPU(workload) ? completes : 1) + 1;
}

const residentChunks = (workload: Workload, map: ChunkMap): number =>
  map.count -
  (updatesOnHost(workload)
    ? optimizerKinds(map.dtype, map.momentDtype).reduce(
        (sum, kind) => sum + map.list(kind).chunks - map.updatedOnGPU(kind),
        0,
      )
    : 0);

function nonModelMemory(
  { programs, readback }: Workload,
  placements: readonly Placement[],
  counted: Tally,
): NonModelMemory {
  const uniforms = counted.uniforms * UNIFORM_STRIDE;
  const lasting = [...counted.lasting].reduce((sum, tensor) => sum + bytesOf(tensor), 0);
  return {
    arenas: arenaBytes(placements),
    alive: programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0),
    persistent: lasting + uniforms + readback.reads * readback.bytes,
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

/** Whether nothing of a fit lies below the GPU but copies of what is on it. */
export const isAllOnGPU = ({
  slots,
  residents,
  stashes,
  workload,
}: Pick<Measured, 'residents' | 'stashes' | 'workload'> & { readonly slots: number }): boolean =>
  slots >= residents && stashes.length === 0 && !updatesOnHost(workload);

/** Whether updates on the host may wait while the GPU goes on: below the GPU there is room for all values at once. */
export const updatesAside = ({ map, held }: Pick<Measured, 'map' | 'held'>): boolean => held === map.count;

/** Whether the host may begin updates before their step is decided, beside the values that they are of. */
export const updatesAhead = ({ workload }: Pick<Measured, 'workload'>): boolean =>
  updatesOnHost(workload) && !workload.inBackward && !workload.isShared;

/** Whether it does: a software adapter computes on the same processor, and there nothing is gained by it. */
export const beginsAhead = (
  fit: Pick<Measured, 'workload'> & { readonly durable: boolean },
  { software = false }: Pick<AdapterLimits, 'software'>,
): boolean => updatesAhead(fit) && fit.durable && !software;

/** What a fit needs below the GPU. `isAhead`: whether updates begin there before their step is decided. */
export function needBelow(
  fit: Pick<Measured, 'map' | 'workload' | 'held' | 'stashes'>,
  isAhead = updatesAhead(fit),
): NeedBelow {
  const { map, workload, held, stashes } = fit;
  const { dtype, momentDtype, hostIndex } = map;
  const onHost = map.indices.filter((index) => index >= hostIndex).length;
  const beside = isAhead ? onHost * lastingKinds(dtype, momentDtype).length : 0;
  return {
    ...{ chunks: map.count, held, chunkBytes: map.chunkBytes, largestPut: map.largestPut },
    ...{ updates: heldByUpdate(workload), stashes, ...(beside > 0 && { beside }) },
  };
}
