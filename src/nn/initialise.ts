// Initial weights, drawn parameter by parameter from streams named after them: adding a layer or changing
// one shape leaves every other parameter's values as they were. Drawn as they are asked for, a piece at a time.

import { checkWholeNumber } from '../util/arguments.ts';
import { Random } from '../util/random.ts';
import { noTensor, PIECE_ELEMENTS, type TensorSource } from '../values/tensor-source.ts';
import { checkModel, type Model } from './model.ts';

/** The parameters of a model before any training, drawn by `seed`: equal at every read, whatever the size of the pieces. Errors: HoldfastError for a seed that is no whole number, 0 or more. */
export function initialWeights(model: Model, seed: number, pieceElements = PIECE_ELEMENTS): TensorSource {
  checkModel(model);
  checkWholeNumber(seed, 'seed');
  checkWholeNumber(pieceElements, 'pieceElements', 1);
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
