// Checkpoints at every √N-th block: only the inputs of these blocks stay. When the backward pass reaches a segment, the
// segment's forward pass runs once more from its checkpoint, and what it makes stays until its blocks are through.

import { blocksOf, withFates } from '../activations.ts';
import type { ActivationPolicy } from './policy.ts';

export const sqrtN: ActivationPolicy = {
  name: '√N checkpoints',
  paper: 'Chen, Xu, Zhang, Guestrin 2016: Training Deep Nets with Sublinear Memory Cost',
  approximated: 'a block is made again when its backward pass needs it, with all before it in its segment',
  fillsRoom: false,
  apply(program) {
    const blocks = blocksOf(program);
    const length = Math.ceil(Math.sqrt(blocks.length));
    const checkpoints = new Set(blocks.filter((_, i) => i % length === 0));
    return withFates(program, ({ block, kind }) => (kind === 'input' && checkpoints.has(block) ? 'keep' : 'again'));
  },
};
