// Tensors for operators that work in place: each overwrites one of its inputs.

import { copyTensor } from '../../kernels/copy-tensor.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';

/** A copy of a tensor, to be overwritten. Where nothing else reads the tensor from here on, it is left out (copy-elision.ts). */
export function overwritable(g: Graph, tensor: Tensor, name: string): Tensor {
  const copy = g.activation(name, tensor.shape);
  g.emit(copyTensor, { size: tensor.size }, { x: tensor, y: copy }, name);
  return copy;
}
