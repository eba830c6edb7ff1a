// The split of AdamW between GPU and host, where it is left to the trainer (`auto`): of the tensors that train, the first are updated
// on the GPU, the others on the host. It is chosen by the seconds of a step within a budget, on the simulated clock. Everything on the
// host is searched for the way that takes the least; other places are priced in that way, which takes a part of a search's time:
// everything on the GPU, as much as there is room for and half of that, and around the best of these. The best is searched for its own
// way, in which the next best are priced again. A large tensor is cut at a row, so that what is left of the GPU is filled.
//
// The first: their gradients are complete last, a tied embedding's at the very end, so that the host's updates of the others hide
// behind the backward pass. No set of embeddings and blocks takes 2 % less than the best of these (test/model/optimizer-split.test.ts).
//
// Invariant: the two agree to 1 ulp a step and not to the bit, so that the split is a part of what is computed: it is chosen once,
// recorded with the run, and no later budget moves it.

import { fitMemory } from '../../engine/compile/fit.ts';
import { fitAlike } from '../../engine/compile/fit-alike.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { type AdapterLimits, heldByUpdate, type Workload } from '../../engine/compile/workload.ts';
import { type MemoryOptions, optionsOf } from '../../engine/run/arrangement.ts';
import { priceOf } from '../../engine/simulate/price.ts';
import { momentDtypeOf, trainingDtypeOf } from '../../memory/layout/chunk-map.ts';
import { elementBytesOfKinds, lastingKinds, optimizerKinds } from '../../memory/layout/kinds.ts';
import { type Model, optimizedOn, type Parameter, rowsIn } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { unlessRefused } from '../../util/errors.ts';
import type { TrainingPasses } from './training-workload.ts';

/** Of the room that is left on the GPU, the part that stays free: a chunk ends where its tensors do. */
const MARGIN = 0.1;
/** Places that are priced between those that are priced first. From one tensor to the next a step's time goes up and down by some percent. */
const MOST_BETWEEN = 8;
/** Searches behind the first: each of the place that is the fastest by then. */
const MOST_SEARCHES = 3;
/** Places that are priced in the way of such a one, too, and the times of its seconds that they take at most. */
const MOST_AGAIN = 5;
const NEAR = 1.15;
/** What is priced at no more than so many times the best may take less in a way of its own. */
const ALIKE = 1.02;

/** A tensor that is so large a part of what trains may be updated on both, some of its rows on the GPU, of which so large a part is worth a cut. */
const WORTH_CUTTING = 1 / 32;

/** Tensors that train, in the order of use. */
export const trainedTensors = ({ parameters }: Model): readonly Pick<Parameter, 'name' | 'shape'>[] =>
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

/** A split, and what was worked out to choose it. */
export interface ChosenSplit {
  /** Tensors that the GPU updates, the first of those that train; 2.5: two, and half of the rows of the third. */
  readonly split: number;
  readonly workload: Workload<TrainingPasses>;
  /** As `fitMemory` fits it into the budget; undefined where there is none, and where nothing fits. */
  readonly fit: Fit<TrainingPasses> | undefined;
}

interface Priced {
  readonly split: number;
  readonly seconds: number;
}

interface Searched extends Priced, ChosenSplit {
  readonly fit: Fit<TrainingPasses>;
}

/** Places at which what trains may be cut in two, by tensors and by elements. */
class Cuts {
  readonly #tensors: ReturnType<typeof trainedTensors>;
  /** Elements before each tensor, and of all. */
  readonly #ends: readonly number[];

  constructor(tensors: ReturnType<typeof trainedTensors>) {
    const ends = [0];
    for (const { shape } of tensors) ends.push((ends.at(-1) ?? 0) + shape.reduce((a, b) => a * b, 1));
    this.#tensors = tensors;
    this.#ends = ends;
  }

  /** The split with all tensors on the GPU. */
  get all(): number {
    return this.#tensors.length;
  }

  /** Elements of all tensors. */
  get elements(): number {
    return at(this.#ends, this.all);
  }

  /** Elements that a split has on the GPU. */
  elementsIn(split: number): number {
    const [before, behind] = [at(this.#ends, Math.floor(split)), at(this.#ends, Math.ceil(split))];
    return before + (split % 1) * (behind - before);
  }

  /** As many tensors, or rows of large ones, as have no more elements than these. */
  splitWith(elements: number): number {
    const least = WORTH_CUTTING * this.elements;
    const whole = this.#ends.findLastIndex((end) => end <= elements);
    const start = at(this.#ends, whole);
    const [tensor, rest, size] = [this.#tensors[whole], elements - start, (this.#ends[whole + 1] ?? 0) - start];
    if (!tensor || rest < least || size - rest < least) return whole;
    return whole + rowsIn(tensor, rest / size) / (tensor.shape[0] ?? 1);
  }

  /** Half of the elements between two splits, or of the tensors, that is not known; undefined where both are. */
  middle(one: number, other: number, known: Pick<Places, 'isKnown'>): number | undefined {
    const byElements = this.splitWith((this.elementsIn(one) + this.elementsIn(other)) / 2);
    return [byElements, Math.floor((one + other) / 2)].find((split) => !known.isKnown(split));
  }
}

/** What the places of a split come to. */
class Places {
  readonly #search: SplitSearch;
  readonly #gpu: number;
  readonly #workloads = new Map<number, Workload<TrainingPasses>>();
  readonly #searched = new Map<number, Searched | undefined>();
  readonly #priced = new Map<number, Priced | undefined>();

  constructor(search: SplitSearch, gpu: number) {
    this.#search = search;
    this.#gpu = gpu;
  }

  workloadAt(split: number): Workload<TrainingPasses> {
    const { model, workloadOf } = this.#search;
    const found = this.#workloads.get(split) ?? workloadOf(optimizedOn(model, 'auto', split));
    this.#workloads.set(split, found);
    return found;
  }

  /** As `fitMemory` has it; undefined where it does not fit. */
  search(split: number): Searched | undefined {
    if (this.#searched.has(split)) return this.#searched.get(split);
    const { limits } = this.#search;
    const workload = this.workloadAt(split);
    const options = this.#optionsOf(workload);
    const fit = unlessRefused(() => fitMemory(workload, limits, this.#gpu, options));
    const found = fit && { split, workload, fit, seconds: priceOf(fit, fit.passes.step, limits, options).seconds };
    this.#searched.set(split, found);
    return found;
  }

  /** In the way of another place, unless it was searched for its own. */
  price(split: number, { fit }: Searched): void {
    if (this.#searched.has(split)) return;
    const workload = this.workloadAt(split);
    const found = fitAlike(workload, fit, this.#search.limits, this.#gpu, this.#optionsOf(workload));
    const before = this.#priced.get(split);
    this.#priced.set(
      split,
      fastest([...(before ? [before] : []), ...(found ? [{ split, seconds: found.seconds }] : [])]),
    );
  }

  isKnown(split: number): boolean {
    return this.#searched.has(split) || this.#priced.has(split);
  }

  /** All that fit, in their order. */
  get found(): readonly Priced[] {
    const all = new Map([...this.#priced, ...this.#searched]);
    return [...all.values()].filter((one) => one !== undefined).sort((a, b) => a.split - b.split);
  }

  /** All that were searched. */
  get searched(): readonly Searched[] {
    return [...this.#searched.values()].filter((one) => one !== undefined);
  }

  #optionsOf(workload: Workload) {
    return optionsOf(this.#search.memory, heldByUpdate(workload));
  }
}

/** The tensors that the GPU updates: all of them where nothing moves then. */
export function chooseSplit(search: SplitSearch): ChosenSplit {
  const { model, memory } = search;
  const { gpu } = memory;
  const cuts = new Cuts(trainedTensors(model));
  const { all } = cuts;
  const places = new Places(search, gpu ?? 0);
  if (gpu === undefined) return { split: all, workload: places.workloadAt(all), fit: undefined };
  const [dtype, momentDtype] = [trainingDtypeOf(model.parameters), momentDtypeOf(model.parameters)];
  if (gpu >= cuts.elements * elementBytesOfKinds(lastingKinds(dtype, momentDtype))) {
    const whole = places.search(all);
    if (whole && isResident(whole.fit)) return whole;
  }
  const first = places.search(0) ?? places.search(all);
  // Where nothing fits, what needs the least is refused.
  if (!first) return { split: 0, workload: places.workloadAt(0), fit: undefined };
  const room = (1 - MARGIN) * Math.max(0, gpu - first.fit.peak);
  const filling = cuts.splitWith(room / elementBytesOfKinds(optimizerKinds(dtype, momentDtype)));
  const halfOfIt = cuts.middle(0, filling, places) ?? 0;
  for (const split of [all, filling, halfOfIt]) if (!places.isKnown(split)) places.price(split, first);
  // In that way it may need more memory than there is.
  if (places.found.every(({ split }) => split !== all)) places.search(all);
  priceAroundFastest(places, cuts, first);
  searchFastest(places);
  return fastest(places.searched) ?? first;
}

/** Prices places around the fastest one, in the way of `first`: each in the wider of the gaps beside it. */
function priceAroundFastest(places: Places, cuts: Cuts, first: Searched): void {
  for (let i = 0; i < MOST_BETWEEN; i++) {
    const { found } = places;
    const fast = fastest(found);
    const best = fast ? found.indexOf(fast) : 0;
    const between = [found[best - 1], found[best + 1]].flatMap((beside) => {
      if (!fast || !beside) return [];
      const split = cuts.middle(fast.split, beside.split, places);
      const elements = Math.abs(cuts.elementsIn(beside.split) - cuts.elementsIn(fast.split));
      return split === undefined ? [] : [{ split, elements }];
    });
    if (between.length === 0) return;
    places.price(between.reduce((widest, one) => (one.elements > widest.elements ? one : widest)).split, first);
  }
}

/** Searches the fastest place for its own way, and prices the next ones in that, as long as one may be faster than what was searched. */
function searchFastest(places: Places): void {
  for (let searches = MOST_SEARCHES; searches > 0; searches--) {
    const isSearched = (one: Priced) => places.searched.some(({ split }) => split === one.split);
    const next = fastest(places.found.filter((one) => !isSearched(one)));
    if (!next || next.seconds > ALIKE * (fastest(places.searched)?.seconds ?? next.seconds)) return;
    const found = places.search(next.split);
    if (!found) continue;
    const others = places.found.filter(({ seconds }) => seconds <= NEAR * found.seconds);
    // Its own way may be a better one for others, too.
    for (const { split } of others.toSorted((a, b) => a.seconds - b.seconds).slice(0, MOST_AGAIN))
      places.price(split, found);
  }
}

/** Whether everything stays on the GPU, and nothing else is kept. */
const isResident = ({ slots, residents, stashes, durable }: Fit): boolean =>
  slots >= residents && stashes.length === 0 && !durable;

/** What takes the least time; of several, the one with the most on the GPU. */
function fastest<P extends Priced>(some: readonly P[]): P | undefined {
  let best: P | undefined;
  for (const one of some) if (!best || one.seconds <= best.seconds) best = one;
  return best;
}
