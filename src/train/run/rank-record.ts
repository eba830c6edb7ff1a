// Record of the ranks of a run, when it is over: each tells rank 0 what it held, exchanged and waited for, in a small
// record. How it looks is in report/ranks-section.ts.

import { type RankStep, rankStep } from '../../engine/observe/rank-step.ts';
import type { Cause, Recording } from '../../engine/observe/recording.ts';
import { gridBound, type NetworkBytes, networkBytes } from '../../engine/ranks/collectives.ts';
import { exchangeMemory } from '../../engine/ranks/exchange-memory.ts';
import { EXCHANGE_AXES } from '../../engine/ranks/grid.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import type { ZeroStage } from '../../engine/ranks/sharding.ts';
import type { Trainer } from '../step/trainer.ts';

/** What the ranks of a run exchanged. */
export interface RankRecord {
  readonly size: number;
  /** Ranks that share each layer of one copy of the model. */
  readonly tensorParallel: number;
  /** Stages that have the blocks of one copy. */
  readonly pipelineParallel: number;
  readonly zero: ZeroStage;
  /** Of rank 0 so far: in steps, and where parameters are gathered, in evaluations and samples. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** What its plan says of a step. */
  readonly planned: NetworkBytes;
  /** All of them, in their order. */
  readonly each: readonly RankShare[];
}

/** What one rank of a run sent, held and waited for. */
export interface RankShare {
  readonly rank: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  readonly planned: NetworkBytes;
  /**
   * What such a rank sends at least in a step (engine/ranks/collectives.ts), and gets, on average: of what is sharded, of what
   * ranks that share layers add up, and of what stages hand on.
   */
  readonly bound: number;
  /** Bytes: the most that were in use, and on the GPU what was predicted. */
  readonly gpu: { readonly peak: number; readonly predictedPeak: number };
  readonly hostPeak: number;
  /** Of host memory beside that: for what is exchanged, and at most planned. */
  readonly exchangeMemory: { readonly bytes: number; readonly planned: number };
  readonly diskPeak: number;
  /** Bytes over the link between host and GPU since the start, what is exchanged included. */
  readonly h2dBytes: number;
  readonly d2hBytes: number;
  /** Milliseconds since the start. */
  readonly waits: Readonly<Record<Cause, number>>;
  /** The last step of the run; absent where it was not recorded. */
  readonly step?: RankStep;
}

/** Called by all ranks, each with its recording of the last step. */
export async function rankRecord(ranks: Ranks, trainer: Trainer, recording?: Recording): Promise<RankRecord> {
  const { size, grid, sharding, control } = ranks;
  const own = shareOf(ranks, trainer, recording);
  const all = await control.fromAll('what each rank held, exchanged and waited for', JSON.stringify(own));
  const { sentBytes, receivedBytes, planned } = own;
  return {
    ...{ size, tensorParallel: grid.tensor.size, pipelineParallel: grid.pipeline.size, zero: sharding.stage },
    ...{ sentBytes, receivedBytes, planned },
    each: all.map((text): RankShare => JSON.parse(text)),
  };
}

function shareOf(ranks: Ranks, { session, device }: Trainer, recording: Recording | undefined): RankShare {
  const { rank, step, grid } = ranks;
  const { host, disk, link } = session.report();
  const { peak: predictedPeak, passes } = session.fit;
  const { operations, starts } = passes.step;
  const axes = EXCHANGE_AXES.map((axis) => ({ ...step[axis].ledger, ...networkBytes(operations, grid[axis], axis) }));
  const total = (name: 'sentBytes' | 'receivedBytes' | 'sent' | 'received') =>
    axes.reduce((sum, axis) => sum + axis[name], 0);
  return {
    ...{ rank, sentBytes: total('sentBytes'), receivedBytes: total('receivedBytes') },
    planned: { sent: total('sent'), received: total('received') },
    bound: gridBound(operations, session.map, grid, ranks.sharding.stage, starts.length),
    gpu: { peak: device.allocator.peak, predictedPeak },
    hostPeak: host.peak,
    exchangeMemory: {
      bytes: session.executor.exchangeMemory,
      planned: exchangeMemory(Object.values(passes), grid),
    },
    diskPeak: disk.peak,
    h2dBytes: link.h2dBytes,
    d2hBytes: link.d2hBytes,
    waits: { ...link.waits },
    ...(recording && { step: rankStep(rank, recording) }),
  };
}
