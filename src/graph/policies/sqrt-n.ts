// Checkpoints at every √N-th block: only the inputs of these blocks stay. When the backward pass reaches a segment, the
// segment's forward pass runs once more from its checkpoint, and what it makes stays until its blocks are through.

import { withActivations } from '../activations.ts';
import type { ActivationPolicy } from './policy.ts';

export const sqrtN: ActivationPolicy = {
  name: '√N checkpoints',
  paper: 'Chen, Xu, Zhang, Guestrin 2016: Training Deep Nets with Sublinear Memory Cost',
  approximated: 'a block is made again when its backward pass needs it, with all before it in its segment',
  fillsRoom: false,
  apply: (program) => withActivations(program, () => 'sqrt'),
};
