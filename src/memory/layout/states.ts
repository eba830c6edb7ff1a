// The five states of a tensor in training, and the table of the changes between them that make sense. A tensor used
// twice at once is pinned twice. Knows numbers only: no buffer, no placement.
//
// Invariant: every change goes through `TRANSITIONS`; another is an error that names tensor, operator, moment.

import { at } from '../../util/at.ts';

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

/** By state, and the one that it is to become: whether it may. By their places in STRENGTH, as all that follows. */
const MAY_BECOME: readonly (readonly boolean[])[] = STRENGTH.map((from) =>
  STRENGTH.map((to) => TRANSITIONS[from].includes(to)),
);
const codeOf = (state: State): number => STRENGTH.indexOf(state);
const [COMPUTE, FREE] = [codeOf('COMPUTE'), codeOf('FREE')];

/** The operator and the moment at which something happens: for errors. */
export interface Where {
  readonly operator: string;
  readonly moment: number;
}

/** A tensor before the first change: its state, and the chunk that it lies in. */
export interface TensorAtFirst {
  readonly state: State;
  readonly chunk: number;
}

/** Of tensors and of the chunks that they lie in, both by their numbers. A chunk is what the strongest of its tensors is. */
export class TensorStates {
  readonly #nameOf: (tensor: number) => string;
  readonly #states: Uint8Array;
  readonly #pins: Uint16Array;
  readonly #chunkOf: Int32Array;
  /** Of each chunk: how many of its tensors are in each state. */
  readonly #counts: Int32Array;

  /** `nameOf`: for errors. */
  constructor(initial: readonly TensorAtFirst[], chunks: number, nameOf: (tensor: number) => string) {
    this.#nameOf = nameOf;
    this.#states = Uint8Array.from(initial, ({ state }) => codeOf(state));
    this.#pins = new Uint16Array(initial.length);
    this.#chunkOf = Int32Array.from(initial, ({ chunk }) => chunk);
    this.#counts = new Int32Array(chunks * STRENGTH.length);
    this.#chunkOf.forEach((chunk, tensor) => {
      this.#count(chunk, at(this.#states, tensor), 1);
    });
  }

  of(tensor: number): State {
    return at(STRENGTH, at(this.#states, tensor));
  }

  /** FREE where it holds no tensor. */
  ofChunk(chunk: number): State {
    const first = chunk * STRENGTH.length;
    for (let code = 0; code < FREE; code++) if (at(this.#counts, first + code) > 0) return at(STRENGTH, code);
    return 'FREE';
  }

  /** An operator starts to use the tensor. `needsValue`: it reads what is there. Pins add up. */
  pin(tensor: number, needsValue: boolean, where: Where): void {
    if (needsValue && this.#states[tensor] === FREE) {
      throw new Error(`${this.#describe(tensor, where)}: it is FREE and holds no value to read`);
    }
    const pins = at(this.#pins, tensor);
    if (pins === 0) this.#move(tensor, COMPUTE, where);
    this.#pins[tensor] = pins + 1;
  }

  /** The operator is done with it; the last to leave decides the next state. */
  unpin(tensor: number, next: State, where: Where): void {
    const pins = at(this.#pins, tensor);
    if (pins === 0) throw new Error(`${this.#describe(tensor, where)}: it is not pinned`);
    this.#pins[tensor] = pins - 1;
    if (pins === 1) this.#move(tensor, codeOf(next), where);
  }

  /** Any other change: freed, loaded from a checkpoint, a pass is over. */
  move(tensor: number, next: State, where: Where): void {
    this.#move(tensor, codeOf(next), where);
  }

  #move(tensor: number, next: number, where: Where): void {
    const code = at(this.#states, tensor);
    if (!MAY_BECOME[code]?.[next]) {
      const state = at(STRENGTH, code);
      throw new Error(
        `${this.#describe(tensor, where)}: ${state} cannot become ${STRENGTH[next]}, only ${TRANSITIONS[state].join(', ')}`,
      );
    }
    this.#states[tensor] = next;
    const chunk = at(this.#chunkOf, tensor);
    this.#count(chunk, code, -1);
    this.#count(chunk, next, 1);
  }

  #count(chunk: number, code: number, more: 1 | -1): void {
    const place = chunk * STRENGTH.length + code;
    this.#counts[place] = at(this.#counts, place) + more;
  }

  #describe(tensor: number, { operator, moment }: Where): string {
    return `${this.#nameOf(tensor)} in ${operator} at moment ${moment}`;
  }
}
