// Copies of tensors in kernel tests: problems, and how far f32 may stray.

import { copyTensor } from '../../../src/kernels/copy-tensor.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';
import { exact } from '../rounding.ts';

export const cases = [row({ kernel: copyTensor, problems: elementwise, bound: () => ({ y: exact }) })];
