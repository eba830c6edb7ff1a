// Scaling of a step's time with the number of ranks, on machines that are described in files: weak scaling, where each
// rank has as many micro-batches whatever their number, and strong scaling, where all together have.

import type { Machine } from '../../engine/simulate/machine.ts';
import { HoldfastError } from '../../util/errors.ts';
import { type Prediction, Predictor } from './prediction.ts';
import type { Scenario } from './prediction-part.ts';

export const SCALINGS = ['weak', 'strong'] as const;
export type Scaling = (typeof SCALINGS)[number];

/** A step on so many ranks. */
export interface ScalingRow {
  readonly ranks: number;
  /** Sequences in a micro-batch, and micro-batches of a rank. */
  readonly batch: number;
  readonly accumulate: number;
  /** Undefined where it does not fit, and why. */
  readonly found: Prediction | undefined;
  readonly refused?: string;
  /** Tokens a second and rank, beside those of the fewest ranks that it fits on. */
  readonly efficiency?: number;
}

/** What a rank may use; undefined for the GPU: everything is there. */
export type BudgetsOf = (predictor: Predictor) => { readonly gpu: number | undefined; readonly host: number };

/** From one copy of the model to those of the scenario, by powers of two. */
export function scale(scenario: Scenario, machine: Machine, how: Scaling, budgetsOf: BudgetsOf): ScalingRow[] {
  const { ranks } = scenario;
  if (!ranks) throw new HoldfastError(`${how} scaling is of several ranks`);
  const { tensor = 1, pipeline = 1 } = ranks;
  const each = tensor * pipeline;
  const copies = ranks.size / each;
  const counts: number[] = [];
  for (let count = 1; count < copies; count *= 2) counts.push(count);
  const sequences = scenario.batch * scenario.accumulate * copies;
  // The same step is on all of them: each count has as many sequences as every other.
  const compared = [...counts, copies].filter((count) => how === 'weak' || sequences % count === 0);
  const rows = compared.map((count): ScalingRow => {
    const size = count * each;
    const { batch, accumulate } = how === 'weak' ? scenario : dealt(sequences, count, scenario.batch);
    const place = { ranks: size, batch, accumulate };
    try {
      const own = { ...scenario, batch, accumulate, ranks: size > 1 ? { ...ranks, size } : undefined };
      const predictor = new Predictor({ ...own, reckonsMicroBatches: true }, machine);
      const { gpu, host } = budgetsOf(predictor);
      return { ...place, found: predictor.at(gpu, host) };
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      return { ...place, found: undefined, refused: error.message };
    }
  });
  const first = rows.find(({ found }) => found);
  return rows.map((row) => {
    const { found, ranks } = row;
    if (!found || !first?.found) return row;
    const each = found.tokensPerSecond / ranks;
    return { ...row, efficiency: each / (first.found.tokensPerSecond / first.ranks) };
  });
}

/** So many sequences on so many copies of the model: micro-batches are as large as was asked for, or smaller where there are too few. */
function dealt(sequences: number, size: number, most: number): { batch: number; accumulate: number } {
  const each = sequences / size;
  let batch = Math.min(most, each);
  while (each % batch !== 0) batch--;
  return { batch, accumulate: each / batch };
}
