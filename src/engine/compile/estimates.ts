// Estimates of what mixtures of activation modes need and take: the blocks of a model are alike, so a few facts about
// each mode, measured on the programs that have it in all blocks, say roughly what any mixture needs and takes. An
// estimate only ranks what is then fitted, planned and priced (ways.ts); it takes microseconds where a plan takes tens
// of milliseconds.

import { type ActivationMode, SLICED } from '../../graph/activations.ts';
import { liveBytes } from '../../graph/liveness.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS, type Kind, MOMENT_KINDS, optimizerKinds } from '../../memory/layout/kinds.ts';
import type { RoomBelow } from '../../memory/tiers/shares.ts';
import { assert } from '../../util/errors.ts';
import { computeSeconds, machineOf } from '../simulate/machine.ts';
import { isDispatch, isTransfer } from './operations.ts';
import type { Pass, Passes } from './pass.ts';
import { fetchedBytes, offloadedBytes } from './pass-figures.ts';
import { linkBytesOf, type Rates, TYPICAL_DISK } from './rates.ts';
import { type ActivationChoice, updatesOnHost, type Workload } from './workload.ts';

/** What a sparing way takes beside its operations, about: its many small ones read and add up the same chunks again. */
const SPARING = 1.02;
/** Beside a chunk's bytes: how much of an answer is waited for with each that moves, about. */
const WAITED_A_CHUNK = 0.15;
/** For so many chunks there is room at once, in slots and staging, where some move; and so many dispatches a chunk has, about. */
export const AT_ONCE = 8;
const CHUNK_DISPATCHES = 6;
/** How often a byte of parameters and gradients that has no room is moved in each further round of micro-batches, about. */
const MOVED_EACH_ROUND = 1.7;
/**
 * Where copies are beside arithmetic: of what activations move, the share that is waited for all the same, and of chunks, about; and
 * how many of their pieces wait for an answer while the GPU has nothing to do.
 */
const WAITED = { activations: 0.5, chunks: 0.9, answers: 0.7 } as const;

/** What takes time. */
export interface PassWork {
  /** Seconds of its arithmetic and of what it reads and writes, but for what each dispatch takes whatever it computes. */
  readonly busy: number;
  readonly dispatches: number;
  /** Bytes of activations over the link, both ways, and in how many pieces. */
  readonly moved: number;
  readonly pieces: number;
}

/** Work whose parts are figured one by one. */
const workOfParts = (of: (part: keyof PassWork) => number): PassWork => ({
  busy: of('busy'),
  dispatches: of('dispatches'),
  moved: of('moved'),
  pieces: of('pieces'),
});

/** The work of a pass, save what chunks move. */
export function workOf(pass: Pass, rates: Rates): PassWork {
  const { operations } = pass;
  const busyMachine = { ...machineOf({ rates }), launchSeconds: 0 };
  return {
    busy: computeSeconds(busyMachine, operations),
    dispatches: operations.filter(isDispatch).length,
    moved: offloadedBytes(pass) + fetchedBytes(pass),
    pieces: operations.reduce((sum, operation) => sum + (isTransfer(operation) ? operation.pieces.length : 0), 0),
  };
}

/** The time of it, and of so many bytes of chunks. */
export function secondsOf({ busy, dispatches, moved, pieces }: PassWork, traffic: number, rates: Rates): number {
  const { answerSeconds = 0, copySeconds = 0 } = rates;
  const waited = pieces * (copySeconds + WAITED.answers * answerSeconds);
  const compute = busy + dispatches * rates.launchSeconds + waited;
  const linkBytes = linkBytesOf(rates);
  const [activations, chunks] = [moved / linkBytes, traffic / linkBytes];
  if (rates.copies !== 'duplex') return compute + activations + chunks;
  return compute + Math.max(WAITED.activations * activations, activations - compute) + WAITED.chunks * chunks;
}

/** The least time of it, and of so many bytes of chunks over the link: if nothing were waited for. */
export function leastSecondsOf({ busy, dispatches, moved }: PassWork, traffic: number, rates: Rates): number {
  const compute = busy + dispatches * rates.launchSeconds;
  const copies = (moved + traffic) / linkBytesOf(rates);
  // Where each way is beside the other, one of them may have nothing to do.
  return rates.copies === 'duplex' ? compute : compute + copies;
}

/** What a mode does to each block, its work beside what there is without it, and to the whole. */
interface Facts extends PassWork {
  readonly mode: ActivationMode;
  /** Bytes of a block's activations that stay for the backward pass. */
  readonly kept: number;
  /** Bytes that are alive at once beside those. */
  readonly workingSet: number;
}

/** A mixture of two modes: so many of the first blocks have the one, the others the other. */
export interface Mixture {
  readonly early: Facts;
  readonly late: Facts;
  readonly count: number;
}

/** What a mixture takes: seconds a step, and bytes of GPU memory. */
export interface Estimated {
  readonly mixture: Mixture;
  readonly seconds: number;
  /** Seconds if all chunks stayed. */
  readonly still: number;
  /** Seconds if all chunks stayed and nothing were waited for. */
  readonly least: number;
  readonly bytes: number;
}

export const modesOf = ({ early, late, count }: Mixture, blocks: number): ActivationMode[] =>
  Array.from({ length: blocks }, (_, i) => (i < count ? early.mode : late.mode));

const aliveIn = ({ programs }: Workload): number =>
  programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0);

/** A workload that is none of the mixtures. */
export interface EstimatedWay<P extends Passes> {
  readonly workload: Workload<P>;
  readonly seconds: number;
  readonly dispatches: number;
}

/** Bytes of chunks that a step needs at once: while activations are most, and when gradients are complete. */
interface Needed {
  readonly atPeak: number;
  readonly atEnd: number;
  /** Parameters and gradients: what each round of micro-batches uses. */
  readonly eachRound: number;
}

interface Known {
  readonly facts: readonly Facts[];
  readonly needed: Needed;
  /** Without activations. */
  readonly base: PassWork;
}

const known = new WeakMap<object, WeakMap<Rates, Known>>();

/** Of workloads that are none of the mixtures: bytes that are alive at once, and the work of a pass. */
const whole = new WeakMap<Workload, WeakMap<Rates, { readonly live: number; readonly work: PassWork }>>();

export class Estimates<P extends Passes> {
  readonly #choice: ActivationChoice<P>;
  readonly #map: ChunkMap;
  readonly #known: Known;
  readonly #budget: number;
  readonly #rates: Rates;
  readonly #durable: boolean;
  readonly #below: RoomBelow | undefined;
  #ranked: readonly Estimated[] | undefined;

  constructor(workload: Workload<P>, choice: ActivationChoice<P>, map: ChunkMap, within: EstimateWithin) {
    this.#choice = choice;
    this.#map = map;
    this.#budget = within.budget - within.persistentBytes();
    this.#rates = within.rates;
    const before = known.get(choice.menu) ?? new WeakMap<Rates, Known>();
    known.set(choice.menu, before);
    this.#known = before.get(within.rates) ?? measure(workload, choice, map, within.rates);
    before.set(within.rates, this.#known);
    this.#durable = within.durable;
    this.#below = within.below;
  }

  /** Of a pass in which all activations are kept. */
  get dispatches(): number {
    return this.#known.base.dispatches;
  }

  /** All mixtures, the most promising first: of equals what keeps less, and what keeps more in later blocks, which the backward pass needs first. */
  inOrder(): readonly Estimated[] {
    this.#ranked ??= this.#mixtures()
      .map((mixture) => this.of(mixture))
      .filter(({ seconds }) => Number.isFinite(seconds))
      .sort((a, b) => a.seconds - b.seconds || a.bytes - b.bytes || b.mixture.late.kept - a.mixture.late.kept);
    return this.#ranked;
  }

  #mixtures(): Mixture[] {
    const { facts } = this.#known;
    const blocks = this.#choice.modes.length;
    const counts = Array.from({ length: blocks - 1 }, (_, i) => i + 1);
    return facts.flatMap((early) =>
      facts.flatMap((late) => (early === late ? [blocks] : counts).map((count) => ({ early, late, count }))),
    );
  }

  /** One mode in all blocks. */
  uniform(): Mixture[] {
    const count = this.#choice.modes.length;
    return this.#known.facts.map((fact) => ({ early: fact, late: fact, count }));
  }

  ofAll(workload: Workload<P>): EstimatedWay<P> {
    const { live, work } = this.#measured(workload);
    return { workload, seconds: SPARING * this.#secondsOf(work, live), dispatches: work.dispatches };
  }

  /** Seconds that a sparing way takes at least: those of the same with all rows at once, if its working set were nothing. */
  get leastSparing(): number {
    const { facts, base } = this.#known;
    const blocks = this.#choice.modes.length;
    const whole = new Set<ActivationMode>(Object.values(SLICED));
    const seconds = facts.flatMap((fact) => {
      const work = workOfParts((part) => base[part] + blocks * fact[part]);
      return whole.has(fact.mode) ? [this.#secondsOf(work, blocks * fact.kept)] : [];
    });
    return SPARING * Math.min(...seconds);
  }

  /** Seconds of a workload that is none of the mixtures, if half as much were alive. */
  inHalf(workload: Workload<P>): number {
    const { live, work } = this.#measured(workload);
    return SPARING * this.#secondsOf(work, live / 2);
  }

  #measured(workload: Workload<P>): { readonly live: number; readonly work: PassWork } {
    const before = whole.get(workload) ?? new WeakMap<Rates, { readonly live: number; readonly work: PassWork }>();
    whole.set(workload, before);
    const found = before.get(this.#rates) ?? {
      live: aliveIn(workload),
      work: workOfAll(this.#choice, workload, this.#map, this.#rates),
    };
    before.set(this.#rates, found);
    return found;
  }

  of(mixture: Mixture): Estimated {
    const { early, late, count } = mixture;
    const { base } = this.#known;
    const rest = this.#choice.modes.length - count;
    const live = count * early.kept + rest * late.kept + Math.max(early.workingSet, rest > 0 ? late.workingSet : 0);
    const work = workOfParts((part) => base[part] + count * early[part] + rest * late[part]);
    const still = secondsOf(work, 0, this.#rates) + this.#secondsOnDisk(work, 0);
    const least = leastSecondsOf(work, 0, this.#rates);
    return { mixture, seconds: this.#secondsOf(work, live), still, least, bytes: live };
  }

  /** With so many bytes of activations. */
  #secondsOf(work: PassWork, bytes: number): number {
    const { needed } = this.#known;
    const room = this.#budget - bytes;
    if (room <= 0) return Number.POSITIVE_INFINITY;
    // Activations leave their memory to chunks before the update.
    const lacking = Math.max(0, needed.atPeak - room, needed.atEnd - this.#budget);
    const lackingInRounds = (this.#choice.rounds - 1) * Math.max(0, needed.eachRound - room);
    // Moments come once a step; what a round uses, before the update as well. Down goes what is new, or all of it.
    const up = lacking + Math.max(0, lacking - (needed.atEnd - needed.eachRound));
    const down = this.#durable ? needed.atEnd : lacking;
    const traffic = up + down + MOVED_EACH_ROUND * lackingInRounds;
    const waited = this.secondsWaited(traffic, Math.min(this.#map.chunkBytes, room / AT_ONCE));
    const seconds = secondsOf(lacking > 0 ? this.#inChunksFor(room, work) : work, traffic, this.#rates);
    return seconds + waited + this.#secondsOnDisk(work, traffic);
  }

  /** What the disk takes: of all that moves as large a part goes through it as lies on it. Little of it is beside the rest. */
  #secondsOnDisk({ moved }: PassWork, traffic: number): number {
    const { host, disk } = this.#below?.all ?? { host: Number.POSITIVE_INFINITY, disk: 0 };
    const all = this.#map.count * this.#map.chunkBytes + moved / 2;
    if (disk === 0 || host >= all) return 0;
    const { readBytesPerSecond, writeBytesPerSecond } = this.#rates.disk ?? TYPICAL_DISK;
    const eachWay = ((1 - host / all) * (moved + traffic)) / 2;
    return eachWay / readBytesPerSecond + eachWay / writeBytesPerSecond;
  }

  /** What is waited for beside the bytes themselves, where so many are moved in chunks of a size. */
  secondsWaited(traffic: number, chunkBytes: number): number {
    const { answerSeconds = 0, copySeconds = 0 } = this.#rates;
    return (traffic / chunkBytes) * (copySeconds + WAITED_A_CHUNK * answerSeconds);
  }

  /** The work where chunks must be so small that some of them fit into the room. */
  #inChunksFor(room: number, work: PassWork): PassWork {
    const { chunkBytes, lists } = this.#map;
    const each = Math.max(...lists.map(({ chunks }) => chunks));
    const more = each * Math.max(0, (AT_ONCE * chunkBytes) / room - 1);
    return { ...work, dispatches: work.dispatches + CHUNK_DISPATCHES * more };
  }
}

/** What the estimates are for. */
export interface EstimateWithin {
  readonly budget: number;
  /** Bytes of the budget that neither chunks nor activations have. */
  persistentBytes(): number;
  readonly rates: Rates;
  /** Whether every step's state is below anyway. */
  readonly durable: boolean;
  /** @default host memory without end */
  readonly below?: RoomBelow | undefined;
}

function measure<P extends Passes>(
  workload: Workload<P>,
  choice: ActivationChoice<P>,
  map: ChunkMap,
  rates: Rates,
): Known {
  const { modes, menu } = choice;
  const measured = menu.map((mode) => {
    const uniform = choice.with(modes.map(() => mode));
    const kept = choice.keptBytes(mode) / modes.length;
    const work = workOfAll(choice, uniform, map, rates);
    return { mode, kept, workingSet: aliveIn(uniform) - modes.length * kept, work };
  });
  const base = measured[0]?.work;
  assert(base, 'a menu has modes');
  // Beside what there is without it, a block.
  const facts = measured.map(({ work, ...rest }): Facts => {
    return { ...rest, ...workOfParts((part) => (work[part] - base[part]) / modes.length) };
  });
  return { facts, needed: neededOf(workload, map), base };
}

function neededOf(workload: Workload, map: ChunkMap): Needed {
  const { lists, chunkBytes, dtype, momentDtype } = map;
  const onHost: readonly Kind[] = updatesOnHost(workload) ? optimizerKinds(dtype, momentDtype) : [];
  let [atPeak, atEnd, eachRound] = [0, 0, 0];
  for (const { kind, chunks } of lists) {
    const isMoment = MOMENT_KINDS[momentDtype].some((moment) => moment === kind);
    const bytes = (onHost.includes(kind) ? map.updatedOnGPU(kind) : chunks) * chunkBytes;
    atEnd += bytes;
    if (KINDS[kind].between !== 'FREE') atPeak += bytes;
    if (!isMoment) eachRound += bytes;
  }
  return { atPeak, atEnd, eachRound };
}

/** The work of all micro-batches of the pass that activations are chosen for: from the second one on each adds the same. */
function workOfAll<P extends Passes>(
  { mainOf, rounds }: ActivationChoice<P>,
  workload: Workload<P>,
  map: ChunkMap,
  rates: Rates,
): PassWork {
  const ofFirst = (most: number) => workOf(mainOf(workload.passes(map, most)), rates);
  const one = ofFirst(1);
  if (rounds === 1) return one;
  const two = ofFirst(2);
  return workOfParts((part) => one[part] + (rounds - 1) * (two[part] - one[part]));
}
