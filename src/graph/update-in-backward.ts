// The rewrite of a step's program for an update inside its backward pass: what is decided beforehand is put in front of the
// backward pass that updates. Where that needs the norm of all gradients (clipping), a first backward pass finds it, and the
// second makes the same gradients again. What becomes of activations is decided before (activations.ts), as is the order of
// micro-batches (layer-major.ts); where each chunk's update then stands is found in the list of operations (engine/compile).
//
// Invariants: both passes run the same kernels on the same problems, hence to the same bits; the first changes nothing that
// the second reads, so that what the forward pass keeps serves both: where it works in place, it does on a copy (copy-elision.ts).

import { assert } from '../util/errors.ts';
import type { BackwardPasses } from './operators/optimizer.ts';
import { holderOf, type Instruction, type Program, type Tensor, touchedBy } from './program.ts';

/** What a step that updates in its backward pass has beside its micro-batches and its update. */
export interface InBackward {
  readonly passes: BackwardPasses;
  /** Runs in front of the pass that updates. */
  readonly decide: Program;
}

/** The program of all micro-batches of a step, with what is decided before it updates. */
export function withDecision(program: Program, { passes, decide }: InBackward): Program {
  const { instructions } = program;
  const first = instructions.findIndex(({ phase }) => phase === 'backward');
  assert(first >= 0, `${program.name} has no backward pass`);
  const [forward, backward] = [instructions.slice(0, first), instructions.slice(first)];
  assert(
    backward.every(({ phase }) => phase === 'backward'),
    `${program.name} goes forward behind a part of its backward pass`,
  );
  const again = passes === 2 ? secondPass(forward, backward) : backward;
  const before = passes === 2 ? [...forward, ...backward.map(keeping)] : forward;
  return { ...program, instructions: [...before, ...decide.instructions, ...again] };
}

/** What lies below the GPU is fetched once more. */
const keeping = (instruction: Instruction): Instruction =>
  instruction.op === 'fetch' ? { ...instruction, keeps: true } : instruction;

/** The backward pass on activations of its own. */
function secondPass(forward: readonly Instruction[], backward: readonly Instruction[]): Instruction[] {
  const kept = new Set(forward.flatMap((instruction) => touchedBy(instruction).map(({ tensor }) => tensor)));
  const copies = new Map<Tensor, Tensor>();
  const own = (tensor: Tensor): Tensor => {
    const { partOf } = tensor;
    if (tensor.role !== 'activation' || kept.has(holderOf(tensor))) return tensor;
    const copy = copies.get(tensor) ?? {
      ...{ ...tensor, name: `${tensor.name}, second pass` },
      ...(partOf && { partOf: { ...partOf, tensor: own(partOf.tensor) } }),
    };
    copies.set(tensor, copy);
    return copy;
  };
  return backward.map((instruction): Instruction => {
    for (const { tensor, access } of touchedBy(instruction)) {
      assert(
        access === 'read' || !kept.has(tensor),
        `${instruction.label} changes ${tensor.name}, which is read again`,
      );
    }
    switch (instruction.op) {
      case 'dispatch': {
        const operands = Object.entries(instruction.operands).map(([name, tensor]) => [name, own(tensor)]);
        const { copyOf = instruction } = instruction;
        return { ...instruction, operands: Object.fromEntries(operands), copyOf };
      }
      case 'fetch':
        return { ...instruction, tensor: own(instruction.tensor) };
      case 'offload':
      case 'all-reduce':
      case 'scatter-rows':
      case 'gather-rows':
      case 'send':
      case 'receive':
      case 'all-gather':
      case 'tie':
      case 'dispatch each chunk':
      case 'host each chunk':
        throw new Error(`internal: ${instruction.label} has no place in a backward pass that runs twice`);
      default:
        return instruction satisfies never;
    }
  });
}
