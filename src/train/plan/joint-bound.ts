// The least seconds that a step may take within a budget, whatever becomes of each activation and of each chunk: a linear program,
// beside which the plans of this project and of others can be held. Solved by HiGHS, for reports; plans do not come from it.
//
//   minimise    arithmetic + sum over instructions of a_i * its seconds                   (made again)
//               + what moves of activations and chunks, up and down, by the link
//   subject to  k_u + m_u + r_u >= 1                for each activation u that is saved   (kept, moved, made again)
//               a_i >= r_u                          for each instruction i that makes u       (one of two, where either does)
//               chunks as in memory/plan/bound.ts
//               kept activations and chunks at each moment <= budget - what must be there
//
//               made again, it is behind what it is made of, which then stays until it is needed itself
//
// What must be there at a moment is what its operator uses: an activation of a block may be gone between the two passes. Where blocks go in
// slices of rows, what becomes of each activation is said by the way (`sparing`), and the program is over chunks alone. It leaves out
// what makes a plan slower: that fractions of an activation and of a chunk are no use, what is there while others are made again,
// staging but for the least, and where copies are beside arithmetic, all but the sums of each over the step. So no plan is faster, and
// one may be out of reach that is as fast.
// Source of the formulation: Jain et al. 2020, "Checkmate", with fates in place of times, and chunks beside activations.

import type { Highs } from 'highs';
import { leastStaging, measured, passesOf, placeAll } from '../../engine/compile/candidate.ts';
import { chunkSizes, mapOf, mapsInFewerPieces } from '../../engine/compile/chunk-sizes.ts';
import { activationsIn } from '../../engine/compile/extra-slots.ts';
import type { Operation } from '../../engine/compile/operations.ts';
import { fetchedBytes, offloadedBytes } from '../../engine/compile/pass-figures.ts';
import type { AdapterLimits, Workload } from '../../engine/compile/workload.ts';
import { computeSeconds, type Machine, secondsOn } from '../../engine/simulate/machine.ts';
import { activationsOf, type BlockActivation, blocksOf } from '../../graph/activations.ts';
import { alignedBytes } from '../../graph/liveness.ts';
import { isByItself, type Makers, makersIn, makingOf } from '../../graph/makers.ts';
import {
  bytesOf,
  operandsOf,
  type Program,
  type Tensor,
  type TensorInstruction,
  touchedBy,
} from '../../graph/program.ts';
import { mostLargeSlices } from '../../graph/row-slices.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { findGaps, type Gap } from '../../memory/plan/gaps.ts';
import { CyclicRoom, type Entry, LinearProgram } from '../../memory/plan/linear-program.ts';
import { chunkCount, type Trace } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';

/** For the optimum on one size of chunks. */
const MOST_SECONDS = 60;

/** How far a program over whole numbers is followed: no further than to this share of the best solution that was found. */
const WHOLE_GAP = 0.002;

/**
 * Seconds of a step of a workload whose blocks keep all activations, of one micro-batch, on a machine within `budget` bytes, at
 * least: over all sizes of chunks. Infinite where what must be there at once does not fit; undefined where it is not found in a minute.
 * `wholeSeconds`: activations and chunks are whole, as far as that is proved in so many seconds of each size.
 */
export function jointBound(
  highs: Highs,
  workload: Workload<TrainingPasses>,
  limits: AdapterLimits,
  machine: Machine,
  budget: number,
  wholeSeconds = 0,
): number | undefined {
  let least = Number.POSITIVE_INFINITY;
  const stated: { problem: LinearProgram; unit: number; seconds: number }[] = [];
  const sliced = workload.activations?.sparing?.flatMap((inDegrees) => [...inDegrees()]) ?? [];
  for (const way of [workload, ...sliced.toReversed()]) {
    for (const map of mapsOf(way, limits)) {
      const found = programOn(way, limits, { machine, budget, map, least, isDecided: way !== workload });
      if (!found) continue;
      const { problem, unit } = found;
      const solution = problem.solve(highs, { seconds: MOST_SECONDS });
      if (!solution) return undefined;
      const seconds = unit * solution.objective;
      stated.push({ problem, unit, seconds });
      if (wholeSeconds === 0) least = Math.min(least, seconds);
    }
  }
  if (wholeSeconds === 0) return least;
  // Those first that may be the least: of the others few are left to follow.
  for (const { problem, unit, seconds } of stated.sort((a, b) => a.seconds - b.seconds)) {
    if (seconds >= least) break;
    const whole = unit * problem.wholeBound(highs, { seconds: wholeSeconds, gap: WHOLE_GAP });
    least = Math.min(least, Math.max(seconds, whole));
  }
  return least;
}

/** The chunks that a plan may have, the largest first. */
function mapsOf(workload: Workload, limits: AdapterLimits): ChunkMap[] {
  const usual = chunkSizes(workload, limits).map((bytes) => mapOf(workload, bytes));
  const others = usual.flatMap((map) => mapsInFewerPieces(workload, limits, map));
  return [...new Set([...usual, ...others])].sort((a, b) => b.chunkBytes - a.chunkBytes);
}

interface BoundOn {
  readonly machine: Machine;
  readonly budget: number;
  readonly map: ChunkMap;
  /** What a step takes at least on other chunks. */
  readonly least: number;
  /** Whether the programs say what becomes of activations. */
  readonly isDecided: boolean;
}

/** Undefined where what must be there does not fit, or no step is faster than `least`. */
function programOn(
  workload: Workload<TrainingPasses>,
  limits: AdapterLimits,
  { machine, budget, map, least, isDecided }: BoundOn,
): { problem: LinearProgram; unit: number } | undefined {
  const found = measured(workload, map, placeAll(workload, limits), false);
  const { step } = passesOf(found);
  const { operations, trace } = step;
  const { chunkBytes } = trace;
  const arithmetic = computeSeconds(machine, operations);
  const moved = { down: offloadedBytes(step), up: fetchedBytes(step) };
  const { upBytesPerSecond, downBytesPerSecond, copies } = machine.link;
  const moves = moved.up / upBytesPerSecond + moved.down / downBytesPerSecond;
  // No step is faster than its arithmetic.
  if (arithmetic + (copies === 'serial' ? moves : 0) >= least) return undefined;
  const { down, up } = leastStaging(found);
  const [program] = workload.programs;
  assert(program, 'a workload has programs');
  const lives = livesIn(operations);
  const all = isDecided ? [] : activationsOf(program);
  const activations = savedIn(all, lives);
  const must = mustBe(program, lives, new Set(all.map(({ tensor }) => tensor)), operations.length);
  const fixed = found.nonModel.persistent + (down + up) * chunkBytes;
  const room = trace.moments.map(({ accesses }, m) => budget - fixed - at(must, m) - accesses.length * chunkBytes);
  if (room.some((left) => left < 0)) return undefined;

  const problem = new LinearProgram();
  const rows = new CyclicRoom(
    problem,
    room.map((left) => left / chunkBytes),
  );
  // A chunk's move is about 1: a solver goes by what is no more than a millionth.
  const unit = chunkBytes / machine.link.upBytesPerSecond;
  const clock = clockOf(problem, machine, unit, arithmetic);
  const stated = { problem, rows, clock, chunkBytes };
  addChunks(stated, trace, moved);
  addActivations(stated, machine, makersIn(program), activations);
  return { problem, unit };
}

/** A program that is being stated: what each choice takes of the room and of the time is added to it. */
interface Stated {
  readonly problem: LinearProgram;
  /** In chunks: numbers that a solver likes. */
  readonly rows: CyclicRoom;
  readonly clock: Clock;
  readonly chunkBytes: number;
}

/** Each gap of a chunk kept or not, and each change of it stored once if any is not. `others`: bytes that move beside chunks. */
function addChunks(
  { problem, rows, clock, chunkBytes }: Stated,
  trace: Trace,
  others: { readonly up: number; readonly down: number },
): void {
  const gaps = findGaps(
    trace,
    trace.moments.map(() => chunkCount(trace)),
  );
  const columns = new Map<Gap, number>();
  for (const gap of gaps.list) {
    // Kept, it spares a load.
    const entries = [...rows.entries(gap.from + 1, gap.to - gap.from - 1), ...clock.takes('up', -chunkBytes)];
    columns.set(gap, problem.column({ cost: clock.cost('up', -chunkBytes) }, entries));
  }
  clock.always('up', others.up + (gaps.list.length + gaps.forced.arrivals.length) * chunkBytes);
  clock.always('down', others.down + gaps.forced.stores * chunkBytes);
  for (const epoch of gaps.epochs) {
    const dropped = problem.column({ cost: clock.cost('down', chunkBytes) }, clock.takes('down', chunkBytes));
    for (const gap of epoch) {
      const kept = columns.get(gap);
      assert(kept !== undefined, 'an epoch is made of gaps');
      const row = problem.row(1);
      problem.add(dropped, row, 1);
      problem.add(kept, row, 1);
    }
  }
}

/** Each activation that is saved kept, moved or made again, and each instruction run again that this takes. */
function addActivations(
  { problem, rows, clock, chunkBytes }: Stated,
  machine: Machine,
  makers: Makers,
  activations: readonly SavedActivation[],
): void {
  const again = new Map<TensorInstruction, number>();
  const columnOf = (maker: TensorInstruction): number => {
    const seconds = secondsOn(machine, maker);
    const made = again.get(maker) ?? problem.column({ cost: clock.computing(seconds) }, clock.computes(seconds));
    again.set(maker, made);
    return made;
  };
  const saved = new Map(
    activations.map(({ tensor, forward, backward }) => {
      const room = rows.entries(forward + 1, backward - forward - 1, alignedBytes(tensor) / chunkBytes);
      return [tensor, { backward, kept: problem.column({}, room) }] as const;
    }),
  );
  for (const [tensor, { backward, kept }] of saved) {
    const row = problem.row(1);
    problem.add(kept, row, 1);
    const size = bytesOf(tensor);
    const moves = [...clock.takes('up', size), ...clock.takes('down', size)];
    problem.column({ cost: clock.cost('up', size) + clock.cost('down', size) }, [...moves, [row, 1]]);
    const { needed } = makingOf(tensor, makers);
    if (needed.size === 0) continue;
    const remade = problem.column({}, [[row, 1]]);
    for (const maker of needed) {
      const enough = problem.row(0);
      problem.add(remade, enough, -1);
      problem.add(columnOf(maker), enough, 1);
      // The product that gives its sums gives it, too.
      const { x } = maker.operands;
      for (const product of (isByItself(maker) && x && makers.get(x)) || []) problem.add(columnOf(product), enough, 1);
    }
    // What it is made of is there from then on, if it is needed itself.
    const inputs = new Set(
      [...needed].filter((maker) => !isByItself(maker)).flatMap((maker) => operandsOf(maker, 'in')),
    );
    for (const input of inputs) {
      const other = saved.get(input);
      if (!other || other.backward <= backward) continue;
      const there = rows.entries(backward, other.backward - backward, alignedBytes(input) / chunkBytes);
      const enough = problem.row(0);
      problem.column({}, [...there, [enough, 1]]);
      problem.add(other.kept, enough, 1);
      problem.add(remade, enough, -1);
    }
  }
}

/** An activation that the backward pass reads, and the moments between which nothing needs it: its last use before and its first behind. */
interface SavedActivation {
  readonly tensor: Tensor;
  readonly forward: number;
  readonly backward: number;
}

/** By moments: of an activation, its first use and its last, the last in the forward pass and the first behind it. */
interface Life {
  readonly first: number;
  last: number;
  forward: number;
  backward: number;
}

function livesIn(operations: readonly Operation[]): Map<Tensor, Life> {
  const lives = new Map<Tensor, Life>();
  operations.forEach((operation, m) => {
    for (const tensor of activationsIn(operation)) {
      const life = lives.get(tensor) ?? { first: m, last: m, forward: -1, backward: Number.POSITIVE_INFINITY };
      life.last = m;
      if (operation.phase === 'forward') life.forward = m;
      else life.backward = Math.min(life.backward, m);
      lives.set(tensor, life);
    }
  });
  return lives;
}

function savedIn(all: readonly BlockActivation[], lives: ReadonlyMap<Tensor, Life>): SavedActivation[] {
  return all.flatMap(({ tensor, isRead }): SavedActivation[] => {
    const life = lives.get(tensor);
    if (!isRead || !life || life.backward === Number.POSITIVE_INFINITY || life.backward <= life.forward + 1) return [];
    return [{ tensor, forward: life.forward, backward: life.backward }];
  });
}

/** Bytes of activations at each of so many moments that no choice spares; those of blocks may go between their uses in the two passes. */
function mustBe(
  program: Program,
  lives: ReadonlyMap<Tensor, Life>,
  ofBlocks: ReadonlySet<Tensor>,
  moments: number,
): number[] {
  const bytes = new Array<number>(moments).fill(0);
  const add = (m: number, size: number) => {
    bytes[m] = at(bytes, m) + size;
  };
  const ofHeads = headsAlone(program);
  const slices = mostLargeSlices([...ofHeads].reduce((most, { size }) => Math.max(most, size), 0));
  for (const [tensor, { first, last, forward, backward }] of lives) {
    const size = alignedBytes(tensor) / (ofHeads.has(tensor) ? slices : 1);
    const mayGo = ofBlocks.has(tensor);
    for (let m = first; m <= last; m++) if (!mayGo || m <= forward || m >= backward) add(m, size);
  }
  return bytes;
}

/** Activations that heads alone use: some rows at a time may be enough of them. */
function headsAlone(program: Program): Set<Tensor> {
  const blocks = new Set(blocksOf(program));
  const found = new Set<Tensor>();
  const others = new Set<Tensor>();
  for (const instruction of program.instructions) {
    const { layer } = instruction;
    const into = layer === undefined || blocks.has(layer) ? others : found;
    for (const { tensor } of touchedBy(instruction)) into.add(tensor);
  }
  for (const tensor of others) found.delete(tensor);
  return found;
}

/** How bytes and arithmetic become time, in some unit: as costs where they take turns, and where they do not as rows that it is above. */
interface Clock {
  cost(way: 'up' | 'down', bytes: number): number;
  takes(way: 'up' | 'down', bytes: number): Entry[];
  /** Whatever is chosen. */
  always(way: 'up' | 'down', bytes: number): void;
  computing(seconds: number): number;
  computes(seconds: number): Entry[];
}

/** `unit`, `arithmetic`: seconds. */
function clockOf(problem: LinearProgram, { link }: Machine, unit: number, arithmetic: number): Clock {
  const time = (way: 'up' | 'down', bytes: number) =>
    bytes / (way === 'up' ? link.upBytesPerSecond : link.downBytesPerSecond) / unit;
  if (link.copies === 'serial') {
    problem.offset += arithmetic / unit;
    return {
      cost: time,
      takes: () => [],
      always(way, bytes) {
        problem.offset += time(way, bytes);
      },
      computing: (seconds) => seconds / unit,
      computes: () => [],
    };
  }
  const step = problem.column({ cost: 1, limit: Number.POSITIVE_INFINITY, isWhole: false });
  const row = (least = 0) => {
    const made = problem.row(least);
    problem.add(step, made, 1);
    return made;
  };
  const [compute, up, down] = [row(arithmetic / unit), row(), row()];
  const rowOf = { up, down };
  const whatever = problem.column({ limit: Number.POSITIVE_INFINITY, isWhole: false });
  const one = problem.row(1, 1);
  problem.add(whatever, one, 1);
  return {
    cost: () => 0,
    takes: (way, bytes) => [[rowOf[way], -time(way, bytes)]],
    always: (way, bytes) => problem.add(whatever, rowOf[way], -time(way, bytes)),
    computing: () => 0,
    computes: (seconds) => [[compute, -seconds / unit]],
  };
}
