// Moves of activations between the GPU and what lies below it, as a pass has them: which of their pieces move at which of its
// moments. When that is, is worked out in transfer-moments.ts.

import { at } from '../../util/at.ts';
import { isTransfer, type Operation, type TransferOperation } from './operations.ts';
import type { StashPiece } from './stash-ids.ts';

/** Pieces of an activation that move at one moment. */
export interface Move {
  readonly operation: TransferOperation;
  readonly pieces: readonly StashPiece[];
}

/** What moves at a moment: down before everything else, and up right before its operation. */
export interface Moves {
  readonly down: readonly Move[];
  readonly up: readonly Move[];
}

export const NO_MOVES: Moves = { down: [], up: [] };

interface MovesOfPass {
  readonly operations: readonly Operation[];
  readonly moves?: readonly Moves[] | undefined;
}

/** What moves at a moment of a pass; in one that was not fitted, each activation at that of its operation. */
export function movesAt({ moves, operations }: MovesOfPass, moment: number): Moves {
  if (moves) return moves[moment] ?? NO_MOVES;
  const operation = at(operations, moment);
  if (!isTransfer(operation)) return NO_MOVES;
  const move = { operation, pieces: operation.pieces };
  return operation.op === 'offload' ? { down: [move], up: [] } : { down: [], up: [move] };
}
