// The ranks that write the tensors of a run's checkpoint: each stage of a pipeline its own, and of its ranks those that have the most
// of a tensor (engine/ranks/writers.ts).

import { rankAt } from '../../engine/ranks/grid.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import { onlyOwnerOf } from '../../engine/ranks/sharding.ts';
import { assignWriters } from '../../engine/ranks/writers.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { COPY_KIND, elementBytesOf, lastingKinds } from '../../memory/layout/kinds.ts';
import type { Model } from '../../nn/model.ts';

/** A stage's part of a model, as its ranks have it. */
export interface StagePart {
  readonly layers: Model;
  readonly map: ChunkMap;
}

/** `stages`: one where the model is in one part. */
export function shardWriters(stages: readonly StagePart[], { grid, sharding }: Ranks): Map<string, number> {
  const all = new Map<string, number>();
  for (const [pipeline, { layers, map }] of stages.entries()) {
    // A copy is not written.
    const saved = lastingKinds(map.dtype, map.momentDtype).filter((kind) => kind !== COPY_KIND);
    const places = Array.from({ length: grid.data.size * grid.tensor.size }, (_, i) => ({
      data: Math.floor(i / grid.tensor.size),
      tensor: i % grid.tensor.size,
      pipeline,
    }));
    const tensors = layers.parameters
      // What two stages have is the first one's.
      .filter(({ name }) => !all.has(name))
      .map(({ name, split }) => {
        const pieces = saved.flatMap((kind) =>
          map.pieces(name, kind).map(({ chunk, size }) => ({
            bytes: size * elementBytesOf(kind),
            owner: onlyOwnerOf(map.list(kind).first + chunk, map, sharding),
          })),
        );
        const held = (data: number) =>
          pieces.reduce((sum, { bytes, owner = data }) => sum + (owner === data ? bytes : 0), 0);
        const bytes = (split?.ranks ?? 1) * pieces.reduce((sum, piece) => sum + piece.bytes, 0);
        return { name, bytes, held: new Map(places.map((place) => [rankAt(grid, place), held(place.data)])) };
      });
    const ranks = places.map((place) => rankAt(grid, place));
    for (const [name, writer] of assignWriters(tensors, ranks)) all.set(name, writer);
  }
  return all;
}
