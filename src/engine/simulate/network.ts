// Seconds of an exchange between ranks, from a network's figures: the two ways to do it (machine.ts). All ranks come to it at
// the same time, as they are alike. Pure arithmetic; when an exchange begins, and what waits for it, is in clock.ts.

import type { GridPlace } from '../../graph/grid-place.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { CollectiveOperation } from '../compile/operations.ts';
import { networkBytes } from '../ranks/collectives.ts';
import type { ExchangeAxis } from '../ranks/grid.ts';
import type { Sharding } from '../ranks/sharding.ts';
import type { Machine, MachineNetwork, NetworkLink } from './machine.ts';

/** The ranks that a step is simulated for, seen from the first. */
export interface SimulatedRanks {
  /** Copies of the model. */
  readonly size: number;
  /** Among those that share each layer. @default it has all of each */
  readonly tensor?: GridPlace | undefined;
  /** Among the stages that are followed on one clock. @default it has all blocks */
  readonly stage?: GridPlace | undefined;
  /** Stages that these stand for. @default as many */
  readonly stages?: number | undefined;
  /** Of the fit that is simulated, whose rank 0 it is. */
  readonly sharding: Sharding;
  /**
   * What a rank owns, as a part of what it owns in the fit that is simulated: 1, where that is of as many ranks; of fewer,
   * what its owner alone has and does is so much less.
   */
  readonly owned: number;
  /** Exchanges that one of the fit stands for: of as many ranks, chunks may have to be smaller. */
  readonly splits: number;
  /** What arithmetic takes in that of the fit, where that has smaller chunks. @default 1 */
  readonly arithmetic?: number;
}

/** The other ranks, by where they are, and how many machines there are. */
export interface Neighbours {
  readonly inside: number;
  readonly between: number;
  readonly machines: number;
}

/**
 * As one of them sees them; `stride`: how far they are apart among all ranks. Errors: HoldfastError where no network reaches all
 * of them.
 */
export function neighboursOf({ title, network }: Machine, size: number, stride = 1): Neighbours {
  const each = network?.ranksPerMachine ?? 1;
  const here = Math.min(size, Math.max(1, Math.floor(each / stride)));
  const found = { inside: here - 1, between: size - here, machines: Math.ceil(size / here) };
  if (network && (found.between === 0 || network.between)) return found;
  const has = network ? `${each} GPUs and no network to others of its kind` : 'no network';
  throw new HoldfastError(
    `--ranks ${size}: ${title} has ${has} (a hardware file's "network"); use ${network ? `at most ${each} ranks, or ` : ''}another machine`,
  );
}

const NOTHING: NetworkLink = { bytesPerSecond: Number.POSITIVE_INFINITY, latencySeconds: 0 };
const ALONE: GridPlace = { rank: 0, size: 1 };

/** The place of a rank on the axis of an exchange. */
export function placeOn(
  { sharding, tensor = ALONE, stage = ALONE }: SimulatedRanks,
  { axis }: Pick<CollectiveOperation, 'axis'>,
): GridPlace {
  if (axis === 'ends') return { rank: Number(stage.rank > 0), size: 2 };
  return { data: sharding, tensor, pipeline: stage }[axis];
}

/** How many ranks exchange something, and how far they are apart: as grid.ts numbers them. */
function groupOf({ size, tensor = ALONE, stage = ALONE, stages = stage.size }: SimulatedRanks, axis: ExchangeAxis) {
  const perStage = tensor.size * size;
  return {
    tensor: { size: tensor.size, stride: 1 },
    data: { size, stride: tensor.size },
    pipeline: { size: stages, stride: perStage },
    ends: { size: 2, stride: (stages - 1) * perStage },
  }[axis];
}

export function exchangeSeconds(
  machine: Machine,
  ranks: SimulatedRanks,
  { collective, axis, parts }: Pick<CollectiveOperation, 'collective' | 'axis' | 'parts'>,
): number {
  const { network } = machine;
  const { size, stride } = groupOf(ranks, axis);
  const total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  if (collective === 'send' || collective === 'receive') {
    const { bytesPerSecond, latencySeconds } = linkTo(machine, ranks, at(parts, 0).owner, stride);
    return total / bytesPerSecond + latencySeconds;
  }
  const neighbours = neighboursOf(machine, size, stride);
  if (!network) return 0;
  // What chunks are smaller, where there are more of them, and what their owner has less of is of copies of the model.
  const { owned, splits } = axis === 'data' ? ranks : { owned: 1, splits: 1 };
  const rounds = collective === 'all-reduce' ? 2 : 1;
  if (network.exchange === 'direct') return rounds * ringSeconds(network, neighbours, size, total, splits);
  // What the busiest owner sends or gets is waited for by all.
  const ofOwner = new Map<number, number>();
  for (const { owner, bytes } of parts) ofOwner.set(owner, (ofOwner.get(owner) ?? 0) + bytes);
  const most = Math.max(...ofOwner.values()) * (parts.length > 1 ? owned : 1);
  const { inside, between = NOTHING } = network;
  const byLink = (link: NetworkLink, peers: number) =>
    peers * (most / link.bytesPerSecond + splits * link.latencySeconds);
  return rounds * (byLink(inside, neighbours.inside) + byLink(between, neighbours.between));
}

/** Ranks that one of the fit stands for: each of them has a part of what that has alone. */
export const ownersOf = ({ size, sharding }: SimulatedRanks): number => size / sharding.size;

/** To another stage: on the same machine or not. */
function linkTo({ network }: Machine, { stage = ALONE }: SimulatedRanks, other: number, stride: number): NetworkLink {
  if (!network) return NOTHING;
  const { inside, between = NOTHING, ranksPerMachine } = network;
  const machineWith = (stage: number) => Math.floor((stage * stride) / ranksPerMachine);
  return machineWith(stage.rank) === machineWith(other) ? inside : between;
}

/** Bytes that a rank sends in an exchange: of as many ranks as there are, from those of the fit. */
export function sentBytes(ranks: SimulatedRanks, operation: CollectiveOperation): number {
  const { axis } = operation;
  const { sent } = networkBytes([operation], placeOn(ranks, operation), axis);
  if (axis !== 'data') return sent;
  const { size, sharding } = ranks;
  const share = (ranks: number) => (ranks - 1) / ranks;
  return (sent * share(size)) / share(sharding.size);
}

/**
 * Every rank's link carries its part (Rajbhandari et al. 2021): in a machine a ring over its ranks, between machines one ring for
 * each of them over what it has; the slower one counts. In each the latencies are those of a tree.
 */
function ringSeconds(
  { inside, between = NOTHING }: MachineNetwork,
  neighbours: Neighbours,
  size: number,
  bytes: number,
  splits: number,
): number {
  const { machines } = neighbours;
  const here = neighbours.inside + 1;
  const within = (((here - 1) / here) * bytes) / inside.bytesPerSecond;
  const across = (((machines - 1) / machines) * (bytes / here)) / between.bytesPerSecond;
  const latency =
    Math.log2(here) * inside.latencySeconds + Math.log2(Math.max(1, size / here)) * between.latencySeconds;
  return Math.max(within, across) + splits * latency;
}
