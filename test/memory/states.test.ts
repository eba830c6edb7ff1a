import { describe, expect, it } from 'vitest';
import { type State, strongest, TensorStates, TRANSITIONS } from '../../src/memory/layout/states.ts';

const STATES = Object.keys(TRANSITIONS) as State[];
const where = { operator: 'matmul h.0', moment: 7 };

describe('temporal states', () => {
  it('allow exactly the transitions of the table, and name tensor, operator and moment otherwise', () => {
    for (const from of STATES) {
      for (const to of STATES) {
        const states = new TensorStates([['wte', from]]);
        if (TRANSITIONS[from].includes(to)) {
          states.move('wte', to, where);
          expect(states.of('wte')).toBe(to);
        } else {
          expect(() => states.move('wte', to, where)).toThrow(
            `wte in matmul h.0 at moment 7: ${from} cannot become ${to}`,
          );
          expect(states.of('wte')).toBe(from);
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
    const states = new TensorStates([['wte', 'HOLD']]);
    states.pin('wte', true, where);
    states.pin('wte', true, where);
    states.unpin('wte', 'HOLD_AFTER_FWD', where);
    expect(states.of('wte')).toBe('COMPUTE');
    states.unpin('wte', 'HOLD_AFTER_BWD', where);
    expect(states.of('wte')).toBe('HOLD_AFTER_BWD');
    expect(() => states.unpin('wte', 'HOLD', where)).toThrow('wte in matmul h.0 at moment 7: it is not pinned');
  });

  it('give no value to read where there is none', () => {
    const states = new TensorStates([['gradient', 'FREE']]);
    expect(() => states.pin('gradient', true, where)).toThrow('gradient in matmul h.0 at moment 7: it is FREE');
    states.pin('gradient', false, where);
    expect(states.of('gradient')).toBe('COMPUTE');
  });

  it('make a chunk what the strongest of its tensors is', () => {
    expect(strongest([])).toBe('FREE');
    expect(strongest(['FREE', 'FREE'])).toBe('FREE');
    expect(strongest(['FREE', 'HOLD_AFTER_BWD'])).toBe('HOLD_AFTER_BWD');
    expect(strongest(['HOLD_AFTER_BWD', 'HOLD_AFTER_FWD', 'FREE'])).toBe('HOLD_AFTER_FWD');
    expect(strongest(['HOLD_AFTER_FWD', 'HOLD'])).toBe('HOLD');
    expect(strongest(['HOLD', 'COMPUTE', 'FREE'])).toBe('COMPUTE');
  });
});
