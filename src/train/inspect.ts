// A look inside one forward pass: the embedding, the residual stream after each block, the last norm and the
// logits, read back whole. For parity with other implementations and for debugging; nothing here is fast, and
// the logits exist as one (B, T, V) tensor, which training never makes.

import type { Batch } from '../data/batches.ts';
import { KernelChoices } from '../engine/choices.ts';
import { Executable } from '../engine/executable.ts';
import { ModelData, type Values } from '../engine/model-data.ts';
import { Storage } from '../engine/storage.ts';
import type { Device } from '../gpu/device.ts';
import { Graph, type Tensor } from '../graph/graph.ts';
import { logits } from '../graph/operators/cross-entropy.ts';
import { makeTokens } from '../graph/operators/embedding.ts';
import { lookup, type Model, parameterTensors } from '../nn/model.ts';
import { HoldfastError } from '../util/errors.ts';
import { sourceOf } from '../util/tensor-source.ts';

/**
 * Activations by Hugging Face's names: `embed`, `h.0` or `layers.0` and so on, `ln_f` or `norm`, each
 * (B, T, C), and `logits` (B, T, V). All buffers are freed. Targets are not looked at.
 * Errors: HoldfastError when T is longer than the model's context, or the adapter cannot hold the logits.
 */
export async function forwardActivations(
  device: Device,
  model: Model,
  weights: Values,
  { ids, batch, seq }: Batch,
  choices: KernelChoices = new KernelChoices(device),
): Promise<Values> {
  const { context, vocabulary } = model.shape;
  if (seq > context)
    throw new HoldfastError(`a sequence of ${seq} tokens is longer than the model's context of ${context}`);

  const g = new Graph('inspect');
  const tokens = makeTokens(batch, seq);
  const parameters = parameterTensors(model, false);
  const observed = new Map<string, Tensor>();
  const observe = (name: string, tensor: Tensor) => void observed.set(name, tensor);
  const { hidden, head } = model.forward(g, tokens, lookup(parameters), { observe });
  const all = g.activation('logits', [batch, seq, vocabulary], [hidden, head]);
  logits(g, hidden, head, all);
  observed.set('logits', all);
  const program = g.program([...observed.values()]);

  const storage = new Storage(device);
  try {
    const data = new ModelData(device, storage, model.parameters, false);
    data.assign(storage, 'parameter', parameters.values());
    await data.write('parameter', sourceOf(weights));
    for (const { tensor, values } of model.constants) storage.write(tensor, values);
    storage.write(tokens.ids, ids);
    const [executable] = (await Executable.compile(device, storage, choices, [program])) as [Executable];
    const encoder = device.gpu.createCommandEncoder();
    executable.encode(encoder);
    device.submit(encoder);
    const values: Values = new Map();
    for (const [name, tensor] of observed) values.set(name, await executable.read(tensor));
    return values;
  } finally {
    storage.destroy();
  }
}
