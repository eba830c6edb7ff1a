// `holdfast plan --ranks`: what each of several ranks would hold, need and send, with no MPI: the figures that a run over
// mpiexec then counts.

import type { Exchanged } from '../../engine/ranks/collectives.ts';
import { type ExchangeAxis, type GridPlaces, gridPlacesOf } from '../../engine/ranks/grid.ts';
import type { ZeroStage } from '../../engine/ranks/sharding.ts';
import { FROZEN_KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { parameterCount } from '../../nn/model.ts';
import { movedWords } from '../../report/activation-words.ts';
import type { Host } from '../../runtime/host.ts';
import { planRanks, type RankPlan, type RanksPlan } from '../../train/plan/rank-plan.ts';
import { rankText } from '../../train/run/ranks.ts';
import { generates } from '../../train/run/run-settings.ts';
import { formatBytes } from '../../util/bytes.ts';
import { counted } from '../../util/counted.ts';
import type { RankFlags } from '../rank-flags.ts';
import { oneDevice, type PlannedRun, plannedModel, plannedName, sharesRows } from './flags.ts';
import { describeRates, type PlanBasis, plannedLimits, ratesFacts } from './rates.ts';

/** So many, and what copies of the model shard. */
interface RanksAsked {
  readonly size: number;
  readonly stage: ZeroStage;
}

/** Works it out, and prints it. */
export function planOnRanks(host: Host, run: PlannedRun, asked: RanksAsked, basis: PlanBasis): void {
  const { flags, settings } = run;
  const { gpuMemory, tensorParallel: tensor, pipelineParallel: pipeline, sequenceParallel } = flags;
  const { activations = 'auto' } = flags;
  const { batch, seq: context, accumulate, activationDtype } = settings;
  const model = plannedModel(run);
  const plan = planRanks(
    model,
    {
      ...{ batch, context, accumulate, activations, activationDtype, optimizerDevice: oneDevice(settings) },
      ...{ ...asked, tensor, pipeline, sequenceParallel, packed: sharesRows(settings), generates: generates(settings) },
    },
    ({ smallest, comfortable }) => gpuMemory ?? Math.max(smallest, Math.floor((smallest + comfortable) / 2)),
    plannedLimits(basis),
  );
  const { write } = host.terminal;
  if (flags.json) write(`${JSON.stringify({ ...jsonOf(plan, flags, asked), rates: ratesFacts(basis) })}\n`);
  else write(`${[...lines(plan, run, asked, parameterCount(model)), `planned ${describeRates(basis)}`].join('\n')}\n`);
}

const gridIn = ({ tensorParallel: tensor, pipelineParallel: pipeline }: RankFlags, size: number): GridPlaces =>
  gridPlacesOf({ rank: 0, size }, { tensor, pipeline });

function jsonOf({ ranks, ...plan }: RanksPlan, flags: RankFlags, { size, stage }: RanksAsked) {
  const { data, tensor, pipeline } = gridIn(flags, size);
  return {
    ...{ size, zero: data.size > 1 ? stage : 0, ...plan },
    grid: { data: data.size, tensor: tensor.size, pipeline: pipeline.size },
    ranks: ranks.map(({ fit: _, ...rank }) => rank),
  };
}

function lines(plan: RanksPlan, run: PlannedRun, { size, stage: zero }: RanksAsked, parameters: number): string[] {
  const { ranks, bound, exchangedBytes, budget, smallest, comfortable, chunkBytes } = plan;
  const { accumulate, dtype = 'f32' } = run.settings;
  const grid = gridIn(run.flags, size);
  const { data } = grid;
  const isShared = data.size > 1;
  const shards = isShared ? `, ZeRO ${zero}` : '';
  const average = exchangedBytes / size;
  const [first] = ranks;
  const link = first?.link;
  const isGrid = data.size < size;
  const gathered = zero === 3 && isShared ? 2 * accumulate : 1;
  const asRing =
    dtype === 'f32'
      ? `${1 + gathered} (n-1)/n of the bytes of what trains`
      : `(n-1)/n of the bytes of what trains in f32, and ${gathered} (n-1)/n in ${dtype}`;
  const frozen =
    zero === 3 && first?.fit.map.frozen.chunks ? ', and (n-1)/n of what is frozen for each gathering of it' : '';
  const bounds = `${asRing}${isShared ? frozen : ''}${isGrid ? ', and of what else ranks exchange' : ''}`;
  return [
    `${plannedName(run)}: ${parameters.toLocaleString('en')} parameters on ${rankText({ size, grid })}${shards}, in chunks of ${formatBytes(chunkBytes)}`,
    '',
    ...table(ranks),
    ...(ranks.length < size ? [`of ${size} ranks; the others own as many chunks as one of these`] : []),
    '',
    `  ${shown(budget)}  budget a rank`,
    `  ${shown(smallest)}  is the smallest that works on every rank`,
    `  ${shown(comfortable)}  is a comfortable one: nothing that a rank holds leaves its GPU`,
    ...(first && first.exchangeMemory > 0
      ? [
          `  ${shown(Math.max(...ranks.map(({ exchangeMemory }) => exchangeMemory)))}  of host memory a rank takes beside all that at most, for what is exchanged`,
        ]
      : []),
    ...(link
      ? [
          `a step moves over the link of rank 0 ${formatBytes(link.h2d)} of chunks up and ${formatBytes(link.d2h)} down${link.activations.down > 0 ? `, ${movedWords(link.activations)}` : ''}, and for what is exchanged ${formatBytes(link.exchanged.up)} up and ${formatBytes(link.exchanged.down)} down`,
        ]
      : []),
    ...exchanges(ranks),
    `  ${shown(average)}  a rank sends on average: ${(average / bound).toFixed(3)} x the ring's ${formatBytes(bound)}, ${bounds}`,
    `each rank takes ${accumulate} of the ${data.size * accumulate} micro-batches of a step; sums go through host memory, and are made there in the order of the ranks`,
  ];
}

const shown = (bytes: number): string => formatBytes(bytes).padStart(8);

/** Lines on the exchanges of the first rank of each stage; stages with equal figures share theirs. */
function exchanges(ranks: readonly RankPlan[]): string[] {
  const found = new Map<string, number[]>();
  for (const { rank, place, exchanges, network } of ranks) {
    if (place.data + place.tensor > 0) continue;
    const text = [
      ...exchanges.map(
        ({ axis, collective, of, count, sent, received }) =>
          `  ${shown(sent)}  sent, ${shown(received).trim()} got: ${collective} of ${WORDS[of] ?? of}${ALONG[axis]}, ${counted(count, 'exchange')}`,
      ),
      `  ${shown(network.sent)}  sent, ${shown(network.received).trim()} got in all`,
    ].join('\n');
    found.set(text, [...(found.get(text) ?? []), rank]);
  }
  return [...found].flatMap(([text, of]) => [
    `over the network ${of.length > 1 ? `each of ranks ${of.join(', ')}` : `rank ${of.join()}`} moves in a step`,
    text,
  ]);
}

const WORDS: Partial<Record<Exchanged['of'], string>> = {
  gradient: 'gradients',
  gradientBF16: 'gradients in bf16',
  gradientF16: 'gradients in f16',
  parameter: 'parameters',
  parameterBF16: 'parameters in bf16',
  parameterF16: 'parameters in f16',
  ...Object.fromEntries(Object.entries(FROZEN_KINDS).map(([stored, kind]) => [kind, `frozen parameters in ${stored}`])),
  'activation gradients': 'gradients of activations',
  sums: 'losses and norms',
};

const ALONG: Readonly<Record<ExchangeAxis, string>> = {
  data: '',
  tensor: ' of shared layers',
  pipeline: ' between stages',
  ends: ' that both ends have',
};

/** Ranks with equal figures share a line. */
function table(ranks: readonly RankPlan[]): string[] {
  const kinds = [...new Set(ranks.flatMap(({ held }) => Object.keys(held) as Kind[]))];
  const columns = [...kinds.map(nameOfKind), 'own', 'GPU', 'activations', 'below', 'smallest', 'sent', 'got'];
  const rows = new Map<string, number[]>();
  for (const { rank, held, owned, peak, activations, below, smallest, network } of ranks) {
    const { sent, received } = network;
    const bytes = [...kinds.map((kind) => held[kind] ?? 0), owned, peak, activations, below, smallest, sent, received];
    const text = bytes.map((value, i) => (columns[i] === 'own' ? `${value}` : formatBytes(value))).map(padded);
    rows.set(text.join(''), [...(rows.get(text.join('')) ?? []), rank]);
  }
  return [
    `${'rank'.padEnd(NAME)}${columns.map(padded).join('')}`,
    ...[...rows].map(([text, of]) => `${runs(of).padEnd(NAME)}${text}`),
    `bytes: by kind between two steps, then GPU memory at its peak with its activations, below the GPU at most, the smallest budget, over the network`,
  ];
}

const NAME = 10;
const padded = (text: string): string => text.padStart(14);
const nameOfKind = (kind: Kind): string => (kind === 'parameter' ? 'parameters' : kind);

/** `0-2, 5`. */
function runs(ranks: readonly number[]): string {
  const parts: { first: number; last: number }[] = [];
  for (const rank of ranks) {
    const last = parts.at(-1);
    if (last && last.last === rank - 1) last.last = rank;
    else parts.push({ first: rank, last: rank });
  }
  return parts.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}
