import { describe, expect, it } from 'vitest';
import { type State, TensorStates, TRANSITIONS } from '../../src/memory/layout/states.ts';

const STATES = Object.keys(TRANSITIONS) as State[];
const where = { operator: 'matmul h.0', moment: 7 };

/** Of tensors in chunk 0. */
const statesOf = (...initial: State[]) =>
  new TensorStates(
    initial.map((state) => ({ state, chunk: 0 })),
    1,
    () => 'wte',
  );

describe('temporal states', () => {
  it('allow exactly the transitions of the table, and name tensor, operator and moment otherwise', () => {
    for (const from of STATES) {
      for (const to of STATES) {
        const states = statesOf(from);
        if (TRANSITIONS[from].includes(to)) {
          states.move(0, to, where);
          expect(states.of(0)).toBe(to);
        } else {
          expect(() => states.move(0, to, where)).toThrow(`wte in matmul h.0 at moment 7: ${from} cannot become ${to}`);
          expect(states.of(0)).toBe(from);
        }
      }
    }
  });

  it('reach an operator only through COMPUTE, and come from it only by an operator', () => {
    for (const state of STATES) if (state !== 'COMPUTE') expect(TRANSITIONS[state]).toContain('COMPUTE');
    for (const state of STATES) {
      if (state !== 'COMPUTE') expect(TRANSITIONS[state].some((next) => next.startsWith('HOLD_AFTER'))).toBe(false);
    }
  });

  it('hold a tensor used twice until its last user leaves', () => {
    const states = statesOf('HOLD');
    states.pin(0, true, where);
    states.pin(0, true, where);
    states.unpin(0, 'HOLD_AFTER_FWD', where);
    expect(states.of(0)).toBe('COMPUTE');
    states.unpin(0, 'HOLD_AFTER_BWD', where);
    expect(states.of(0)).toBe('HOLD_AFTER_BWD');
    expect(() => states.unpin(0, 'HOLD', where)).toThrow('wte in matmul h.0 at moment 7: it is not pinned');
  });

  it('give no value to read where there is none', () => {
    const states = statesOf('FREE');
    expect(() => states.pin(0, true, where)).toThrow('wte in matmul h.0 at moment 7: it is FREE');
    states.pin(0, false, where);
    expect(states.of(0)).toBe('COMPUTE');
  });

  it('make a chunk what the strongest of its tensors is', () => {
    const chunkOf = (...initial: State[]) => statesOf(...initial).ofChunk(0);
    expect(chunkOf()).toBe('FREE');
    expect(chunkOf('FREE', 'FREE')).toBe('FREE');
    expect(chunkOf('FREE', 'HOLD_AFTER_BWD')).toBe('HOLD_AFTER_BWD');
    expect(chunkOf('HOLD_AFTER_BWD', 'HOLD_AFTER_FWD', 'FREE')).toBe('HOLD_AFTER_FWD');
    expect(chunkOf('HOLD_AFTER_FWD', 'HOLD')).toBe('HOLD');
    expect(chunkOf('HOLD', 'COMPUTE', 'FREE')).toBe('COMPUTE');
    const states = statesOf('HOLD', 'HOLD_AFTER_FWD');
    states.move(0, 'FREE', where);
    expect(states.ofChunk(0)).toBe('HOLD_AFTER_FWD');
  });
});
