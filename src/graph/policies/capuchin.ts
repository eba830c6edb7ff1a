// Capuchin: a measured step gives how long each tensor lies idle between the two passes. Those whose way to the host
// and back hides in that time are moved, the longest idle first; when these are used up, the others follow in the order of
// what a byte costs, moved or made again as costs less; so many as there is no room for.

import { fewest } from '../../util/fewest.ts';
import { activationsOf, type BlockActivation, withFates } from '../activations.ts';
import { liveBytes } from '../liveness.ts';
import { makersIn, makingOf } from '../makers.ts';
import { type Program, type Tensor, touchedBy } from '../program.ts';
import type { ActivationPolicy, Setting } from './policy.ts';

export const capuchin: ActivationPolicy = {
  name: 'Capuchin',
  paper: 'Peng et al. 2020: Capuchin, Tensor-based GPU Memory Management for Deep Learning',
  approximated:
    'times are the machine’s figures, not measured ones; what a tensor costs to make is reckoned with its inputs there; nothing is adjusted while it runs',
  fillsRoom: true,
  apply(program, setting) {
    const candidates = inTheirOrder(program, setting);
    const evicting = (count: number) => {
      const fates = new Map(candidates.slice(0, count).map(({ activation, fate }) => [activation.tensor, fate]));
      const someAgain = [...fates.values()].includes('again');
      // What the backward pass does not read is not kept for what is made again from it.
      return withFates(program, ({ tensor, isRead }) =>
        isRead ? (fates.get(tensor) ?? 'keep') : someAgain ? 'again' : 'keep',
      );
    };
    return evicting(fewest(candidates.length, (count) => liveBytes(evicting(count)) <= setting.room));
  },
};

interface Candidate {
  readonly activation: BlockActivation;
  readonly fate: 'move' | 'again';
}

function inTheirOrder(program: Program, { secondsOf, linkBytes }: Setting): Candidate[] {
  const makers = makersIn(program);
  const idle = idleSeconds(program, secondsOf);
  const known = activationsOf(program)
    .filter(({ isRead }) => isRead)
    .map((activation) => {
      const { tensor, bytes } = activation;
      const swap = bytes / linkBytes;
      const free = (idle.get(tensor) ?? 0) - 2 * swap;
      const remake = [...makingOf(tensor, makers).needed].reduce((sum, maker) => sum + secondsOf(maker), 0);
      return { activation, bytes, swap, free, remake, cost: Math.min(Math.max(0, -free), remake) };
    });
  const total = program.instructions.reduce((sum, instruction) => sum + secondsOf(instruction), 0);
  // The link has no more time than the step.
  let left = total / 2;
  const hidden: Candidate[] = [];
  const rest: typeof known = [];
  for (const candidate of known.toSorted((a, b) => b.free - a.free)) {
    if (candidate.free >= 0 && candidate.swap <= left) {
      left -= candidate.swap;
      hidden.push({ activation: candidate.activation, fate: 'move' });
    } else rest.push({ ...candidate, cost: Math.min(2 * candidate.swap, candidate.remake) });
  }
  const others = rest
    .toSorted((a, b) => a.cost / a.bytes - b.cost / b.bytes)
    .map(({ activation, swap, remake }): Candidate => ({ activation, fate: 2 * swap < remake ? 'move' : 'again' }));
  return [...hidden, ...others];
}

/** Of each activation: seconds from its last use in the forward pass to its first in the backward pass. */
function idleSeconds(program: Program, secondsOf: Setting['secondsOf']): Map<Tensor, number> {
  const lastForward = new Map<Tensor, number>();
  const idle = new Map<Tensor, number>();
  let now = 0;
  for (const instruction of program.instructions) {
    for (const { tensor } of touchedBy(instruction)) {
      const left = lastForward.get(tensor);
      if (instruction.phase === 'backward' && left !== undefined && !idle.has(tensor)) idle.set(tensor, now - left);
    }
    now += secondsOf(instruction);
    if (instruction.phase !== 'forward') continue;
    for (const { tensor } of touchedBy(instruction)) lastForward.set(tensor, now);
  }
  return idle;
}
