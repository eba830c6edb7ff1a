// The split of AdamW between GPU and host, where it is left to the trainer (`auto`): of the tensors that train, the first are updated
// on the GPU, the others on the host. It is chosen by the seconds of a step within a budget, on the simulated clock, at a few
// places: everything on either, as much on the GPU as it has room for and half of that, and around the best of these.
//
// The first: their gradients are complete last, a tied embedding's at the very end, so that the host's updates of the others hide
// behind the backward pass. No set of embeddings and blocks takes 2 % less than the best of these (test/model/optimizer-split.test.ts).
//
// Invariant: the two agree to 1 ulp a step and not to the bit, so that the split is a part of what is computed: it is chosen once,
// recorded with the run, and no later budget moves it.

import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { type AdapterLimits, heldByUpdate, type Workload } from '../../engine/compile/workload.ts';
import { type MemoryOptions, optionsOf } from '../../engine/run/arrangement.ts';
import { priceOf } from '../../engine/simulate/price.ts';
import { elementBytesOf, optimizerKinds } from '../../memory/layout/kinds.ts';
import { type Model, optimizedOn } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { unlessRefused } from '../../util/errors.ts';
import type { TrainingPasses } from './training-workload.ts';

/** Of the room that is left on the GPU, the part that stays free: a chunk ends where its tensors do. */
const MARGIN = 0.1;
/** Places that are tried between those that are tried first. From one tensor to the next a step's time goes up and down by some percent. */
const MOST_BETWEEN = 5;

/** Tensors that train, in the order of use. */
export const trainedTensors = ({ parameters }: Model): readonly { readonly shape: readonly number[] }[] =>
  parameters.filter(({ trainable = true }) => trainable);

/** What a split is chosen for. */
export interface SplitSearch {
  /** All of it updated on the GPU. */
  readonly model: Model;
  /** Of a step, whatever is updated where. */
  workloadOf(model: Model): Workload<TrainingPasses>;
  /** `gpu`: no split is worth anything without a budget. */
  readonly memory: MemoryOptions & { readonly gpu?: number };
  readonly limits: AdapterLimits;
}

interface Tried {
  /** Tensors on the GPU. */
  readonly split: number;
  readonly seconds: number;
  readonly fit: Fit<TrainingPasses>;
}

/** The number of tensors that the GPU updates, the first of those that train: all of them where nothing moves then. */
export function chooseSplit({ model, workloadOf, memory, limits }: SplitSearch): number {
  const trained = trainedTensors(model);
  const all = trained.length;
  const { gpu } = memory;
  if (gpu === undefined) return all;
  const ends = [0];
  for (const { shape } of trained) ends.push((ends.at(-1) ?? 0) + shape.reduce((a, b) => a * b, 1));
  /** As many tensors as have no more elements than these. */
  const tensorsIn = (elements: number) => ends.findLastIndex((end) => end <= elements);
  const tried = new Map<number, Tried | undefined>();
  const tryOut = (split: number): Tried | undefined => {
    if (tried.has(split)) return tried.get(split);
    const workload = workloadOf(optimizedOn(model, 'auto', split));
    const fit = unlessRefused(() => fitMemory(workload, limits, gpu, optionsOf(memory, heldByUpdate(workload))));
    const found = fit && { split, fit, seconds: priceOf(fit, fit.passes.step, limits).seconds };
    tried.set(split, found);
    return found;
  };
  const whole = tryOut(all)?.fit;
  if (whole && whole.slots >= whole.residents && whole.stashes.length === 0 && !whole.durable) return all;
  /** Half of the elements between two places, or of the tensors, that was not tried. */
  const middle = (one: number, other: number): number | undefined =>
    [tensorsIn((at(ends, one) + at(ends, other)) / 2), (one + other) >> 1].find((split) => !tried.has(split));
  const none = tryOut(0)?.fit;
  if (none) {
    const { dtype, momentDtype } = none.map;
    const each = optimizerKinds(dtype, momentDtype).reduce((sum, kind) => sum + elementBytesOf(kind), 0);
    const filling = tensorsIn(((1 - MARGIN) * Math.max(0, gpu - none.peak)) / each);
    tryOut(filling);
    tryOut(middle(0, filling) ?? 0);
  }
  const inOrder = () => [...tried.values()].filter((one) => one !== undefined).sort((a, b) => a.split - b.split);
  for (let i = 0; i < MOST_BETWEEN; i++) {
    const found = inOrder();
    const fast = fastest(found);
    if (!fast) break;
    const best = found.indexOf(fast);
    const between = [found[best - 1], found[best + 1]].flatMap((beside) => {
      if (!beside) return [];
      const split = middle(fast.split, beside.split);
      const elements = Math.abs(at(ends, beside.split) - at(ends, fast.split));
      return split === undefined ? [] : [{ split, elements }];
    });
    if (between.length === 0) break;
    tryOut(between.reduce((widest, one) => (one.elements > widest.elements ? one : widest)).split);
  }
  // Where nothing fits, what needs the least is refused.
  return fastest(inOrder())?.split ?? 0;
}

/** The split that takes the least time; of several, the one with the most on the GPU. */
function fastest(some: readonly Tried[]): Tried | undefined {
  let best: Tried | undefined;
  for (const one of some) if (!best || one.seconds <= best.seconds) best = one;
  return best;
}
