// The flag of when chunks are updated, and what it does not go with on the command line. That it changes no bit is the
// trainer's invariant.

import { Option } from 'commander';
import type { Recovery } from '../engine/compile/recovery.ts';
import type { AccumulateOrder } from '../graph/layer-major.ts';
import { UPDATES, type Update } from '../graph/operators/optimizer.ts';
import { HoldfastError } from '../util/errors.ts';

/** When chunks are updated. */
export const updateOption = (): Option =>
  new Option(
    '--update <when>',
    'each chunk behind all gradients (at-end), or as soon as its own is complete (in-backward): no list of gradients is held; to clip, and in f16, a second backward pass makes them again',
  )
    .choices([...UPDATES])
    .default('at-end');

interface UpdateFlags {
  readonly recovery?: Recovery;
  readonly accumulateOrder?: AccumulateOrder | 'auto';
  readonly accumulate: number;
}

/** Errors: HoldfastError for flags that an update inside the backward pass does not go with. */
export function checkUpdate(
  update: Update,
  { recovery, accumulateOrder, accumulate }: UpdateFlags,
  given: (name: 'recovery') => boolean,
): void {
  if (update === 'at-end') return;
  if (recovery === 'step' && given('recovery'))
    throw new HoldfastError(
      '--update in-backward: --recovery step finishes a step from its gradients, and none are kept; leave --recovery out',
    );
  if (accumulate > 1 && accumulateOrder === 'batch')
    throw new HoldfastError(
      '--update in-backward: micro-batches one after the other hold the gradients of all chunks from one to the next; ' +
        'let them go layer by layer (--accumulate-order layer, or auto)',
    );
}
