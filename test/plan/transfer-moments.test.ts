// The moments at which activations move, in fitted passes of every family and mode: each piece once, and all the time from its
// leaving to its use elsewhere, and from its coming to its own, nothing else lies where it does.

import { describe, expect, it } from 'vitest';
import { occupiedIn } from '../../src/engine/compile/extra-slots.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { Move } from '../../src/engine/compile/moves.ts';
import { isTransfer } from '../../src/engine/compile/operations.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { bytesOf } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';

const MODES = ['spill', 'offload', 'offload-all'] as const;
const ROUNDS = [1, 2];
/** Of what lies between the smallest budget and everything. */
const SHARES = [0, 0.3, 0.7];

describe.each(FAMILY_NAMES.filter((_, i) => EVERY_CASE || i % 3 === 0))('activations of a %s', (family) => {
  const sizes = { layers: 3, width: 32, heads: 4, context: 16, vocabulary: 90 };
  const model = makeModel(configOfShape({ family, ...sizes }));

  it.each(MODES)('move where nothing else lies: %s', (activations) => {
    let early = 0;
    for (const rounds of ROUNDS) {
      const workload = trainingWorkload(model, traceStep(model, 4, model.shape.context), rounds, undefined, {
        activations,
      });
      const least = smallestBudget(workload, DEFAULT_LIMITS);
      const { peak } = fitMemory(workload, DEFAULT_LIMITS, undefined);
      for (const share of SHARES) {
        const fit = fitMemory(workload, DEFAULT_LIMITS, Math.ceil(least + share * Math.max(0, peak - least)));
        const { operations, moves, extra, trace } = fit.passes.step;
        expect(moves?.length).toBe(operations.length);
        const places = new Map(fit.placements.flatMap((placement) => [...placement.places]));
        const outputs = new Set(fit.workload.programs.flatMap((program) => program.outputs));
        const lives = occupiedIn(fit.passes.step, places, outputs);
        const isOpen = (slot: number, moment: number) =>
          at(extra?.windows ?? [], slot).some(
            ({ from, to }) => (from <= moment && moment < to) || moment + operations.length < to,
          );
        /** What lies at a moment in the bytes of an activation that is not there then itself. */
        const others = ({ operation: { tensor } }: Move, moment: number): number => {
          const place = places.get(tensor);
          expect(place).toBeDefined();
          if (!place) return 0;
          const [begin, end] = [place.offset, place.offset + bytesOf(tensor)];
          const overlaps = (arena: number, offset: number, bytes: number) =>
            arena === place.arena && offset < end && begin < offset + bytes;
          const found = lives.filter(
            ({ arena, offset, bytes, first, last }) =>
              overlaps(arena, offset, bytes) && first <= moment && moment <= last,
          );
          const slots = fit.extra.filter(
            ({ arena, offset }, slot) => overlaps(arena, offset, fit.map.chunkBytes) && isOpen(slot, moment),
          );
          return found.length + slots.length;
        };
        const moved: string[] = [];
        moves?.forEach(({ down, up }, moment) => {
          for (const move of down) {
            const begins = operations.indexOf(move.operation);
            expect(move.operation.op).toBe('offload');
            expect(begins).toBeLessThanOrEqual(moment);
            for (let m = begins + 1; m < moment; m++) expect(others(move, m)).toBe(0);
            early += Number(begins < moment);
          }
          for (const move of up) {
            const needed = operations.indexOf(move.operation);
            expect(move.operation.op).toBe('fetch');
            expect(moment).toBeLessThanOrEqual(needed);
            for (let m = moment; m < needed; m++) expect(others(move, m)).toBe(0);
            early += Number(moment < needed);
            const ids = move.pieces.map(({ id }) => id);
            // It came back only before it left again, if it did in this program.
            const [left, back] = [moved.lastIndexOf(`down ${ids[0]}`), moved.lastIndexOf(`up ${ids[0]}`)];
            expect(back === -1 || back < left).toBe(true);
            expect(trace.moments[moment]?.fetches).toEqual(expect.arrayContaining(ids));
          }
          moved.push(...down.flatMap(({ pieces }) => pieces.map(({ id }) => `down ${id}`)));
          moved.push(...up.flatMap(({ pieces }) => pieces.map(({ id }) => `up ${id}`)));
        });
        const wanted = operations
          .filter(isTransfer)
          .flatMap(({ op, pieces }) => pieces.map(({ id }) => `${op === 'offload' ? 'down' : 'up'} ${id}`));
        expect(moved.toSorted()).toEqual(wanted.toSorted());
      }
    }
    expect(early).toBeGreaterThan(0);
  });
});
