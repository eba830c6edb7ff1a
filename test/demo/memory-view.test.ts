// The memory view's own arithmetic: films, places on shelves, time. On histories as the executor could have left them.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Film, HOME, tierOf } from '../../demo/memory/film.ts';
import { FrameMeter } from '../../demo/memory/frame-meter.ts';
import { letterOf } from '../../demo/memory/paint.ts';
import { Playback, readingTime, speedWords } from '../../demo/memory/playback.ts';
import { type ShelfName, type ShelfShape, Shelves } from '../../demo/memory/shelves.ts';
import {
  ACTIVATION_STATES,
  activationCode,
  type ChunkHistory,
  expand,
  rowsOf,
  slotsInUse,
} from '../../src/engine/observe/chunk-codes.ts';
import { runsOf } from '../../src/engine/observe/run-writer.ts';
import { KINDS } from '../../src/memory/layout/kinds.ts';
import * as drawing from '../../src/report/drawing.ts';
import { at } from '../../src/util/at.ts';
import { leading } from '../entry.ts';

/** Codes: tier * 5 + state; 6 is in use on the GPU, 7 held there, 12 in staging, 17 in host memory, 22 on disk. */
const CODES = { gpu: [6, 7, 8], staging: [12], lower: [0, 17, 22] };

/** Any walk of chunks through the tiers that never has more in slots or staging than there is room for. */
const histories: fc.Arbitrary<ChunkHistory> = fc
  .record({
    chunks: fc.integer({ min: 1, max: 12 }),
    slots: fc.integer({ min: 1, max: 6 }),
    staging: fc.integer({ min: 0, max: 3 }),
    activations: fc.array(fc.array(fc.constantFrom(...ACTIVATION_STATES), { minLength: 25, maxLength: 25 }), {
      maxLength: 3,
    }),
    moments: fc.array(fc.array(fc.tuple(fc.nat(), fc.nat(6)), { maxLength: 4 }), { minLength: 1, maxLength: 25 }),
  })
  .map(({ chunks, slots, staging, moments, activations }) => {
    const now = Array<number>(chunks).fill(17);
    const runs = now.map((): number[] => []);
    const count = (tier: string) => now.filter((code) => tierOf(code) === tier).length;
    const choices = [...CODES.gpu, ...CODES.staging, ...CODES.lower];
    for (const wishes of moments) {
      for (const [which, wish] of wishes) {
        const chunk = which % chunks;
        const code = choices[wish]!;
        const tier = tierOf(code);
        const full = (tier === 'gpu' && count('gpu') >= slots) || (tier === 'staging' && count('staging') >= staging);
        if (!full || tierOf(now[chunk]!) === tier) now[chunk] = code;
      }
      now.forEach((code, chunk) => {
        const own = at(runs, chunk);
        if (own.at(-2) === code) own[own.length - 1]!++;
        else own.push(code, 1);
      });
    }
    return {
      chunkBytes: 1000,
      tensors: [],
      lists: [{ kind: 'parameter', first: 0, chunks }],
      phases: [{ name: 'forward', first: 0 }],
      operators: moments.map(() => 0),
      labels: ['linear'],
      chunks: runs,
      staged: [0, moments.length],
      slots,
      staging,
      stagingBytes: 1000 * staging,
      activations: {
        tensors: activations.map((_, i) => ({ name: `a${i}`, bytes: 1000 * (i + 1) })),
        codes: activations.map((states) => runsOf(moments.map((_, m) => activationCode(at(states, m), m % 3 === 0)))),
        working: [0, moments.length],
      },
      activationBytes: 0,
      otherBytes: 0,
    };
  });

describe('a film', () => {
  test('shows at every moment what the history says, whichever way it gets there', () => {
    fc.assert(
      fc.property(histories, fc.array(fc.nat(30), { maxLength: 12 }), (history, seeks) => {
        const film = new Film(history);
        expect([...film.used]).toEqual(slotsInUse(history.chunks));
        const codes = rowsOf(history).map(expand);
        const seen = [...film.codes];
        for (const moment of [0, ...seeks, 0, 24]) {
          film.seek(moment, (chunk) => {
            seen[chunk] = film.codes[chunk]!;
          });
          const reached = Math.min(moment, film.moments - 1);
          expect(film.at).toBe(reached);
          expect([...film.codes]).toEqual(codes.map((values) => values[reached]));
          // `changed` told of all that changed.
          expect(seen).toEqual([...film.codes]);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('has no two chunks in one place and none past the last; a chunk stays in its slot', () => {
    fc.assert(
      fc.property(histories, (history) => {
        const film = new Film(history);
        let before: number[] = [];
        for (let m = 0; m < film.moments; m++) {
          film.seek(m, () => {});
          const taken = new Set<string>();
          film.places.forEach((place, chunk) => {
            const tier = tierOf(film.codes[chunk]!);
            const placed = { gpu: history.slots, staging: history.staging };
            const room = film.isActivation(chunk) ? 0 : (placed[tier as keyof typeof placed] ?? 0);
            if (room === 0) {
              expect(place).toBe(HOME);
              return;
            }
            expect(place).toBeGreaterThanOrEqual(0);
            expect(place).toBeLessThan(room);
            expect(taken.has(`${tier} ${place}`)).toBe(false);
            taken.add(`${tier} ${place}`);
            if (m > 0 && tierOf(expand(at(history.chunks, chunk))[m - 1]!) === tier) expect(place).toBe(before[chunk]);
          });
          before = [...film.places];
        }
      }),
      { numRuns: 60 },
    );
  });

  test('counts the bytes of activations that leave the GPU for below, and come back', () => {
    const states = ['kept', 'leaving', 'disk', 'back', 'absent', 'kept', 'given up', 'again'] as const;
    fc.assert(
      fc.property(histories, (history) => {
        const moments = history.operators.length;
        const codes = runsOf(Array.from({ length: moments }, (_, m) => activationCode(at(states, m % 8), true)));
        const one = { tensors: [{ name: 'a', bytes: 700 }], codes: [codes], working: [0, moments] };
        const film = new Film({ ...history, activations: one });
        const from = (state: number) => Array.from({ length: moments }, (_, m) => (m % 8 === state ? 700 : 0));
        expect([...film.offloaded]).toEqual(from(1));
        expect([...film.fetched]).toEqual(from(3));
      }),
      { numRuns: 20 },
    );
  });

  test('goes back to the same places as it came from', () => {
    fc.assert(
      fc.property(histories, (history) => {
        const film = new Film(history);
        const places: number[][] = [];
        for (let m = 0; m < film.moments; m++) {
          film.seek(m, () => {});
          places.push([...film.places]);
        }
        for (let m = film.moments - 1; m >= 0; m--) {
          film.seek(m, () => {});
          expect([...film.places]).toEqual(places[m]);
        }
      }),
      { numRuns: 40 },
    );
  });

  test('tells ahead which chunk comes up, to which slot and when', () => {
    fc.assert(
      fc.property(histories, fc.integer({ min: 1, max: 8 }), (history, moments) => {
        const film = new Film(history);
        const told: [chunk: number, slot: number, moment: number][] = [];
        film.ahead(moments, (...arrival) => told.push(arrival));
        const expected = rowsOf(history)
          .map(expand)
          .flatMap((values, chunk) => {
            const [start] = leading(1, values);
            const moment = values.findIndex((code) => code !== start);
            const comes = moment > 0 && moment <= moments && tierOf(values[moment]!) === 'gpu';
            return comes && !['gpu', 'none'].includes(tierOf(start)) ? [[chunk, moment]] : [];
          });
        expect(told.map(([chunk, , moment]) => [chunk, moment] as const).sort(([a], [b]) => a - b)).toEqual(expected);
        for (const [chunk, slot, moment] of told) {
          film.seek(moment, () => {});
          expect(film.places[chunk]).toBe(slot);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('begins with chunks in the slots that the film before left them in', () => {
    const history: ChunkHistory = {
      chunkBytes: 1,
      tensors: [],
      lists: [{ kind: 'parameter', first: 0, chunks: 3 }],
      phases: [],
      operators: [0, 0],
      labels: [''],
      // The first leaves the GPU, the third takes its slot.
      chunks: [
        [7, 1, 17, 1],
        [7, 2],
        [17, 1, 7, 1],
      ],
      staged: [0, 2],
      slots: 2,
      staging: 0,
      stagingBytes: 0,
      activations: { tensors: [], codes: [], working: [] },
      activationBytes: 0,
      otherBytes: 0,
    };
    const first = new Film(history);
    const second = new Film(
      {
        ...history,
        chunks: [
          [17, 2],
          [7, 2],
          [7, 2],
        ],
      },
      first,
    );
    expect([...second.places]).toEqual([HOME, 1, 0]);
    expect(first.at).toBe(0);
    expect([...first.risen]).toEqual([0, 1]);
    // Its copy lay below: nothing was copied down.
    expect([...first.sunk]).toEqual([0, 0]);
    expect([...first.dropped]).toEqual([0, 1]);
  });

  test('goes on from a film of the same chunks, whatever the activations of both', () => {
    fc.assert(
      fc.property(histories, fc.nat(3), (history, count) => {
        const { tensors, codes, working } = history.activations;
        const before = new Film(history);
        before.seek(before.moments - 1, () => {});
        const activations = { tensors: tensors.slice(0, count), codes: codes.slice(0, count), working };
        const film = new Film({ ...history, activations }, before);
        history.chunks.forEach((_, chunk) => {
          const isLeft = tierOf(at(before.codes, chunk)) === 'gpu' && tierOf(at(film.codes, chunk)) === 'gpu';
          if (isLeft) expect(film.places[chunk]).toBe(before.places[chunk]);
        });
      }),
    );
  });
});

describe('shelves', () => {
  const shapes = fc
    .record({
      chunks: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 5000 })),
      kinds: fc.integer({ min: 1, max: 5 }),
      slots: fc.integer({ min: 1, max: 5000 }),
      staging: fc.integer({ min: 0, max: 16 }),
      disk: fc.boolean(),
      activations: fc.array(fc.boolean(), { maxLength: 300 }),
    })
    .map(({ chunks, kinds, slots, staging, disk, activations }): ShelfShape => {
      const each = Math.ceil(chunks / kinds);
      const lists = (['parameter', 'gradient', 'moment1', 'moment2', 'frozen'] as const)
        .slice(0, kinds)
        .map((kind, i) => ({ kind, first: i * each, chunks: each }));
      return { lists, slots: Math.min(slots, each * kinds), staging, disk, activations };
    });

  test('places do not overlap, lie within the width, and are found again at their points', () => {
    fc.assert(
      fc.property(
        shapes,
        fc.integer({ min: 320, max: 1200 }),
        fc.integer({ min: 200, max: 600 }),
        (shape, width, wished) => {
          const shelves = new Shelves(shape, width, wished);
          const chunks = shape.lists.reduce((sum, list) => sum + list.chunks, 0);
          const spots: [name: ShelfName, index: number, at: readonly [number, number]][] = [];
          for (let i = 0; i < shape.slots; i++) spots.push(['gpu', i, shelves.place('gpu', i)]);
          for (let i = 0; i < shape.staging; i++) spots.push(['staging', i, shelves.place('staging', i)]);
          const all = chunks + shape.activations.length;
          for (let i = chunks; i < all; i++) spots.push(['activations', i, shelves.home('gpu', i)]);
          for (const tier of shape.disk ? (['host', 'disk'] as const) : (['host'] as const)) {
            for (let i = 0; i < all; i++) if (shelves.isBelow(i)) spots.push([tier, i, shelves.home(tier, i)]);
          }
          expect(Array.from({ length: all }, (_, i) => shelves.isBelow(i))).toEqual([
            ...Array<boolean>(chunks).fill(true),
            ...shape.activations,
          ]);
          // A place is found at its corners: then no other can lie there, since one point has one answer.
          let wrong = 0;
          for (const [shelf, index, [x, y]] of spots) {
            const size = shelves.sizeOn(shelf);
            if (x < shelves.gutter || x + size > width || y < 0 || y + size > shelves.height) wrong++;
            for (const [px, py] of [
              [x + 0.1, y + 0.1],
              [x + size - 0.1, y + size - 0.1],
            ] as const) {
              const spot = shelves.at(px, py);
              if (spot?.shelf !== shelf || spot.index !== index) wrong++;
            }
          }
          expect(wrong).toBe(0);
          expect(shelves.sizeOn('host')).toBeGreaterThanOrEqual(3);
          expect(shelves.sizeOn('gpu')).toBeGreaterThanOrEqual(shelves.sizeOn('host'));
        },
      ),
      { numRuns: 60 },
    );
  });

  test('cells are as large as the height allows', () => {
    const shape = (chunks: number): ShelfShape => {
      return { lists: [{ kind: 'parameter', first: 0, chunks }], slots: 8, staging: 2, disk: true, activations: [] };
    };
    const sizes = [20, 400, 3000].map((chunks) => new Shelves(shape(chunks), 720, 360));
    const [few, some, many] = leading(
      3,
      sizes.map((shelves) => shelves.sizeOn('disk')),
    );
    expect(few).toBeGreaterThan(some);
    expect(some).toBeGreaterThan(many);
    for (const { height } of sizes) expect(height).toBe(360);
  });
});

describe('time', () => {
  test('a short step is slowed to reading speed, a long one is not', () => {
    expect(readingTime(180, 60)).toBe(4000);
    expect(speedWords(180, 60)).toBe('slowed 67×');
    expect(speedWords(180, 5000)).toBe('in real time');
    expect(readingTime(180, 5000)).toBe(5000);
  });

  const reel = (name: string, budget = 1) => {
    return { name, run: 'run', budget, milliseconds: 60, history: { operators: { length: 100 } } };
  };

  test('a film goes on while it plays, to its end and no further', () => {
    const playback = new Playback<ReturnType<typeof reel>>();
    expect([playback.goesOn, playback.wantsNext]).toEqual([false, true]);
    expect(playback.offer(reel('first'))).toBe('at once');
    playback.begin();
    playback.advance(1000);
    expect(playback.moment).toBe(25);
    playback.playing = false;
    playback.advance(1000);
    expect([playback.moment, playback.goesOn, playback.wantsNext]).toEqual([25, false, false]);
    playback.seek(Number.POSITIVE_INFINITY);
    expect([playback.moment, playback.atEnd]).toEqual([99, false]);
    playback.playing = true;
    playback.advance(9000);
    expect([playback.moment, playback.atEnd, playback.goesOn]).toEqual([99, true, false]);
    playback.seek(Number.NEGATIVE_INFINITY);
    expect(playback.moment).toBe(0);
  });

  test('the newest picture follows when the one before was seen; another budget begins at once', () => {
    const playback = new Playback<ReturnType<typeof reel>>();
    playback.offer(reel('first'));
    playback.begin();
    playback.advance(3000);
    // Recording takes two steps at most: sooner, it would be of a step too early.
    expect(playback.wantsNext).toBe(false);
    playback.advance(900);
    expect(playback.wantsNext).toBe(true);
    for (const name of ['second', 'third']) expect(playback.offer(reel(name))).toBe('later');
    expect([playback.wantsNext, playback.isOver]).toEqual([false, false]);
    playback.advance(100);
    expect([playback.atEnd, playback.isOver, playback.goesOn]).toEqual([true, false, true]);
    playback.advance(700);
    expect(playback.isOver).toBe(true);
    expect(playback.begin()).toBe(true);
    expect([playback.picture?.name, playback.moment, playback.goesOn]).toEqual(['third', 0, true]);
    expect(playback.begin()).toBe(false);
    expect(playback.offer(reel('fourth', 2))).toBe('at once');
  });

  test('frames are counted over the last two seconds of animation', () => {
    const meter = new FrameMeter();
    expect(meter.framesPerSecond).toBe(0);
    for (let time = 0; time < 3000; time += 50) meter.frame(time);
    expect(meter.framesPerSecond).toBeCloseTo(20, 6);
    for (let time = 3000; time < 6000; time += 20) meter.frame(time);
    expect(meter.framesPerSecond).toBeCloseTo(50, 6);
    meter.begin();
    expect(meter.framesPerSecond).toBe(0);
  });
});

test('chunks of every kind have a word, and those that are frozen one letter however they are stored', () => {
  const kinds = Object.keys(KINDS);
  expect(kinds.filter((kind) => !drawing.WORDS[kind])).toEqual([]);
  const frozen = kinds.filter((kind) => kind.startsWith('frozen'));
  expect(frozen.length).toBeGreaterThan(5);
  expect(new Set(frozen.map(letterOf))).toEqual(new Set(['F']));
  // What only the optimizer reads has none.
  expect(kinds.filter((kind) => letterOf(kind) === '')).toEqual(['parameterLow', 'master']);
});
