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
// It leaves out what makes a plan slower: that fractions of an activation and of a chunk are no use, what is there while others are
// made again, staging but for the least, and where copies are beside arithmetic, all but the sums of each over the step. So no
// plan is faster whose blocks do not go in slices of rows, and one may be out of reach that is as fast.
// Source of the formulation: Jain et al. 2020, "Checkmate", with fates in place of times, and chunks beside activations.

import type { Highs } from 'highs';
import { candidate, leastStaging, passesOf, placeAll } from '../../engine/compile/candidate.ts';
import { chunkSizes } from '../../engine/compile/chunk-sizes.ts';
import { isChunkRange } from '../../engine/compile/operand-places.ts';
import type { Operation } from '../../engine/compile/operations.ts';
import type { AdapterLimits, Workload } from '../../engine/compile/workload.ts';
import { computeSeconds, type Machine, secondsOn } from '../../engine/simulate/machine.ts';
import { blocksOf, saved } from '../../graph/activations.ts';
import { alignedBytes } from '../../graph/liveness.ts';
import { isByItself, makersIn, makingOf } from '../../graph/makers.ts';
import {
  bytesOf,
  holderOf,
  type Program,
  type Tensor,
  type TensorInstruction,
  touchedBy,
} from '../../graph/program.ts';
import { LARGE_SLICE_BYTES } from '../../graph/row-slices.ts';
import { findGaps, type Gap } from '../../memory/plan/gaps.ts';
import { CyclicRoom, type Entry, LinearProgram } from '../../memory/plan/linear-program.ts';
import { chunkCount } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';

/**
 * Seconds of a step of a workload whose blocks keep all activations, of one micro-batch, on a machine within `budget` bytes, at
 * least: over all sizes of chunks. Infinite where what must be there at once does not fit.
 */
export function jointBound(
  highs: Highs,
  workload: Workload<TrainingPasses>,
  limits: AdapterLimits,
  machine: Machine,
  budget: number,
): number {
  return chunkSizes(workload, limits).reduce(
    (least, bytes) => Math.min(least, boundOn(highs, workload, limits, machine, budget, bytes)),
    Number.POSITIVE_INFINITY,
  );
}

function boundOn(
  highs: Highs,
  workload: Workload<TrainingPasses>,
  limits: AdapterLimits,
  machine: Machine,
  budget: number,
  bytes: number,
): number {
  const found = candidate(workload, placeAll(workload, limits, false), bytes, false);
  const { operations, trace } = passesOf(found).step;
  const { chunkBytes } = trace;
  const { down, up } = leastStaging(found);
  const [program] = workload.programs;
  assert(program, 'a workload has programs');
  const activations = savedIn(program, operations);
  const must = mustBe(program, operations, activations);
  const fixed = found.nonModel.persistent + (down + up) * chunkBytes;
  const room = trace.moments.map(({ accesses }, m) => budget - fixed - at(must, m) - accesses.length * chunkBytes);
  if (room.some((left) => left < 0)) return Number.POSITIVE_INFINITY;

  const problem = new LinearProgram();
  // In chunks: numbers that a solver likes.
  const rows = new CyclicRoom(
    problem,
    room.map((left) => left / chunkBytes),
  );
  const clock = clockOf(problem, machine, computeSeconds(machine, operations));
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
  clock.always('up', (gaps.list.length + gaps.forced.arrivals.length) * chunkBytes);
  clock.always('down', gaps.forced.stores * chunkBytes);
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

  const makers = makersIn(program);
  const again = new Map<TensorInstruction, number>();
  const columnOf = (maker: TensorInstruction): number => {
    const seconds = secondsOn(machine, maker);
    const made = again.get(maker) ?? problem.column({ cost: clock.computing(seconds) }, clock.computes(seconds));
    again.set(maker, made);
    return made;
  };
  for (const { tensor, forward, backward } of activations) {
    const row = problem.row(1);
    const kept = rows.entries(forward + 1, backward - forward - 1, alignedBytes(tensor) / chunkBytes);
    problem.column({}, [...kept, [row, 1]]);
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
  }
  const solution = problem.solve(highs);
  assert(solution, 'the least seconds of a step were not found');
  return solution.objective;
}

/** An activation that the backward pass reads, and the moments between which nothing needs it: its last use before and its first behind. */
interface SavedActivation {
  readonly tensor: Tensor;
  readonly forward: number;
  readonly backward: number;
}

interface Life {
  readonly first: number;
  last: number;
  forward: number;
  backward: number;
}

/** By moments: of each activation, its first and last use, the last in the forward pass and the first in the backward pass. */
function livesIn(operations: readonly Operation[]): Map<Tensor, Life> {
  const lives = new Map<Tensor, Life>();
  operations.forEach((operation, m) => {
    if (operation.op !== 'dispatch') return;
    for (const operand of Object.values(operation.operands)) {
      if (isChunkRange(operand)) continue;
      const tensor = holderOf(operand);
      if (tensor.role !== 'activation') continue;
      const life = lives.get(tensor) ?? { first: m, last: m, forward: m, backward: Number.POSITIVE_INFINITY };
      life.last = m;
      if (operation.phase === 'forward') life.forward = m;
      else life.backward = Math.min(life.backward, m);
      lives.set(tensor, life);
    }
  });
  return lives;
}

function savedIn(program: Program, operations: readonly Operation[]): SavedActivation[] {
  const lives = livesIn(operations);
  return saved(program).flatMap(({ tensor }): SavedActivation[] => {
    const life = lives.get(tensor);
    if (!life || life.backward > life.last || life.backward <= life.forward + 1) return [];
    return [{ tensor, forward: life.forward, backward: life.backward }];
  });
}

/** Bytes of activations at each moment that no choice spares. */
function mustBe(program: Program, operations: readonly Operation[], free: readonly SavedActivation[]): number[] {
  const bytes = operations.map(() => 0);
  const add = (first: number, last: number, size: number) => {
    for (let m = first; m <= last; m++) bytes[m] = at(bytes, m) + size;
  };
  const gapOf = new Map(free.map((activation) => [activation.tensor, activation]));
  const ofHeads = headsAlone(program);
  for (const [tensor, { first, last }] of livesIn(operations)) {
    const size = alignedBytes(tensor);
    const gap = gapOf.get(tensor);
    if (gap) {
      add(first, gap.forward, size);
      add(gap.backward, last, size);
    } else add(first, last, ofHeads.has(tensor) ? Math.min(size, LARGE_SLICE_BYTES) : size);
  }
  return bytes;
}

/** Activations that heads alone use: some rows at a time may be enough of them. */
function headsAlone({ instructions, ...rest }: Program): Set<Tensor> {
  const blocks = new Set(blocksOf({ instructions, ...rest }));
  const found = new Set<Tensor>();
  const others = new Set<Tensor>();
  for (const instruction of instructions) {
    const { layer } = instruction;
    const into = layer === undefined || blocks.has(layer) ? others : found;
    for (const { tensor } of touchedBy(instruction)) into.add(tensor);
  }
  for (const tensor of others) found.delete(tensor);
  return found;
}

/** How bytes and arithmetic become seconds: as costs where they take turns, and where they do not as rows that seconds are above. */
interface Clock {
  cost(way: 'up' | 'down', bytes: number): number;
  takes(way: 'up' | 'down', bytes: number): Entry[];
  /** Whatever is chosen. */
  always(way: 'up' | 'down', bytes: number): void;
  computing(seconds: number): number;
  computes(seconds: number): Entry[];
}

function clockOf(problem: LinearProgram, { link }: Machine, arithmetic: number): Clock {
  const seconds = (way: 'up' | 'down', bytes: number) =>
    bytes / (way === 'up' ? link.upBytesPerSecond : link.downBytesPerSecond);
  if (link.copies === 'serial') {
    problem.offset += arithmetic;
    return {
      cost: seconds,
      takes: () => [],
      always(way, bytes) {
        problem.offset += seconds(way, bytes);
      },
      computing: (more) => more,
      computes: () => [],
    };
  }
  const step = problem.column({ cost: 1, limit: Number.POSITIVE_INFINITY });
  const row = (least = 0) => {
    const made = problem.row(least);
    problem.add(step, made, 1);
    return made;
  };
  const [compute, up, down] = [row(arithmetic), row(), row()];
  const rowOf = { up, down };
  const whatever = problem.column({ limit: Number.POSITIVE_INFINITY });
  const one = problem.row(1, 1);
  problem.add(whatever, one, 1);
  return {
    cost: () => 0,
    takes: (way, bytes) => [[rowOf[way], -seconds(way, bytes)]],
    always: (way, bytes) => problem.add(whatever, rowOf[way], -seconds(way, bytes)),
    computing: () => 0,
    computes: (more) => [[compute, -more]],
  };
}
