// Lines of `holdfast plan` on an update inside the backward pass: the gradients that are held at once, and what the
// pass that finds the norm costs.

import type { Fit } from '../../engine/compile/fitted.ts';
import { isDispatch } from '../../engine/compile/operations.ts';
import type { Pass, StepPasses } from '../../engine/compile/pass.ts';
import { flopsOf } from '../../engine/compile/pass-figures.ts';
import type { BackwardPasses } from '../../graph/operators/optimizer.ts';
import { scaledStepControl, stepControl } from '../../kernels/step-control.ts';
import { KINDS } from '../../memory/layout/kinds.ts';
import { formatBytes } from '../../util/bytes.ts';

export interface UpdateFacts {
  readonly backwardPasses: BackwardPasses;
  /** Whether the first of two is there for what overflows, too: also of a step that clips nothing. */
  readonly findsOverflows: boolean;
  /** Bytes of the chunks of gradients that have values at once, and of all. */
  readonly heldGradients: number;
  readonly allGradients: number;
  /** Its arithmetic in that of a step that updates at its end. */
  readonly arithmetic: number;
}

export function updateFacts({ map, held, passes }: Fit<StepPasses>, backwardPasses: BackwardPasses): UpdateFacts {
  const gradients = map.lists.filter(({ kind }) => KINDS[kind].between === 'FREE');
  const all = gradients.reduce((sum, { chunks }) => sum + chunks, 0);
  const flops = flopsOf(passes.step);
  return {
    backwardPasses,
    findsOverflows: map.dtype === 'f16',
    heldGradients: (held - (map.count - all)) * map.chunkBytes,
    allGradients: all * map.chunkBytes,
    arithmetic: backwardPasses === 1 ? 1 : flops / (flops - firstPassFlops(passes.step)),
  };
}

/** Arithmetic of the backward pass before the decision. */
function firstPassFlops({ operations }: Pass): number {
  const dispatches = operations.filter(isDispatch);
  const decided = dispatches.findIndex(({ kernel }) => kernel === stepControl || kernel === scaledStepControl);
  return dispatches
    .slice(0, decided)
    .reduce((sum, { phase, kernel, problem }) => sum + (phase === 'backward' ? kernel.flops(problem) : 0), 0);
}

export function describeUpdate(facts: UpdateFacts): string {
  const { backwardPasses, findsOverflows, heldGradients, allGradients, arithmetic } = facts;
  const [found, without] = findsOverflows ? ['what overflows, and the norm', ''] : ['the norm', ' (--clip 0: 1 x)'];
  return `${formatBytes(heldGradients).padStart(10)}  of gradients at once, of ${formatBytes(allGradients)}: each chunk is updated inside ${
    backwardPasses === 1
      ? 'the backward pass, and nothing is clipped'
      : `the second of two backward passes, the first of which finds ${found} to clip by: ${arithmetic.toFixed(2)} x the arithmetic of an update at the end${without}`
  }`;
}
