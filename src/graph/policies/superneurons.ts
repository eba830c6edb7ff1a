// SuperNeurons: outputs of layers that are quickly computed are made again; those of the others are a cache of tensors on
// the GPU, whose least recently used are moved to host memory when there is no room.

import { fewest } from '../../util/fewest.ts';
import { activationsOf, withFates } from '../activations.ts';
import { liveBytes } from '../liveness.ts';
import type { ActivationPolicy } from './policy.ts';

export const superNeurons: ActivationPolicy = {
  name: 'SuperNeurons',
  paper: 'Wang et al. 2018: SuperNeurons, Dynamic GPU Memory Management for Training Deep Neural Networks',
  approximated:
    'layers are those whose outputs take a few operations an element, and the others; the cache leaves to a step what it moved in the one before',
  fillsRoom: true,
  apply(program, { room }) {
    const cached = activationsOf(program).filter(({ isRead, kind }) => isRead && kind !== 'light');
    // In the forward pass the least recently used are those that were made first.
    const moving = (count: number) => {
      const moved = new Set(cached.slice(0, count).map(({ tensor }) => tensor));
      return withFates(program, ({ tensor, kind }) =>
        kind === 'light' ? 'again' : moved.has(tensor) ? 'move' : 'keep',
      );
    };
    return moving(fewest(cached.length, (count) => liveBytes(moving(count)) <= room));
  },
};
