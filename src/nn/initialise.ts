// Initial weights, drawn parameter by parameter from streams named after them: adding a layer or changing
// one shape leaves every other parameter's values as they were. Drawn as they are asked for, a piece at a time.

import { Random } from '../util/random.ts';
import { noTensor, PIECE_ELEMENTS, type TensorSource } from '../values/tensor-source.ts';
import type { Model } from './model.ts';

/** The parameters of a model before any training, drawn by `seed`: equal at every read, whatever the size of the pieces. */
export function initialWeights(model: Model, seed: number, pieceElements = PIECE_ELEMENTS): TensorSource {
  const parameters = new Map(model.parameters.map((parameter) => [parameter.name, parameter]));
  return {
    names: [...parameters.keys()],
    async *read(name) {
      const parameter = parameters.get(name);
      if (!parameter) throw noTensor('the model', name, parameters.keys());
      const { shape, initial } = parameter;
      const size = shape.reduce((a, b) => a * b, 1);
      const random = new Random(seed, `weights ${name}`);
      const memory = new Float32Array(Math.min(size, pieceElements));
      for (let first = 0; first < size; first += pieceElements) {
        const piece = memory.subarray(0, Math.min(pieceElements, size - first));
        if ('constant' in initial) piece.fill(initial.constant);
        else if ('normal' in initial)
          for (let i = 0; i < piece.length; i++) piece[i] = initial.normal * random.normal();
        else for (let i = 0; i < piece.length; i++) piece[i] = initial.uniform * (2 * random.uniform() - 1);
        yield piece;
      }
    },
  };
}
