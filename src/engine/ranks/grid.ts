// The grid of ranks: along its tensor axis, ranks share each layer of one copy of the model (nn/tensor-parallel.ts); along its
// pipeline axis, they have its blocks one after the other (graph/pipeline.ts); along its data axis, copies take the micro-batches
// of a step, and may shard what they all have (sharding.ts). Ranks that exchange the most are neighbours, as in Megatron:
// rank = (stage * data ranks + data) * tensor ranks + tensor.

import type { GridPlace } from '../../graph/grid-place.ts';
import type { Messages } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';

export const GRID_AXES = ['data', 'tensor', 'pipeline'] as const;
export type GridAxis = (typeof GRID_AXES)[number];

/** Between which ranks values go: along an axis, or between the first stage and the last one. */
export const EXCHANGE_AXES = [...GRID_AXES, 'ends'] as const;
export type ExchangeAxis = (typeof EXCHANGE_AXES)[number];

/** A stage between the ends has none to exchange with. */
export type GridPlaces = Readonly<Record<ExchangeAxis, GridPlace>>;

/** Ranks along the axes that one copy of the model takes. */
export interface GridShape {
  /** Ranks that share each layer. @default 1 */
  readonly tensor?: number | undefined;
  /** Stages. @default 1 */
  readonly pipeline?: number | undefined;
}

/** The place of a rank in a grid of such a shape, whose ranks divide all. */
export function gridPlacesOf({ rank, size }: GridPlace, { tensor = 1, pipeline = 1 }: GridShape): GridPlaces {
  const data = size / (tensor * pipeline);
  const stage = Math.floor(rank / (tensor * data));
  const isEnd = pipeline > 1 && (stage === 0 || stage === pipeline - 1);
  return {
    data: { rank: Math.floor(rank / tensor) % data, size: data },
    tensor: { rank: rank % tensor, size: tensor },
    pipeline: { rank: stage, size: pipeline },
    ends: isEnd ? { rank: Number(stage > 0), size: 2 } : { rank: 0, size: 1 },
  };
}

/** The rank that differs from a place along these axes. */
export function rankAt(places: GridPlaces, other: Partial<Readonly<Record<GridAxis, number>>> = {}): number {
  const { data, tensor, pipeline } = places;
  const copy = (other.pipeline ?? pipeline.rank) * data.size + (other.data ?? data.rank);
  return copy * tensor.size + (other.tensor ?? tensor.rank);
}

/** The ranks that differ from this one along one axis alone, in their order. */
export function membersOf(places: GridPlaces, axis: ExchangeAxis): number[] {
  if (axis !== 'ends')
    return Array.from({ length: places[axis].size }, (_, other) => rankAt(places, { [axis]: other }));
  if (places.ends.size === 1) return [rankAt(places)];
  return [0, places.pipeline.size - 1].map((pipeline) => rankAt(places, { pipeline }));
}

/** Messages between some of the ranks, which this one is among: its rank is its place in the list. */
export const between = (messages: Messages, members: readonly number[]): Messages => ({
  rank: members.indexOf(messages.rank),
  size: members.length,
  library: messages.library,
  send: (to, channel, bytes) => messages.send(at(members, to), channel, bytes),
  receive: (from, channel, into) => messages.receive(at(members, from), channel, into),
});
