// Groups of heads: a rewrite of a program in which the backward pass of attention over few sequences goes some heads after the
// others, and the gradients of these take the place of their queries, keys and values: both never exist for all heads at once.
//
// Invariant: no bit changes. Each head is computed by the kernel and variant that all take, and heads that share a key and value
// are in one group, so that no sum is cut.

import {
  type AttentionBackwardProblem,
  attentionBackwardKV,
  attentionBackwardQ,
} from '../kernels/attention-backward.ts';
import { type PutHeadsProblem, putHeads } from '../kernels/put-heads.ts';
import {
  type Instruction,
  makeTensor,
  type Program,
  type Tensor,
  type TensorInstruction,
  touchedBy,
  withOperands,
} from './program.ts';

/** A backward pass of attention that can go in groups of heads: its two instructions, side by side. */
interface Pass {
  readonly queries: TensorInstruction;
  readonly keys: TensorInstruction;
  readonly qkv: Tensor;
  readonly dqkv: Tensor;
  readonly groups: number;
}

/** The program, with attention's backward pass in groups of heads where a layer is to go in more slices than it has sequences. */
export function inHeadGroups(program: Program, slicesOf: (layer: string) => number | undefined): Program {
  const passes = withoutOtherUses(program, passesIn(program, slicesOf));
  if (passes.length === 0) return program;
  const byQueries = new Map<Instruction, Pass>(passes.map((pass) => [pass.queries, pass]));
  const isOfKeys = new Set<Instruction>(passes.map(({ keys }) => keys));
  const places = new Map(passes.map(({ qkv, dqkv }) => [dqkv, qkv]));
  const instructions = program.instructions.flatMap((instruction): readonly Instruction[] => {
    const pass = byQueries.get(instruction);
    if (pass) return grouped(pass);
    return isOfKeys.has(instruction) ? [] : [inPlace(instruction, places)];
  });
  return { ...program, instructions };
}

const problemOf = ({ problem }: TensorInstruction) => problem as AttentionBackwardProblem;

function passesIn({ instructions }: Program, slicesOf: (layer: string) => number | undefined): Pass[] {
  return instructions.flatMap((queries, i): Pass[] => {
    const keys = instructions[i + 1];
    if (queries.op !== 'dispatch' || queries.kernel !== attentionBackwardQ || queries.layer === undefined) return [];
    if (keys?.op !== 'dispatch' || keys.kernel !== attentionBackwardKV) return [];
    const { batch, kvHeads } = problemOf(queries);
    const groups = Math.min(kvHeads, Math.floor((slicesOf(queries.layer) ?? 0) / batch));
    const { qkv, dqkv } = queries.operands;
    // A gradient in fewer bits than it has would be another.
    const fits = qkv && dqkv && qkv.role === 'activation' && qkv.stored === dqkv.stored;
    return fits && groups > 1 ? [{ queries, keys, qkv, dqkv, groups }] : [];
  });
}

/** Those whose packed rows nothing reads behind them, and whose gradient no other instruction begins, moves or gives back. */
function withoutOtherUses({ instructions, outputs }: Program, passes: readonly Pass[]): Pass[] {
  if (passes.length === 0) return [];
  const wanted = new Set(passes.flatMap(({ qkv, dqkv }) => [qkv, dqkv]));
  const first = new Map<Tensor, Instruction>();
  const last = new Map<Tensor, Instruction>();
  const others = new Set<Tensor>(outputs);
  for (const instruction of instructions) {
    for (const { tensor } of touchedBy(instruction)) {
      if (!wanted.has(tensor)) continue;
      if (!first.has(tensor)) first.set(tensor, instruction);
      last.set(tensor, instruction);
      if (instruction.op !== 'dispatch') others.add(tensor);
    }
  }
  return passes.filter(
    ({ queries, keys, qkv, dqkv }) =>
      last.get(qkv) === keys && first.get(dqkv) === queries && !others.has(dqkv) && !outputs.includes(qkv),
  );
}

/** By the first instruction of a pass: programs that differ in their activations share most instructions. */
const known = new WeakMap<Instruction, { readonly groups: number; readonly made: readonly Instruction[] }>();

function grouped(pass: Pass): readonly Instruction[] {
  const before = known.get(pass.queries);
  if (before?.groups === pass.groups) return before.made;
  const made = groupsOf(pass);
  known.set(pass.queries, { groups: pass.groups, made });
  return made;
}

function groupsOf({ queries, keys, qkv, dqkv, groups }: Pass): Instruction[] {
  const { batch, seq, heads, kvHeads, headSize } = problemOf(queries);
  const most = Math.ceil(kvHeads / groups);
  const count = Math.ceil(kvHeads / most);
  return Array.from({ length: count }, (_, i): Instruction[] => {
    const kvHeadsBefore = i * most;
    const own = Math.min(most, kvHeads - kvHeadsBefore);
    const some = { heads: (heads / kvHeads) * own, kvHeads: own, kvHeadsBefore, allKvHeads: kvHeads };
    const name = `heads ${i + 1} of ${count}`;
    const width = (some.heads + 2 * own) * headSize;
    const gradient = makeTensor(`${dqkv.name}, ${name}`, [batch, seq, width], 'activation');
    const ofSome = (whole: TensorInstruction): TensorInstruction => ({
      ...whole,
      problem: { ...whole.problem, ...some },
      whole: whole.whole ?? whole.problem,
      operands: { ...whole.operands, dqkv: gradient },
      label: `${whole.label}, ${name}`,
    });
    const ofKeys = ofSome(keys);
    const problem: PutHeadsProblem = { batch, seq, headSize, ...some };
    const put = { kernel: putHeads, problem, whole: problem, operands: { x: gradient, y: qkv } };
    return [ofSome(queries), ofKeys, { ...ofKeys, ...put }];
  }).flat();
}

/** By instruction: what it is with the tensors beside it in place of gradients. */
const moved = new WeakMap<Instruction, { readonly to: readonly Tensor[]; readonly made: Instruction }>();

/** The instruction on what its operands have taken the place of. */
function inPlace(instruction: Instruction, places: ReadonlyMap<Tensor, Tensor>): Instruction {
  if (instruction.op !== 'dispatch') return instruction;
  const to = Object.values(instruction.operands).flatMap((tensor) => places.get(tensor) ?? []);
  if (to.length === 0) return instruction;
  const before = moved.get(instruction);
  if (before && before.to.length === to.length && before.to.every((tensor, i) => tensor === to[i])) return before.made;
  const made = withOperands(instruction, (tensor) => places.get(tensor) ?? tensor);
  moved.set(instruction, { to, made });
  return made;
}
