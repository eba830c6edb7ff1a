// The elementwise operators of the feed-forward layer, for where no matmul epilogue carries them, and tanh.

import { GATED, type GateActivation } from '../../kernels/gated.ts';
import { tanhBackward, tanh as tanhKernel } from '../../kernels/tanh.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import { addGradient } from './add.ts';
import { overwritable } from './overwritable.ts';

/** x -> y, same shape. */
export function tanh(g: Graph, x: Tensor, label = 'tanh'): Tensor {
  const y = g.activation(label, x.shape, [x]);
  g.emit(tanhKernel, { size: x.size }, { x, y }, label);
  g.onBackward(y, (dy) => {
    if (!x.wantsGradient) return;
    const dx = overwritable(g, dy, `d ${label}`);
    g.emit(tanhBackward, { size: x.size }, { y, dx }, label);
    if (!g.aliasGradient(x, dx)) addGradient(g, x, dx, label);
  });
  return y;
}

/** activation(gate) * up, all of one shape. */
export function gated(g: Graph, activation: GateActivation, gate: Tensor, up: Tensor, label: string): Tensor {
  const { forward, backward } = GATED[activation];
  const y = g.activation(label, gate.shape, [gate, up]);
  g.emit(forward, { size: y.size }, { gate, up, y }, label);
  g.onBackward(y, (dy) => {
    const dgate = overwritable(g, gate, `d gate of ${label}`);
    const dup = overwritable(g, dy, `d up of ${label}`);
    g.emit(backward, { size: y.size }, { up, dgate, dup }, label);
    if (gate.wantsGradient && !g.aliasGradient(gate, dgate)) addGradient(g, gate, dgate, label);
    if (up.wantsGradient && !g.aliasGradient(up, dup)) addGradient(g, up, dup, label);
  });
  return y;
}
