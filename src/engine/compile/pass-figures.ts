// Figures of passes: their arithmetic, what they move below the GPU and back, and lists of what is in them.

import type { Tensor } from '../../graph/program.ts';
import { type DispatchOperation, isDispatch, isTransfer, type TransferOperation } from './operations.ts';
import type { Pass, Passes } from './pass.ts';
import { lastPosition, movedParts } from './stash-ids.ts';

/** Multiplications and additions of a pass. */
export const flopsOf = ({ operations }: Pass): number =>
  operations.filter(isDispatch).reduce((sum, { kernel, problem }) => sum + kernel.flops(problem), 0);

/** The part of them that makes activations again, and its share of the rest. */
export function recomputedFlops(pass: Pass): { readonly flops: number; readonly share: number } {
  const flops = pass.operations
    .filter(isDispatch)
    .reduce((sum, { again, kernel, problem }) => sum + (again ? kernel.flops(problem) : 0), 0);
  return { flops, share: flops / (flopsOf(pass) - flops) };
}

/** The pass that updates; undefined where none does. */
export const stepOf = (passes: Passes): Pass | undefined => Object.values(passes).find(({ update }) => update);

/** Whether a step moves chunks or activations, or makes some of them again, so that less is on the GPU at once. */
export function isConfined({ slots, residents, passes }: Confinable): boolean {
  const step = stepOf(passes);
  return slots < residents || (step !== undefined && (offloadedBytes(step) > 0 || recomputedFlops(step).flops > 0));
}

interface Confinable {
  readonly slots: number;
  readonly residents: number;
  readonly passes: Passes;
}

/** Bytes of activations over the link in a pass: below the GPU, and back. Of a step whose backward pass runs twice they come back twice. */
export interface ActivationTraffic {
  readonly down: number;
  readonly up: number;
}

export const activationTraffic = (pass: Pass): ActivationTraffic => ({
  down: offloadedBytes(pass),
  up: fetchedBytes(pass),
});

/** Bytes of activations that a pass moves below the GPU. */
export const offloadedBytes = (pass: Pass): number => movedBytes(pass, 'offload', () => 0);

/** Bytes that a pass brings back, at a position: see `AppendedRows`. @default the one at which it is most */
export const fetchedBytes = (pass: Pass, position?: number): number =>
  movedBytes(pass, 'fetch', (operation) => position ?? lastPosition(operation));

const movedBytes = (
  { operations }: Pass,
  op: TransferOperation['op'],
  positionOf: (operation: TransferOperation) => number,
): number =>
  operations.reduce((sum, operation) => {
    if (!isTransfer(operation) || operation.op !== op) return sum;
    return movedParts(operation, positionOf(operation)).reduce((bytes, part) => bytes + part.bytes, sum);
  }, 0);

/** Bytes of each piece of an activation that lies below the GPU, by its number behind those of so many chunks. */
export function stashesIn(passes: Passes | readonly Pass[], count: number): number[] {
  const sizes: number[] = [];
  for (const { operations } of Object.values<Pass>(passes)) {
    for (const operation of operations) {
      if (operation.op !== 'offload') continue;
      for (const { id, bytes } of operation.pieces) sizes[id - count] = Math.max(sizes[id - count] ?? 0, bytes);
    }
  }
  // A number that one pass leaves out, another has.
  return Array.from(sizes, (bytes) => bytes ?? 0);
}

/** In the order of the passes: one that several of them share comes several times. */
export const dispatchesOf = (passes: Passes): DispatchOperation[] =>
  Object.values(passes).flatMap(({ operations }) => operations.filter(isDispatch));

/** What lives on and is exchanged between ranks, whether a dispatch here uses it or not. */
export const exchangedTensors = (passes: Passes): Tensor[] =>
  Object.values(passes).flatMap(({ operations }) =>
    operations.flatMap((operation) =>
      operation.op === 'collective' && !('chunk' in operation.on) && operation.on.role === 'persistent'
        ? [operation.on]
        : [],
    ),
  );

/** Chunks that are complete at once, at most. */
export const completeAtOnce = (passes: Passes): number =>
  Object.values(passes)
    .flatMap(({ update }) => update?.completions ?? [])
    .reduce((most, { chunks }) => Math.max(most, chunks.length), 1);
