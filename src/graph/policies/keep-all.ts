// Keep all: every activation is kept for the backward pass, as frameworks do by default; the fastest where there is room.

import type { ActivationPolicy } from './policy.ts';

export const keepAll: ActivationPolicy = {
  name: 'keep all',
  paper: 'none: what frameworks do unasked',
  approximated: '',
  fillsRoom: false,
  apply: (program) => program,
};
