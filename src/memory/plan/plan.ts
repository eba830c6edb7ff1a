// The plan of a step: what to do at each moment so that every operator finds its chunks, as plain data, and the checker
// that replays it against the trace. Not a policy: any choice of gaps to keep becomes a plan here.
//
// Order within a moment: store, drop, load, claim, then the operator; then what the trace frees. Invariants, all asserted by checkPlan:
// the slots are never exceeded; each access finds its chunk; what is dirty is never dropped, what is clean
// never stored; the last moment leaves what the first one expects.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Decision } from './policies.ts';
import { chunkName, type Moment, type Trace } from './trace.ts';

export interface PlanMoment {
  /** Chunks copied down; they stay, clean. */
  readonly store: readonly number[];
  /** Chunks whose slot is given back: a valid copy lies below. */
  readonly drop: readonly number[];
  /** Chunks copied up into a slot. */
  readonly load: readonly number[];
  /** Chunks that get a slot and hold nothing yet: the operator overwrites them. */
  readonly claim: readonly number[];
}

export interface PlanResident {
  readonly chunk: number;
  readonly dirty: boolean;
}

/** A plan for `steps` steps, after which it starts again. */
export interface Plan {
  readonly policy: string;
  readonly steps: number;
  /** What is on the GPU before the first moment, in every round but the first. */
  readonly start: readonly PlanResident[];
  /** As many as the trace has, times `steps`. */
  readonly moments: readonly PlanMoment[];
}

/** What a plan moves in a step, on average over its steps; and what it needs. */
export interface PlanCost {
  readonly loads: number;
  readonly stores: number;
  readonly h2dBytes: number;
  readonly d2hBytes: number;
  /** The most slots in use at once. */
  readonly peakSlots: number;
  /** The least that it leaves free of them at a moment. */
  readonly spareSlots: number;
}

/** The plan that keeps the gaps that `decision` keeps: drops early, loads at the moment of need. */
export function makePlan(policy: string, { steps, gaps, keep }: Decision): Plan {
  const { moments } = gaps.trace;
  const count = moments.length;
  const turns = moments.map(({ accesses, frees }) => {
    const claim = accesses.filter(({ mode }) => mode === 'overwrite').map(({ chunk }) => chunk);
    return { accesses, frees, planned: { store: [] as number[], drop: [] as number[], load: [] as number[], claim } };
  });
  const resident = new Set<number>();
  for (const { index, chunk, from, to } of gaps.list) {
    if (keep[index]) {
      // Here when the first moment begins.
      if (to >= count) resident.add(chunk);
      continue;
    }
    at(turns, (from + 1) % count).planned.drop.push(chunk);
    at(turns, to % count).planned.load.push(chunk);
    if (from === count - 1) resident.add(chunk);
  }
  for (const { chunk, moment } of gaps.forced.leaves) {
    at(turns, (moment + 1) % count).planned.drop.push(chunk);
    if (moment === count - 1) resident.add(chunk);
  }
  for (const { chunk, moment } of gaps.forced.arrivals) at(turns, moment).planned.load.push(chunk);

  const bare = turns.map(({ planned }) => planned);
  return storing(moments, {
    policy,
    steps,
    start: [...resident].map((chunk) => ({ chunk, dirty: false })),
    moments: bare,
  });
}

/** A plan of which loads and drops have moved: with what it begins with then, and its stores. */
export function startingOver({ moments }: Trace, plan: Plan): Plan {
  const turns = Array.from({ length: plan.steps }, () => moments).flat();
  const resident = new Set(plan.start.map(({ chunk }) => chunk));
  for (const [m, { drop, load, claim }] of plan.moments.entries()) {
    for (const chunk of drop) resident.delete(chunk);
    for (const chunk of [...load, ...claim]) resident.add(chunk);
    for (const chunk of at(turns, m).frees) resident.delete(chunk);
  }
  return storing(turns, { ...plan, start: [...resident].map((chunk) => ({ chunk, dirty: false })) });
}

/** Stores follow from which chunks are dirty, and that from the round before: the second time around is the plan. */
function storing(turns: readonly Moment[], plan: Plan): Plan {
  const stores = plan.moments.map(() => [] as number[]);
  let dirty = new Set<number>();
  let start: PlanResident[] = [];
  for (const round of [1, 2]) {
    start = plan.start.map(({ chunk }) => ({ chunk, dirty: dirty.has(chunk) })).sort((a, b) => a.chunk - b.chunk);
    dirty = new Set(dirty);
    for (const [m, { accesses, frees }] of turns.entries()) {
      for (const chunk of at(plan.moments, m).drop) {
        if (dirty.delete(chunk) && round === 2) at(stores, m).push(chunk);
      }
      for (const { chunk, mode } of accesses) if (mode !== 'read') dirty.add(chunk);
      for (const chunk of frees) dirty.delete(chunk);
    }
  }
  return { ...plan, start, moments: plan.moments.map((moment, m) => ({ ...moment, store: at(stores, m) })) };
}

/** The most chunks of each kind that are on the GPU at once by a plan. `kinds`: of each chunk. */
export function mostHere<K>(trace: Trace, plan: Plan, kinds: readonly K[]): ReadonlyMap<K, number> {
  const count = trace.moments.length;
  const now = new Map<K, number>();
  const most = new Map<K, number>();
  const here = new Set<number>();
  const come = (chunk: number) => {
    if (here.has(chunk)) return;
    here.add(chunk);
    const kind = at(kinds, chunk);
    const held = (now.get(kind) ?? 0) + 1;
    now.set(kind, held);
    most.set(kind, Math.max(held, most.get(kind) ?? 0));
  };
  const go = (chunk: number) => {
    if (!here.delete(chunk)) return;
    const kind = at(kinds, chunk);
    now.set(kind, (now.get(kind) ?? 0) - 1);
  };
  for (const { chunk } of plan.start) come(chunk);
  for (const [m, { drop, load, claim }] of plan.moments.entries()) {
    for (const chunk of drop) go(chunk);
    for (const chunk of [...load, ...claim]) come(chunk);
    for (const chunk of at(trace.moments, m % count).frees) go(chunk);
  }
  return most;
}

/** Replays a plan. Throws at the first thing that no legal plan does; returns what it moves. */
export function checkPlan(trace: Trace, plan: Plan, slots: readonly number[]): PlanCost {
  const count = trace.moments.length;
  assert(
    plan.steps >= 1 && plan.moments.length === count * plan.steps,
    `plan ${plan.policy} has not as many moments as its trace`,
  );
  const resident = new Map<number, { dirty: boolean; free: boolean }>();
  for (const { chunk, dirty } of plan.start) resident.set(chunk, { dirty, free: false });
  let loads = 0;
  let stores = 0;
  let peakSlots = resident.size;
  let spareSlots = Number.POSITIVE_INFINITY;
  for (const [m, { store, drop, load, claim }] of plan.moments.entries()) {
    const { label, accesses, onHost = [], frees } = at(trace.moments, m % count);
    const fail = (chunk: number, what: string): never => {
      throw new Error(`internal: plan ${plan.policy}, moment ${m} (${label}), ${chunkName(trace, chunk)}: ${what}`);
    };
    for (const chunk of store) {
      const state = resident.get(chunk) ?? fail(chunk, 'stored, but not on the GPU');
      if (!state.dirty) fail(chunk, 'stored, but clean');
      resident.set(chunk, { dirty: false, free: false });
      stores++;
    }
    for (const chunk of drop) {
      const state = resident.get(chunk) ?? fail(chunk, 'dropped, but not on the GPU');
      if (state.dirty) fail(chunk, 'dropped while dirty: its value would be lost');
      resident.delete(chunk);
    }
    for (const chunk of load) {
      if (resident.has(chunk)) fail(chunk, 'loaded, but already on the GPU');
      resident.set(chunk, { dirty: false, free: false });
      loads++;
    }
    for (const chunk of claim) {
      if (resident.has(chunk)) fail(chunk, 'claimed, but already on the GPU');
      resident.set(chunk, { dirty: false, free: true });
    }
    peakSlots = Math.max(peakSlots, resident.size);
    const room = at(slots, m % count);
    spareSlots = Math.min(spareSlots, room - resident.size);
    if (resident.size > room) {
      const first = claim[0] ?? load[0] ?? accesses[0]?.chunk ?? 0;
      fail(first, `${resident.size} chunks on the GPU, slots for ${room}`);
    }
    for (const { chunk, mode } of accesses) {
      const state = resident.get(chunk) ?? fail(chunk, `not on the GPU for a ${mode}`);
      if (state.free && mode !== 'overwrite') fail(chunk, `holds no value for a ${mode}`);
      if (mode !== 'read') resident.set(chunk, { dirty: true, free: false });
    }
    for (const { chunk, mode } of onHost) {
      if (resident.get(chunk)?.dirty) fail(chunk, `its newest value is on the GPU for a ${mode} on the host`);
      if (mode !== 'read' && resident.has(chunk)) fail(chunk, `on the GPU when the host is to ${mode} it`);
    }
    for (const chunk of claim) if (resident.get(chunk)?.free) fail(chunk, 'claimed and not overwritten');
    for (const chunk of frees) resident.delete(chunk);
  }
  const start = new Map(plan.start.map(({ chunk, dirty }) => [chunk, dirty]));
  for (const [chunk, { dirty }] of resident) {
    assert(start.get(chunk) === dirty, `plan ${plan.policy} ends with ${chunkName(trace, chunk)} as it did not start`);
  }
  assert(start.size === resident.size, `plan ${plan.policy} starts with chunks that are gone at its end`);
  const perStep = (n: number) => n / plan.steps;
  return {
    loads: perStep(loads),
    stores: perStep(stores),
    h2dBytes: perStep(loads) * trace.chunkBytes,
    d2hBytes: perStep(stores) * trace.chunkBytes,
    peakSlots,
    spareSlots,
  };
}

/** One moment with something to do a line: `12 store gradient 3; drop gradient 3; load parameter 1`. */
export function printPlan(trace: Trace, plan: Plan): string {
  const names = (chunks: readonly number[]) => chunks.map((chunk) => chunkName(trace, chunk)).join(', ');
  const lines = plan.moments.flatMap((moment, at) => {
    const parts = (['store', 'drop', 'load', 'claim'] as const)
      .filter((action) => moment[action].length > 0)
      .map((action) => `${action} ${names(moment[action])}`);
    return parts.length > 0 ? [`${String(at).padStart(5)} ${parts.join('; ')}`] : [];
  });
  const start = plan.start.map(({ chunk, dirty }) => chunkName(trace, chunk) + (dirty ? ' (dirty)' : '')).join(', ');
  return [
    `${plan.policy}, ${plan.steps === 1 ? 'every step' : `every ${plan.steps} steps`}; starts with ${start || 'nothing'}`,
    ...lines,
  ].join('\n');
}
