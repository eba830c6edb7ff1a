// A look inside one forward pass: the embedding, the residual stream after each block, the last norm and the
// logits, read back whole. For parity with other implementations and for debugging; nothing here is fast, and
// the logits exist as one (B, T, V) tensor, which training never makes.

import type { Batch } from '../../data/batches.ts';
import { KernelChoices } from '../../engine/compile/choices.ts';
import { readingPass } from '../../engine/compile/pass.ts';
import { NO_READBACK } from '../../engine/compile/workload.ts';
import { Session } from '../../engine/run/session.ts';
import type { Device } from '../../gpu/device.ts';
import { Graph } from '../../graph/graph.ts';
import { logits } from '../../graph/operators/cross-entropy.ts';
import type { Tensor } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { BatchInputs } from '../../nn/inputs.ts';
import { lookup, type Model, parameterTensors } from '../../nn/model.ts';
import { HoldfastError } from '../../util/errors.ts';
import { sourceOf, type Values } from '../../values/tensor-source.ts';

/**
 * Activations by Hugging Face's names: `embed`, `h.0` or `layers.0` and so on, `ln_f` or `norm`, each
 * (B, T, C), and `logits` (B, T, V), of a classifier (B, V). All buffers are freed.
 * Errors: HoldfastError when T is longer than the model's context, or the adapter cannot hold the logits.
 */
export async function forwardActivations(
  device: Device,
  model: Model,
  weights: Values,
  given: Batch,
  choices: KernelChoices = new KernelChoices(device),
): Promise<Values> {
  const { context, classes } = model.shape;
  const { batch, seq } = given;
  if (seq > context)
    throw new HoldfastError(`a sequence of ${seq} tokens is longer than the model's context of ${context}`);

  const g = new Graph('inspect');
  const inputs = new BatchInputs(model.inputs(seq, given['documents'] !== undefined), batch, seq);
  inputs.check(given);
  const parameters = parameterTensors(model, false);
  const observed = new Map<string, Tensor>();
  const observe = (name: string, tensor: Tensor) => void observed.set(name, tensor);
  const { hidden, head } = model.forward(g, inputs, lookup(parameters), { observe });
  const all = g.activation('logits', [...hidden.shape.slice(0, -1), classes], [hidden, head.weight]);
  logits(g, hidden, head, all);
  observed.set('logits', all);
  const program = g.program([...observed.values()]);

  const workload = {
    parameters: model.parameters,
    training: false,
    programs: [program],
    passes: (map: ChunkMap) => ({ forward: readingPass(program, map) }),
    readback: NO_READBACK,
  };
  const session = await Session.open(device, workload, choices);
  try {
    await session.values.set('parameter', sourceOf(weights));
    await session.run(session.fit.passes.forward, inputs.values(given));
    const values: Values = new Map();
    for (const [name, tensor] of observed) values.set(name, await session.read(tensor));
    return values;
  } finally {
    await session.close();
  }
}
