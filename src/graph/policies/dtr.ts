// Dynamic tensor rematerialization: nothing is planned. When there is no room for what an operator makes, the tensor goes
// that costs the least to make again for its bytes and for the time since its last use; what is needed and not there is
// made again, with all that it takes, and may go again.
//
// Here the run is simulated, and what it does is recorded as a program.

import { assert } from '../../util/errors.ts';
import { activationsOf } from '../activations.ts';
import { makersIn, makingOf, positionsIn } from '../makers.ts';
import {
  bytesOf,
  type Instruction,
  makeTensor,
  operandsOf,
  type Program,
  type Tensor,
  type TensorInstruction,
  touchedBy,
} from '../program.ts';
import type { ActivationPolicy, Setting } from './policy.ts';

export const dtr: ActivationPolicy = {
  name: 'DTR',
  paper: 'Kirisame et al. 2021: Dynamic Tensor Rematerialization',
  approximated:
    'gradients of activations, and what the head makes, do not go; the cost of what was given up before counts for what is made from it, without the paper’s classes of neighbours',
  fillsRoom: true,
  apply: (program, setting) => new Follower(program, setting).follow(),
};

/** More instructions than this, for each that there was, and the run gets nowhere. */
const MOST_AGAIN = 6;

/**
 * A simulated run of a program within the room that a setting leaves, and what it writes: the program with what is made
 * again.
 */
class Follower {
  readonly #program: Program;
  readonly #setting: Setting;
  readonly #makers: ReadonlyMap<Tensor, readonly TensorInstruction[]>;
  readonly #position: ReadonlyMap<Instruction, number>;
  /** What may go. */
  readonly #evictable: ReadonlySet<Tensor>;
  readonly #last = new Map<Tensor, number>();
  /** What is there: of what may go, the tensor that holds its value now. */
  readonly #here = new Map<Tensor, Tensor>();
  readonly #used = new Map<Tensor, number>();
  readonly #pins = new Map<Tensor, number>();
  readonly #written: Instruction[] = [];
  #live = 0;
  /** There was no room, and nothing that may go. */
  #isLost = false;
  #now = 0;
  #at = 0;

  constructor(program: Program, setting: Setting) {
    this.#program = program;
    this.#setting = setting;
    this.#makers = makersIn(program);
    this.#position = positionsIn(program, this.#makers);
    this.#evictable = new Set(activationsOf(program).map(({ tensor }) => tensor));
    program.instructions.forEach((instruction, i) => {
      for (const { tensor } of touchedBy(instruction)) this.#last.set(tensor, i);
    });
    // What must not go and others are made from stays as long as they may be wanted.
    for (const tensor of this.#evictable) {
      for (const maker of makingOf(tensor, this.#makers).needed) {
        for (const input of operandsOf(maker, 'in')) {
          if (!this.#evictable.has(input)) this.#last.set(input, program.instructions.length);
        }
      }
    }
  }

  /** Undefined: it gets nowhere in this room. */
  follow(): Program | undefined {
    const { instructions } = this.#program;
    for (const [i, instruction] of instructions.entries()) {
      this.#at = i;
      const touched = new Set(touchedBy(instruction).map(({ tensor }) => tensor));
      const made = touchedBy(instruction).filter(({ tensor }) => !this.#here.has(tensor) && !this.#wasMade(tensor, i));
      const fresh = new Set(made.map(({ tensor }) => tensor));
      this.#pinned(touched, () => {
        for (const tensor of touched) if (!fresh.has(tensor)) this.#need(tensor, instruction);
        for (const tensor of fresh) this.#take(tensor, tensor);
        this.#run(this.#withTensors(instruction));
      });
      for (const tensor of touched) this.#used.set(tensor, this.#now);
      for (const tensor of touched) if (this.#last.get(tensor) === i) this.#give(tensor);
      if (this.#isLost || this.#written.length > MOST_AGAIN * instructions.length) return undefined;
    }
    return { ...this.#program, instructions: this.#written };
  }

  /** Whether an instruction before this one wrote it. */
  #wasMade(tensor: Tensor, i: number): boolean {
    return this.#used.has(tensor) || (this.#makers.get(tensor) ?? []).some((maker) => this.#placeOf(maker) < i);
  }

  #placeOf(instruction: Instruction): number {
    return this.#position.get(instruction) ?? 0;
  }

  #run(instruction: Instruction): void {
    this.#written.push(instruction);
    this.#now += this.#setting.secondsOf(instruction);
  }

  #withTensors(instruction: Instruction): Instruction {
    if (instruction.op !== 'dispatch') return instruction;
    const operands = Object.entries(instruction.operands).map(([name, tensor]) => [
      name,
      this.#here.get(tensor) ?? tensor,
    ]);
    return { ...instruction, operands: Object.fromEntries(operands) };
  }

  /** Makes what is not there again, for this instruction. */
  #need(wanted: Tensor, reader: Instruction): void {
    if (this.#here.has(wanted) || this.#isLost || this.#written.length > MOST_AGAIN * this.#program.instructions.length)
      return;
    assert(this.#evictable.has(wanted), `${wanted.name} went and must not`);
    const { together, needed } = makingOf(wanted, this.#makers);
    const steps = [...needed].sort((a, b) => this.#placeOf(a) - this.#placeOf(b));
    const inputs = new Set(steps.flatMap((step) => operandsOf(step, 'in')).filter((tensor) => !together.has(tensor)));
    this.#pinned(inputs, () => {
      for (const input of inputs) this.#need(input, reader);
      const made = new Map(
        [...together].map((tensor) => {
          const { name, shape, type, wantsGradient } = tensor;
          const again = makeTensor(`${name} again`, shape, 'activation', type, wantsGradient);
          return [tensor, tensor === wanted ? { ...again, standsFor: tensor } : again];
        }),
      );
      const bytes = [...together].reduce((sum, tensor) => sum + bytesOf(tensor), 0);
      this.#makeRoom(bytes);
      for (const { op, kernel, problem, operands, label } of steps) {
        const mapped = Object.entries(operands).map(([name, tensor]) => [
          name,
          made.get(tensor) ?? this.#here.get(tensor) ?? tensor,
        ]);
        const { phase, block } = reader;
        const common = { op, kernel, problem, label: `${label}, again`, phase, ...(block !== undefined && { block }) };
        this.#run({ ...common, operands: Object.fromEntries(mapped), again: true });
      }
      this.#take(wanted, made.get(wanted) ?? wanted);
    });
    this.#used.set(wanted, this.#now);
    for (const input of inputs) {
      this.#used.set(input, this.#now);
      // It was made for this alone.
      if ((this.#last.get(input) ?? 0) < this.#at && !this.#pins.get(input)) this.#give(input);
    }
  }

  #take(tensor: Tensor, holder: Tensor): void {
    this.#makeRoom(bytesOf(tensor));
    this.#here.set(tensor, holder);
    this.#live += bytesOf(tensor);
  }

  #give(tensor: Tensor): void {
    if (this.#here.delete(tensor)) this.#live -= bytesOf(tensor);
  }

  #pinned(tensors: ReadonlySet<Tensor>, act: () => void): void {
    for (const tensor of tensors) this.#pins.set(tensor, (this.#pins.get(tensor) ?? 0) + 1);
    act();
    for (const tensor of tensors) this.#pins.set(tensor, (this.#pins.get(tensor) ?? 0) - 1);
  }

  /** Lets go what is worth least. */
  #makeRoom(bytes: number): void {
    while (this.#live + bytes > this.#setting.room) {
      let victim: Tensor | undefined;
      let least = Number.POSITIVE_INFINITY;
      for (const tensor of this.#here.keys()) {
        if (!this.#evictable.has(tensor) || (this.#pins.get(tensor) ?? 0) > 0 || !this.#isWhole(tensor)) continue;
        const stale = this.#now - (this.#used.get(tensor) ?? 0) + Number.MIN_VALUE;
        const value = this.#costOf(tensor, new Set()) / (bytesOf(tensor) * stale);
        if (value < least) [victim, least] = [tensor, value];
      }
      if (!victim) {
        this.#isLost = true;
        return;
      }
      this.#give(victim);
    }
  }

  /** Whether all that writes it has run. */
  #isWhole(tensor: Tensor): boolean {
    return (this.#makers.get(tensor) ?? []).every((maker) => this.#placeOf(maker) < this.#at);
  }

  /** Seconds to make it again, with what is not there of what it is made from. */
  #costOf(tensor: Tensor, seen: Set<Tensor>): number {
    if (seen.has(tensor)) return 0;
    const { together, needed } = makingOf(tensor, this.#makers);
    for (const made of together) seen.add(made);
    let seconds = 0;
    for (const maker of needed) {
      seconds += this.#setting.secondsOf(maker);
      for (const input of operandsOf(maker, 'in')) if (!this.#here.has(input)) seconds += this.#costOf(input, seen);
    }
    return seconds;
  }
}
