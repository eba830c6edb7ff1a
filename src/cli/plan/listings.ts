// Listings of `holdfast plan --print`: the parts of a fit and its plan in full, a line an item.

import type { Fit } from '../../engine/compile/fitted.ts';
import type { StepPasses } from '../../engine/compile/pass.ts';
import { printProgram } from '../../graph/program.ts';
import { printLayout } from '../../memory/layout/print-layout.ts';
import { type Plan, printPlan } from '../../memory/plan/plan.ts';
import { printTrace } from '../../memory/plan/trace.ts';

/** What makes each, by the name that the flag has for it. */
export const LISTINGS = {
  program: ({ workload }: Fit) => workload.programs.map((p) => `${p.name}\n${printProgram(p)}`).join('\n\n'),
  layout: ({ map }: Fit) =>
    [...new Set(map.lists.filter(({ chunks }) => chunks > 0).map(({ kind }) => map.layoutOf(kind)))]
      .map(printLayout)
      .join('\n\n'),
  trace: ({ passes }: Fit<StepPasses>) => printTrace(passes.step.trace),
  plan: ({ passes }: Fit<StepPasses>, plan: Plan) => printPlan(passes.step.trace, plan),
};

export type Listing = keyof typeof LISTINGS;
