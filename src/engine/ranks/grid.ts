// The grid of ranks: along its tensor axis, ranks share each layer of one copy of the model (nn/tensor-parallel.ts); along its
// data axis, copies take the micro-batches of a step, and may shard what they all have (sharding.ts). Ranks that share layers
// exchange the most and are neighbours: rank = data * tensor ranks + tensor, as in Megatron.

import type { Messages } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';

export const GRID_AXES = ['data', 'tensor'] as const;
export type GridAxis = (typeof GRID_AXES)[number];

/** Of so many ranks along an axis, one. */
export interface GridPlace {
  readonly rank: number;
  readonly size: number;
}

export type GridPlaces = Readonly<Record<GridAxis, GridPlace>>;

/** The place of a rank, where so many share each layer; they divide the ranks. */
export const placesOf = ({ rank, size }: GridPlace, tensor: number): GridPlaces => ({
  data: { rank: Math.floor(rank / tensor), size: size / tensor },
  tensor: { rank: rank % tensor, size: tensor },
});

export const rankAt = (data: number, tensor: number, tensorRanks: number): number => data * tensorRanks + tensor;

/** The ranks that differ from this one along one axis alone, in their order. */
export const membersOf = ({ data, tensor }: GridPlaces, axis: GridAxis): number[] =>
  axis === 'data'
    ? Array.from({ length: data.size }, (_, other) => rankAt(other, tensor.rank, tensor.size))
    : Array.from({ length: tensor.size }, (_, other) => rankAt(data.rank, other, tensor.size));

/** Messages between some of the ranks, which this one is among: its rank is its place in the list. */
export const between = (messages: Messages, members: readonly number[]): Messages => ({
  rank: members.indexOf(messages.rank),
  size: members.length,
  library: messages.library,
  send: (to, channel, bytes) => messages.send(at(members, to), channel, bytes),
  receive: (from, channel, into) => messages.receive(at(members, from), channel, into),
});
