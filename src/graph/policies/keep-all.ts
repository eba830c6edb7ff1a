// Keeps every activation for the backward pass: what frameworks do unasked, and the fastest where there is room.

import type { ActivationPolicy } from './policy.ts';

export const keepAll: ActivationPolicy = {
  name: 'keep all',
  paper: 'none: what frameworks do unasked',
  approximated: '',
  fillsRoom: false,
  apply: (program) => program,
};
