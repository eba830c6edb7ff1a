// The extra slots of a fit: which ranges of its arenas serve as slots for chunks while no activation lies there, and when they
// do in each of its passes. Programs share the arenas, passes do not run at once: what matters is what a pass itself uses.
//
// Invariant: an activation is in its place from the first moment that uses it within a micro-batch to the last; in a pass
// that is read from when it is over, to the end.

import type { ArenaRange, Placement } from '../../graph/liveness.ts';
import { bytesOf, holderOf, type Tensor } from '../../graph/program.ts';
import {
  type ExtraSlots,
  extraSlots,
  type Occupied,
  type SlotRange,
  type SlotWindow,
  slotRanges,
  windowsIn,
  worthHaving,
} from '../../memory/plan/extra-slots.ts';
import { at } from '../../util/at.ts';
import { arenaSizes } from './candidate.ts';
import { isChunkRange } from './operand-places.ts';
import type { Operation } from './operations.ts';
import type { Pass, Passes } from './pass.ts';

/** The ranges that serve, and when they do in each pass. */
export interface FoundSlots {
  readonly ranges: readonly SlotRange[];
  readonly of: (pass: Pass) => ExtraSlots;
}

/** All ranges that could serve, and when in each pass. */
export interface FreeRanges {
  readonly ranges: readonly SlotRange[];
  readonly windowsOf: (pass: Pass) => readonly (readonly SlotWindow[])[];
  /** The pass that matters: the one that updates, if there is one. Of it, how many are free at each moment. */
  readonly main: Pass;
  readonly open: readonly number[];
}

export function freeRanges(
  passes: Passes,
  placements: readonly Placement[],
  outputs: ReadonlySet<Tensor>,
  chunkBytes: number,
): FreeRanges {
  const all = Object.values(passes);
  const ranges = slotRanges(arenaSizes(placements), chunkBytes);
  const places = new Map(placements.flatMap((placement) => [...placement.places]));
  const known = new Map<Pass, readonly (readonly SlotWindow[])[]>();
  const windowsOf = (pass: Pass) => {
    const windows =
      known.get(pass) ?? windowsIn(ranges, chunkBytes, occupiedIn(pass, places, outputs), pass.operations.length);
    known.set(pass, windows);
    return windows;
  };
  const main = all.find(({ update }) => update) ?? at(all, 0);
  const { open } = extraSlots(windowsOf(main), main.operations.length);
  return { ranges, windowsOf, main, open };
}

/** As many of them as could ever hold a chunk of the `most` that have no other slot. */
export function findExtraSlots({ ranges, windowsOf, main }: FreeRanges, most: number): FoundSlots {
  const wanted = worthHaving(windowsOf(main), main.operations.length, most);
  return {
    ranges: wanted.map((slot) => at(ranges, slot)),
    of: (pass) => {
      const own = windowsOf(pass);
      return extraSlots(
        wanted.map((slot) => at(own, slot)),
        pass.operations.length,
      );
    },
  };
}

/** Where the activations of a pass lie, and when; each micro-batch has its turn. */
export function occupiedIn(
  { operations, starts }: Pick<Pass, 'operations' | 'starts'>,
  places: ReadonlyMap<Tensor, ArenaRange>,
  outputs: ReadonlySet<Tensor>,
): Occupied[] {
  const found: Occupied[] = [];
  const begins = new Set(starts);
  let turn = new Map<Tensor, { first: number; last: number }>();
  const end = () => {
    for (const [tensor, life] of turn) {
      const place = places.get(tensor);
      if (place) found.push({ ...place, bytes: bytesOf(tensor), ...life });
    }
    turn = new Map();
  };
  operations.forEach((operation, m) => {
    if (begins.has(m)) end();
    for (const tensor of activationsIn(operation)) {
      const life = turn.get(tensor) ?? { first: m, last: m };
      life.last = outputs.has(tensor) ? operations.length - 1 : m;
      turn.set(tensor, life);
    }
  });
  end();
  return found;
}

/** The activations that an operation uses; of parts, those that they are of. */
export function activationsIn(operation: Operation): Tensor[] {
  const isActivation = ({ role }: Tensor) => role === 'activation';
  switch (operation.op) {
    case 'dispatch':
      return Object.values(operation.operands).flatMap((operand) =>
        !isChunkRange(operand) && isActivation(operand) ? [holderOf(operand)] : [],
      );
    case 'offload':
    case 'fetch':
      return [operation.tensor];
    case 'collective':
      return [operation.on, ...(operation.own ? [operation.own] : [])].filter(
        (tensor): tensor is Tensor => !('chunk' in tensor) && isActivation(tensor),
      );
    case 'host':
      return [];
    default:
      return operation satisfies never;
  }
}
