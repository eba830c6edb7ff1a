// The curves of `plan --hardware --sweep`: the time of a step over the budget, a line a machine, by its prediction.

import { type Machine, usableMemory } from '../../engine/simulate/machine.ts';
import type { SweepLine } from '../../report/sweep.ts';
import { Predictor } from '../../train/plan/prediction.ts';
import type { Scenario } from '../../train/plan/prediction-part.ts';
import { budgetBetween } from '../../train/plan/sweep.ts';
import { HoldfastError } from '../../util/errors.ts';

/** So many budgets between the smallest and all, on so many blocks at most. */
export const SWEPT_BUDGETS = 20;
const SWEEP_BLOCKS = 8;

interface SweptMachines {
  readonly lines: readonly SweepLine[];
  /** Machines that cannot do it. */
  readonly leftOut: readonly { readonly label: string; readonly reason: string }[];
}

/** `hostOf`: bytes of host memory. Errors: HoldfastError where no machine can do it, of the first. */
export function sweepMachines(
  scenario: Scenario,
  machines: readonly Machine[],
  hostOf: (predictor: Predictor) => number,
): SweptMachines {
  const lineOf = (machine: Machine): SweepLine => {
    const predictor = new Predictor(scenario, machine, SWEEP_BLOCKS);
    const { smallest, resident } = predictor;
    const host = hostOf(predictor);
    const points = Array.from({ length: SWEPT_BUDGETS }, (_, i) => {
      const budget = budgetBetween(smallest, resident.bytes, i / (SWEPT_BUDGETS - 1));
      return { budget, seconds: predictor.at(budget, host).seconds };
    });
    return { label: machine.title, points, resident: predictor.fastest, has: usableMemory(machine).gpu };
  };
  const lines: SweepLine[] = [];
  const leftOut: { label: string; reason: string }[] = [];
  for (const machine of machines) {
    try {
      lines.push(lineOf(machine));
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      leftOut.push({ label: machine.title, reason: error.message });
    }
  }
  const [first] = leftOut;
  if (first && lines.length === 0) throw new HoldfastError(`${first.label}: ${first.reason}`);
  return { lines, leftOut };
}
