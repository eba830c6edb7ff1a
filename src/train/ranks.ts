// A run on several ranks: how its settings are dealt out, what must be alike on all of them before the first step, and what
// rank 0 chooses for all. What a step exchanges is the engine's affair (engine/ranks).

import type { ChoiceRecord } from '../engine/compile/choices.ts';
import type { GridPlaces } from '../engine/ranks/grid.ts';
import type { Ranks } from '../engine/ranks/ranks.ts';
import type { Host } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import type { RunSettings } from './run-settings.ts';
import type { Trainer } from './trainer.ts';

/** Micro-batches of a step, of all ranks. Those that share layers take the same ones. */
export const microBatchesOf = ({ accumulate, ranks = 1 }: Pick<RunSettings, 'accumulate' | 'ranks'>): number =>
  accumulate * ranks;

/**
 * The settings of the same run on a grid of ranks: its steps have the same micro-batches. Errors: HoldfastError where they
 * cannot be dealt out evenly.
 */
export function settingsOn(settings: RunSettings, grid: GridPlaces | undefined): RunSettings {
  const { ranks: _, tensorParallel: __, ...rest } = settings;
  const [size, tensor] = [grid?.data.size ?? 1, grid?.tensor.size ?? 1];
  const count = microBatchesOf(settings);
  if (count % size !== 0) {
    const works = Array.from({ length: count }, (_, i) => i + 1).filter((n) => count % n === 0);
    const shared = tensor > 1 ? ` (times ${tensor} that share each layer)` : '';
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
} = {}): Pick<RunSettings, 'ranks' | 'tensorParallel'> {
  const [ranks, tensorParallel] = [grid?.data.size ?? 1, grid?.tensor.size ?? 1];
  return { ...(ranks > 1 && { ranks }), ...(tensorParallel > 1 && { tensorParallel }) };
}

/** Whether a forward pass exchanges something, so that all ranks go through it together. */
export const writeTogether = ({ sharding, grid }: Ranks): boolean =>
  grid.tensor.size > 1 || (sharding.stage === 3 && sharding.size > 1);

/** Ranks, and their grid where it is one, for a person. */
export const rankText = ({ size, grid: { data, tensor } }: Pick<Ranks, 'size' | 'grid'>): string =>
  `${size} ranks${tensor.size > 1 ? ` (${data.size} data x ${tensor.size} tensor)` : ''}`;

/** What every rank has, in words, by what it is. */
export type RankFacts = Readonly<Record<string, string>>;

/** Errors, on rank 0, which ends the others: HoldfastError naming the first thing that is not the same on all ranks. */
export async function checkAlike({ control, rank: own }: Ranks, facts: RankFacts): Promise<void> {
  const all = (await control.fromAll('what all ranks must have alike', JSON.stringify(facts))).map(
    (text): RankFacts => JSON.parse(text),
  );
  const [first = {}] = all;
  const compared = own === 0 ? all : [];
  compared.forEach((found, rank) => {
    for (const name of new Set([...Object.keys(first), ...Object.keys(found)])) {
      if (found[name] === first[name]) continue;
      const [one, other] = [first[name], found[name]].map((value) => shortened(value ?? 'nothing'));
      throw new HoldfastError(`${name}: ${one} on rank 0, ${other} on rank ${rank}; it must be the same on all ranks`);
    }
  });
  await control.barrier('the comparison of the ranks');
}

/** What of a run must be the same on all ranks; budgets and tiers need not. */
export async function runFacts(
  host: Host,
  { sharding, grid }: Ranks,
  settings: RunSettings,
  adapter: string,
): Promise<RankFacts> {
  const each = Object.entries(settings).map(([name, value]) => [`setting ${name}`, JSON.stringify(value)]);
  return {
    version: (await host.version?.()) ?? 'not known',
    runtime: host.name,
    adapter,
    '--tensor-parallel': String(grid.tensor.size),
    '--zero': String(sharding.stage),
    ...Object.fromEntries(each),
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
  readonly chunkBytes: number;
}

/** A trainer on every rank: rank 0 measures kernels and lays out chunks, then the others do as it did. */
export async function createOnRanks(
  { rank, control }: Ranks,
  create: (first: FirstChoices | undefined) => Promise<Trainer>,
): Promise<Trainer> {
  const what = 'the kernel choices of rank 0';
  if (rank > 0) return create(JSON.parse(await control.fromFirst(what, '')));
  const trainer = await create(undefined);
  const chosen: FirstChoices = { choices: trainer.choices.record(), chunkBytes: trainer.session.map.chunkBytes };
  await control.fromFirst(what, JSON.stringify(chosen));
  return trainer;
}
