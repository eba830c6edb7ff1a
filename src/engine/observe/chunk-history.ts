// The history of one step: where every chunk was and what it was doing at every moment, from what the executor
// recorded, not from what was planned. Pure. A chunk's state comes from the pass, which checked it against the table of
// legal changes; that its tier agrees (an operator's chunks are on the GPU) is asserted here.
//
// At a moment means while its operator is encoded: behind the loads and drops before it, ahead of what it frees.

import { KINDS } from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import type { State } from '../../memory/layout/states.ts';
import { chunkCount, chunkName } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Fit } from '../compile/fitted.ts';
import { activationHistory } from './activation-history.ts';
import { type ChunkHistory, encodeState, type RunLengths } from './chunk-codes.ts';
import { isWhole, type Recording } from './recording.ts';
import { RunWriter, runsOf } from './run-writer.ts';

/** Errors: the recording is of a run that was cut short. */
export function chunkHistory(
  recording: Recording,
  { map, nonModel, stagingBytes }: Pick<Fit, 'map' | 'nonModel' | 'stagingBytes'>,
): ChunkHistory {
  const { trace, phases } = recording.pass;
  const { chunkBytes, lists, moments } = trace;
  const indexOf = new Map<string, number>();
  const operators = moments.map(({ label }) => {
    const index = indexOf.get(label) ?? indexOf.size;
    indexOf.set(label, index);
    return index;
  });
  const among = recording.among.reduce((most, chunks) => Math.max(most, chunks), 0);
  return {
    chunkBytes,
    lists,
    tensors: map.contents().map((pieces) => pieces.map((piece) => partName(piece, map.pieces(piece.tensor).length))),
    phases,
    operators,
    labels: [...indexOf.keys()],
    chunks: chunkRuns(recording),
    staged: runsOf(recording.staged),
    activations: activationHistory(recording),
    slots: recording.slots + among,
    ...(among > 0 && { among: { slots: among, used: runsOf(recording.among) } }),
    staging: recording.staging,
    stagingBytes: recording.staging * stagingBytes,
    activationBytes: nonModel.arenas,
    otherBytes: nonModel.persistent,
  };
}

const partName = ({ tensor, row, rows }: Piece, parts: number): string =>
  parts > 1 ? `${tensor}, rows ${row} to ${row + rows - 1}` : tensor;

/** Of each chunk: its codes over the moments. Errors: the recording is of a run that was cut short. */
export function chunkRuns(recording: Recording): RunLengths[] {
  assert(isWhole(recording), 'a run that was cut short has no picture');
  const { pass, residents, below, events, moved } = recording;
  const { trace, states } = pass;
  const count = chunkCount(trace);
  const state = trace.lists.flatMap(({ kind, chunks }) => Array<State>(chunks).fill(KINDS[kind].between));
  const here = new Set(residents);
  const lower = [...below];
  const writers = Array.from({ length: count }, () => new RunWriter());
  const write = (m: number, chunk: number) => {
    const beneath = STATE_BELOW[at(lower, chunk)];
    writers[chunk]?.from(m, encodeState(here.has(chunk) ? 'gpu' : beneath, at(state, chunk)));
  };
  let nextEvent = 0;
  let nextMove = 0;
  let changed = new Set(state.keys());
  trace.moments.forEach(({ label, accesses, onHost = [], frees }, m) => {
    for (; events[nextEvent]?.moment === m; nextEvent++) {
      const { chunk, action } = at(events, nextEvent);
      // What is freed stays until the operator has run: below.
      if (action === 'drop') here.delete(chunk);
      else if (action !== 'free' && action !== 'store') here.add(chunk);
      changed.add(chunk);
    }
    for (; moved[nextMove]?.moment === m; nextMove++) {
      const { chunk, where } = at(moved, nextMove);
      if (chunk >= count) continue;
      lower[chunk] = where;
      changed.add(chunk);
    }
    for (const { chunk } of accesses) {
      assert(here.has(chunk), `moment ${m} (${label}) ran without ${chunkName(trace, chunk)} on the GPU`);
      state[chunk] = 'COMPUTE';
      changed.add(chunk);
    }
    for (const { chunk } of onHost) {
      state[chunk] = 'COMPUTE';
      changed.add(chunk);
    }
    for (const chunk of changed) write(m, chunk);
    const used = [...accesses, ...onHost];
    changed = new Set(used.map(({ chunk }) => chunk));
    used.forEach(({ chunk }, i) => {
      state[chunk] = at(at(states, m), i);
    });
    for (const chunk of frees) {
      state[chunk] = 'FREE';
      here.delete(chunk);
    }
  });
  return writers.map((writer) => writer.end(trace.moments.length));
}

const STATE_BELOW = {
  nothing: 'none',
  zero: 'none',
  staging: 'staging',
  host: 'host',
  both: 'host',
  disk: 'disk',
} as const;
