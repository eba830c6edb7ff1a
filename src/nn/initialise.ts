// Initial weights, drawn parameter by parameter from streams named after them: adding a layer or changing
// one shape leaves every other parameter's values as they were.

import type { Values } from '../engine/model-data.ts';
import { Random } from '../util/random.ts';
import type { Model } from './model.ts';

export function initialWeights(model: Model, seed: number): Values {
  return new Map(
    model.parameters.map(({ name, shape, initial }) => {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      if ('constant' in initial) values.fill(initial.constant);
      else {
        const random = new Random(seed, `weights ${name}`);
        for (let i = 0; i < values.length; i++) values[i] = initial.normal * random.normal();
      }
      return [name, values];
    }),
  );
}
