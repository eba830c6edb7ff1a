// A run on several ranks: how its settings are dealt out, what must be alike on all of them before the first step, and what
// rank 0 chooses for all. What a step exchanges is in engine/ranks.

import type { ChoiceRecord } from '../../engine/compile/choices.ts';
import type { Rates } from '../../engine/compile/rates.ts';
import { GRID_AXES, type GridPlaces, gridPlacesOf, rankAt } from '../../engine/ranks/grid.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import type { LoadedCheckpoint, Writers } from '../../formats/checkpoint.ts';
import type { Host } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { assert, HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import type { Trainer } from '../step/trainer.ts';
import type { RunSettings } from './run-settings.ts';
import type { SavedState } from './saved-state.ts';

/** Micro-batches of a step, of all ranks. Those that share layers take the same ones. */
export const microBatchesOf = ({ accumulate, ranks = 1 }: Pick<RunSettings, 'accumulate' | 'ranks'>): number =>
  accumulate * ranks;

/**
 * The settings of the same run on a grid of ranks: its steps have the same micro-batches. Errors: HoldfastError where they
 * cannot be dealt out evenly.
 */
export function settingsOn(settings: RunSettings, grid: GridPlaces | undefined): RunSettings {
  const { ranks: _, tensorParallel: __, pipelineParallel: ___, ...rest } = settings;
  const [size, each] = [grid?.data.size ?? 1, (grid?.tensor.size ?? 1) * (grid?.pipeline.size ?? 1)];
  const count = microBatchesOf(settings);
  if (count % size !== 0) {
    const works = Array.from({ length: count }, (_, i) => i + 1).filter((n) => count % n === 0);
    const shared = each > 1 ? ` (times ${each} that share one copy of the model)` : '';
    throw new HoldfastError(
      `a step of this run has ${count} micro-batches, which ${size} ranks cannot share evenly; start it on ${works.join(' or ')}${shared}`,
    );
  }
  return { ...rest, accumulate: count / size, ...placesIn({ grid }) };
}

/** What settings say of the grid: nothing of one rank. */
export function placesIn({
  grid,
}: {
  grid?: GridPlaces | undefined;
} = {}): Pick<RunSettings, 'ranks' | 'tensorParallel' | 'pipelineParallel'> {
  const [ranks = 1, tensorParallel = 1, pipelineParallel = 1] = GRID_AXES.map((axis) => grid?.[axis].size);
  return {
    ...(ranks > 1 && { ranks }),
    ...(tensorParallel > 1 && { tensorParallel }),
    ...(pipelineParallel > 1 && { pipelineParallel }),
  };
}

/** How they save a checkpoint together. */
export function writersOf(ranks: Ranks, trainer: Trainer): Writers {
  const { rank, size, control } = ranks;
  const writers = trainer.writers(ranks);
  const writerOf = (name: string): number => {
    const writer = writers.get(name);
    assert(writer !== undefined, `${name} is of some rank`);
    return writer;
  };
  return { rank, size, writerOf, exchange: (what, text) => control.fromAll(what, text) };
}

/** Ranks, and their grid where it is one, for a person. */
export function rankText({ size, grid }: Pick<Ranks, 'size' | 'grid'>): string {
  const axes = GRID_AXES.filter((axis) => axis === 'data' || grid[axis].size > 1);
  return `${size} ranks${axes.length > 1 ? ` (${axes.map((axis) => `${grid[axis].size} ${axis}`).join(' x ')})` : ''}`;
}

/** The error of a run that has failed on another rank. */
export class FailedElsewhere extends HoldfastError {}

/** What has failed on a rank, and what the others are told of it. */
export interface Failure {
  readonly error: unknown;
  readonly message: string;
}

/** All ranks call it. Errors: what has failed on this one; else FailedElsewhere, of the first of the others where it did. */
export async function failTogether({ control, size }: Ranks, own: Failure | undefined): Promise<void> {
  const told = await control.fromAll('whether it has failed', own ? JSON.stringify(own.message) : '');
  if (own) throw own.error;
  const first = told.findIndex((text) => text !== '');
  if (first >= 0) throw new FailedElsewhere(`rank ${first} of ${size}: ${JSON.parse(at(told, first))}`);
}

/** Does what each rank does by itself; all of them call it. Errors: as `work`, and as `failTogether`. */
export async function together<T>(ranks: Ranks | undefined, work: () => Promise<T>): Promise<T> {
  if (!ranks) return work();
  const done = await work().then(
    (value) => ({ value }),
    (error: unknown) => ({ failure: { error, message: messageOf(error) } }),
  );
  await failTogether(ranks, 'failure' in done ? done.failure : undefined);
  assert('value' in done, 'a failure was thrown');
  return done.value;
}

/** What every rank has, in words, by what it is. */
export type RankFacts = Readonly<Record<string, string>>;

/**
 * `isOfStage`: the stages of a pipeline need not have them alike. Errors, on rank 0, which ends the others: HoldfastError naming
 * the first thing that is not the same on all ranks.
 */
export async function checkAlike({ control, rank: own, size, grid }: Ranks, facts: RankFacts, isOfStage = false) {
  const all = (await control.fromAll('what all ranks must have alike', JSON.stringify(facts))).map(
    (text): RankFacts => JSON.parse(text),
  );
  const compared = own === 0 ? all : [];
  compared.forEach((found, rank) => {
    const places = gridPlacesOf({ rank, size }, { tensor: grid.tensor.size, pipeline: grid.pipeline.size });
    const first = isOfStage ? rankAt(places, { data: 0, tensor: 0 }) : 0;
    const wanted = at(all, first);
    for (const name of new Set([...Object.keys(wanted), ...Object.keys(found)])) {
      if (found[name] === wanted[name]) continue;
      const [one, other] = [wanted[name], found[name]].map((value) => shortened(value ?? 'nothing'));
      throw new HoldfastError(
        `${name}: ${one} on rank ${first}, ${other} on rank ${rank}; it must be the same on ${isOfStage ? 'both' : 'all ranks'}`,
      );
    }
  });
  await control.barrier('the comparison of the ranks');
}

/** What of a run must be the same on all ranks; budgets and tiers need not. */
export async function runFacts(
  host: Host,
  { sharding, grid, sequenceParallel }: Ranks,
  settings: RunSettings,
  adapter: string,
): Promise<RankFacts> {
  const each = Object.entries(settings).map(([name, value]) => [`setting ${name}`, JSON.stringify(value)]);
  return {
    version: (await host.version?.()) ?? 'not known',
    runtime: host.name,
    adapter,
    '--tensor-parallel': String(grid.tensor.size),
    '--pipeline-parallel': String(grid.pipeline.size),
    '--sequence-parallel': String(sequenceParallel),
    '--zero': String(sharding.stage),
    ...Object.fromEntries(each),
  };
}

/** Where it goes on from, and to: each rank reads the checkpoint by itself, with the tensors that its `sums` are of. */
export async function beginningFacts(
  host: Host,
  saved: SavedState | undefined,
  until?: number,
  sums: LoadedCheckpoint['sums'] = new Map(),
): Promise<RankFacts> {
  const digest = await host.files.sha256();
  digest.update(new TextEncoder().encode(JSON.stringify([saved, [...sums].sort()])));
  return {
    checkpoint: saved ? `step ${saved.trainer.step} (${digest.hex().slice(0, 16)})` : 'none',
    '--until': String(until ?? 'the end'),
  };
}

/** What its fit must have in common with that of the others: chunks, and what passes exchange, in its order. */
export async function layoutFacts(host: Host, { session }: Trainer): Promise<RankFacts> {
  const { map, passes } = session.fit;
  const exchanged = Object.values(passes).flatMap(({ operations }) =>
    operations.flatMap((operation) => (operation.op === 'collective' ? [operation.label] : [])),
  );
  const digest = await host.files.sha256();
  digest.update(new TextEncoder().encode(exchanged.join('\n')));
  return {
    chunks: `${map.count} of ${map.chunkBytes} bytes`,
    'what is exchanged, which with --zero 3 follows --activations': `${exchanged.length} operations (${digest.hex()})`,
  };
}

/** What rank 0 chooses, and the others take. */
export interface FirstChoices {
  readonly choices: ChoiceRecord;
  /** Absent: typical ones. Budgets may differ, what plans are told from others by must not. */
  readonly rates?: Rates;
  readonly chunkBytes: number;
}

/**
 * A trainer on every rank: rank 0 measures kernels and lays out chunks, then the others do as it did. The first rank of each
 * later stage measures what those before had no use for, and so do `unlike`, ranks along the tensor axis whose parts are of
 * another size; rank 0 has all choices in the end, for its checkpoint has them all.
 */
export async function createOnRanks(
  { rank, control, grid }: Ranks,
  unlike: readonly number[],
  create: (first: FirstChoices | undefined) => Promise<Trainer>,
): Promise<Trainer> {
  let known: FirstChoices | undefined;
  let own: Trainer | undefined;
  for (let stage = 0; stage < grid.pipeline.size; stage++) {
    for (const tensor of unlike) {
      const first = rankAt(grid, { pipeline: stage, data: 0, tensor });
      if (rank === first) {
        own = await create(known);
        const { choices, session } = own;
        const { rates } = session.memory;
        const chunkBytes = known?.chunkBytes ?? session.map.chunkBytes;
        known = { choices: choices.record(), ...(rates && { rates }), chunkBytes };
      }
      const told = await control.fromAll('kernel choices', rank === first ? JSON.stringify(known) : '');
      known = JSON.parse(at(told, first));
    }
    if (grid.pipeline.rank === stage) own ??= await create(known);
  }
  assert(own && known, 'every rank is of a stage');
  own.choices.learn(known.choices);
  return own;
}
