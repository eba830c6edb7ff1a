// A run on several ranks: how its settings are dealt out, what must be alike on all of them before the first step, and what
// rank 0 chooses for all. What a step exchanges is the engine's affair (engine/ranks).

import type { ChoiceRecord } from '../engine/compile/choices.ts';
import type { Ranks } from '../engine/ranks/ranks.ts';
import type { Host } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import type { RunSettings } from './run-settings.ts';
import type { Trainer } from './trainer.ts';

/** Micro-batches of a step, of all ranks. */
export const microBatchesOf = ({ accumulate, ranks = 1 }: Pick<RunSettings, 'accumulate' | 'ranks'>): number =>
  accumulate * ranks;

/**
 * The settings of the same run on so many ranks: its steps have the same micro-batches. Errors: HoldfastError where they
 * cannot be dealt out evenly.
 */
export function settingsOn(settings: RunSettings, size: number): RunSettings {
  const { ranks = 1, ...rest } = settings;
  if (ranks === size) return settings;
  const count = microBatchesOf(settings);
  if (count % size !== 0) {
    const works = Array.from({ length: count }, (_, i) => i + 1).filter((n) => count % n === 0);
    throw new HoldfastError(
      `a step of this run has ${count} micro-batches, which ${size} ranks cannot share evenly; start it on ${works.join(' or ')}`,
    );
  }
  return { ...rest, accumulate: count / size, ...(size > 1 && { ranks: size }) };
}

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
  { stage }: Ranks,
  settings: RunSettings,
  adapter: string,
): Promise<RankFacts> {
  const each = Object.entries(settings).map(([name, value]) => [`setting ${name}`, JSON.stringify(value)]);
  return {
    version: (await host.version?.()) ?? 'not known',
    runtime: host.name,
    adapter,
    '--zero': String(stage),
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
