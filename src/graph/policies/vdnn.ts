// vDNN, by its rule for all layers (vDNN_all): every activation that the backward pass reads is moved to host memory behind its
// last use in the forward pass, and back ahead of its first in the backward pass.

import { withFates } from '../activations.ts';
import type { ActivationPolicy } from './policy.ts';

export const vdnn: ActivationPolicy = {
  name: 'offload all (vDNN)',
  paper: 'Rhu, Gimelshein, Clemons, Zulfiqar, Keckler 2016: vDNN, Virtualized Deep Neural Networks',
  approximated: 'transfers overlap as this engine’s do; vDNN waits at the end of each layer for its own',
  fillsRoom: false,
  apply: (program) => withFates(program, ({ isRead }) => (isRead ? 'move' : 'keep')),
};
