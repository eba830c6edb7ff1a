// Host memory that the exchanges between ranks take, beside the tiers: what a rank gives and gets on its way, sums that are made,
// chunks that are gathered ahead. The same figures for a plan as for a run, which makes its rooms as large as these say. Pure.

import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { spanOf } from './collectives.ts';
import { gatheredBytes, isChunkGather, valuesAtOnce } from './gather-order.ts';
import { EXCHANGE_AXES, type ExchangeAxis, type GridPlaces } from './grid.ts';

/** Values on their way to neighbours at once, for each rank of the axis: more than any order of a step has. */
const UNDER_WAY = 2;
/** Values of one neighbour: the one in use, and the one that is taken as soon as it comes. */
const TAKEN_AT_ONCE = 2;

/** Bytes of the largest of each, and how many there are. */
export interface ExchangeRooms {
  /** What is read from the GPU, exchanged, and sent up again, one at a time. */
  readonly value: number;
  /** Of chunks that others add up, on their way. */
  readonly gives: { readonly bytes: number; readonly most: number };
  /** By axis: the part of it that is added up here, beside which lie the sum and what comes from another rank. */
  readonly sums: Readonly<Partial<Record<ExchangeAxis, number>>>;
  /** On their way to neighbours. */
  readonly sends: { readonly bytes: number; readonly most: number };
  /** From each neighbour. */
  readonly receives: readonly { readonly from: number; readonly bytes: number; readonly most: number }[];
}

type Operations = readonly Operation[];

const isExchange = (operation: Operation): operation is CollectiveOperation =>
  operation.op === 'collective' && !isChunkGather(operation);

/** A sum of a chunk over the copies of the model, which one of them gets. */
export const isChunkSum = ({ collective, axis, on }: CollectiveOperation): boolean =>
  collective === 'reduce-scatter' && axis === 'data' && 'chunk' in on;

/** Whether another rank makes such a sum: this one gives its part, and gets nothing. */
export const isGiven = (operation: CollectiveOperation, { rank }: { readonly rank: number }): boolean =>
  isChunkSum(operation) && operation.parts.every(({ owner }) => owner !== rank);

const known = new WeakMap<Operations, ExchangeRooms>();

/** The host memory that the exchanges of a pass need on one of the ranks. A list of operations is that of one rank. */
export function exchangeRooms(operations: Operations, places: GridPlaces): ExchangeRooms {
  const before = known.get(operations);
  if (before) return before;
  let value = 0;
  const sums: Partial<Record<ExchangeAxis, number>> = {};
  const gives = { bytes: 0, most: 0 };
  const sends = { bytes: 0, most: 0 };
  const receives = new Map<number, { from: number; bytes: number; most: number }>();
  for (const operation of operations) {
    if (!isExchange(operation)) continue;
    const { collective, axis, parts } = operation;
    const span = spanOf(operation);
    if (collective === 'send') {
      sends.bytes = Math.max(sends.bytes, span);
      sends.most = Math.min(sends.most + 1, UNDER_WAY * places[axis].size);
    } else if (collective === 'receive') {
      for (const { owner: from } of parts) {
        const { bytes, most } = receives.get(from) ?? { bytes: 0, most: 0 };
        receives.set(from, { from, bytes: Math.max(bytes, span), most: Math.min(most + 1, TAKEN_AT_ONCE) });
      }
    } else if (isGiven(operation, places.data)) {
      gives.bytes = Math.max(gives.bytes, span);
      gives.most++;
    } else {
      value = Math.max(value, span);
      if (collective === 'all-gather') continue;
      for (const { owner, bytes } of parts)
        if (owner === places[axis].rank) sums[axis] = Math.max(sums[axis] ?? 0, bytes);
    }
  }
  gives.most = Math.min(gives.most, valuesAtOnce(places.data.size, gives.bytes));
  const found = { value, gives, sums, sends, receives: [...receives.values()] };
  known.set(operations, found);
  return found;
}

/** Bytes in all, at most, of passes that run one at a time. */
export function exchangeMemory(passes: readonly { readonly operations: Operations }[], places: GridPlaces): number {
  const rooms = passes.map(({ operations }) => exchangeRooms(operations, places));
  const most = (of: (each: ExchangeRooms) => number) => Math.max(0, ...rooms.map(of));
  const neighbours = new Set(rooms.flatMap(({ receives }) => receives.map(({ from }) => from)));
  const received = [...neighbours].map((from) => {
    const own = rooms.flatMap(({ receives }) => receives.filter((each) => each.from === from));
    return Math.max(...own.map(({ bytes }) => bytes)) * Math.max(...own.map(({ most }) => most));
  });
  const summed = EXCHANGE_AXES.map((axis) => 2 * most(({ sums }) => sums[axis] ?? 0));
  return (
    most(({ value }) => value) +
    [...summed, ...received].reduce((sum, bytes) => sum + bytes, 0) +
    most(({ gives }) => gives.bytes) * most(({ gives }) => gives.most) +
    most(({ sends }) => sends.bytes) * most(({ sends }) => sends.most) +
    gatheredBytes(passes, places.data.size)
  );
}
