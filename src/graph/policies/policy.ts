// Policy for activations: a program rewritten so that its activations take less room, by one published rule. It says
// what becomes of which activation and nothing else: how they are placed, how chunks share the memory with them and
// what a step then takes is worked out alike for all (train/plan/activation-comparison.ts). Pure, as every policy is.
//
// Invariant: a policy changes no result: what it makes again is made by the same kernels from the same values.

import type { Instruction, Program } from '../program.ts';

/** A rule from the literature, as far as it can be had here. */
export interface ActivationPolicy {
  readonly name: string;
  /** Authors, year and title. */
  readonly paper: string;
  /** In what this differs from it; empty: in nothing that counts here. */
  readonly approximated: string;
  /** Whether it goes by the room that there is, or always does the same. */
  readonly fillsRoom: boolean;
  /** The program under the rule; undefined where the rule finds no way in this room. */
  apply(program: Program, setting: Setting): Program | undefined;
}

/** The figures of the machine and of the memory that a policy goes by. */
export interface Setting {
  /** Bytes for activations that are alive at once. */
  readonly room: number;
  /** Of an instruction, on the GPU. */
  secondsOf(instruction: Instruction): number;
  /** Bytes a second between the GPU and below, one way. */
  readonly linkBytes: number;
}
