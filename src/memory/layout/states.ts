// What a tensor is doing: one of five states, and the table of the changes between them that make sense. A
// tensor used twice at once is pinned twice. Knows names only: no buffer, no placement.
//
// Invariant: every change goes through `TRANSITIONS`; another is an error that names tensor, operator, moment.

/** What a tensor, or the chunk that it lies in, may be doing. */
export const STATES = [
  'FREE', // no payload anywhere; the next access may overwrite
  'COMPUTE', // an operator is using it: pinned on the GPU
  'HOLD', // payload valid, may be moved
  'HOLD_AFTER_FWD', // as HOLD, forward has used it; backward will
  'HOLD_AFTER_BWD', // as HOLD, backward has used it; the optimizer, or the next micro-batch, will
] as const;
/** One of STATES. */
export type State = (typeof STATES)[number];

export const TRANSITIONS: Readonly<Record<State, readonly State[]>> = {
  // HOLD: a value came from a checkpoint or from initialisation.
  FREE: ['COMPUTE', 'HOLD'],
  COMPUTE: ['FREE', 'HOLD', 'HOLD_AFTER_FWD', 'HOLD_AFTER_BWD'],
  HOLD: ['COMPUTE', 'FREE'],
  // HOLD: a pass without backward (evaluation) or a whole step is over.
  HOLD_AFTER_FWD: ['COMPUTE', 'FREE', 'HOLD'],
  HOLD_AFTER_BWD: ['COMPUTE', 'FREE', 'HOLD'],
};

/** Strongest first: a chunk is pinned if one tensor is, and waits for the earliest of its tensors' next uses. */
const STRENGTH: readonly State[] = ['COMPUTE', 'HOLD', 'HOLD_AFTER_FWD', 'HOLD_AFTER_BWD', 'FREE'];

/** The state of a chunk that holds tensors in these states; FREE when it holds none. */
export function strongest(states: Iterable<State>): State {
  const present = new Set(states);
  return STRENGTH.find((state) => present.has(state)) ?? 'FREE';
}

/** The operator and the moment at which something happens: for errors. */
export interface Where {
  readonly operator: string;
  readonly moment: number;
}

export class TensorStates {
  readonly #states = new Map<string, State>();
  readonly #pins = new Map<string, number>();

  constructor(initial: Iterable<readonly [tensor: string, state: State]>) {
    for (const [tensor, state] of initial) this.#states.set(tensor, state);
  }

  of(tensor: string): State {
    const state = this.#states.get(tensor);
    if (state === undefined) throw new Error(`internal: no tensor ${tensor} is known`);
    return state;
  }

  /** An operator starts to use the tensor. `needsValue`: it reads what is there. Pins add up. */
  pin(tensor: string, needsValue: boolean, where: Where): void {
    if (needsValue && this.of(tensor) === 'FREE') {
      throw new Error(`${describe(tensor, where)}: it is FREE and holds no value to read`);
    }
    const pins = this.#pins.get(tensor) ?? 0;
    if (pins === 0) this.move(tensor, 'COMPUTE', where);
    this.#pins.set(tensor, pins + 1);
  }

  /** The operator is done with it; the last to leave decides the next state. */
  unpin(tensor: string, next: State, where: Where): void {
    const pins = this.#pins.get(tensor) ?? 0;
    if (pins === 0) throw new Error(`${describe(tensor, where)}: it is not pinned`);
    this.#pins.set(tensor, pins - 1);
    if (pins === 1) this.move(tensor, next, where);
  }

  /** Any other change: freed, loaded from a checkpoint, a pass is over. */
  move(tensor: string, next: State, where: Where): void {
    const state = this.of(tensor);
    if (!TRANSITIONS[state].includes(next)) {
      throw new Error(
        `${describe(tensor, where)}: ${state} cannot become ${next}, only ${TRANSITIONS[state].join(', ')}`,
      );
    }
    this.#states.set(tensor, next);
  }
}

const describe = (tensor: string, { operator, moment }: Where) => `${tensor} in ${operator} at moment ${moment}`;
