// The policies for activations that are compared: a new one is a file beside this, and its row here.

import { capuchin } from './capuchin.ts';
import { dtr } from './dtr.ts';
import { keepAll } from './keep-all.ts';
import type { ActivationPolicy } from './policy.ts';
import { recomputeAll } from './recompute-all.ts';
import { sqrtN } from './sqrt-n.ts';
import { superNeurons } from './superneurons.ts';
import { vdnn } from './vdnn.ts';

export type { ActivationPolicy, Setting } from './policy.ts';

/** From the simplest on. */
export const ACTIVATION_POLICIES: readonly ActivationPolicy[] = [
  keepAll,
  sqrtN,
  recomputeAll,
  vdnn,
  superNeurons,
  capuchin,
  dtr,
];
