// A checkpoint at every block: each block is made again from its input, which stays. What "gradient checkpointing" is in
// libraries of transformers.

import { withActivations } from '../activations.ts';
import type { ActivationPolicy } from './policy.ts';

export const recomputeAll: ActivationPolicy = {
  name: 'recompute all',
  paper: 'Chen, Xu, Zhang, Guestrin 2016, with segments of one block',
  approximated: '',
  fillsRoom: false,
  apply: (program) => withActivations(program, () => 'recompute'),
};
