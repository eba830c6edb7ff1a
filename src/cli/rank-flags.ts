// The flags of several ranks, and what of a command is different on each: rank 0 shows and writes, the others are silent
// until something goes wrong. How a run is shared is train/run/ranks.ts.

import { type Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import type { Watchdog } from '../engine/ranks/communicator.ts';
import { makeRanks, type Ranks } from '../engine/ranks/ranks.ts';
import { ZERO_STAGES, type ZeroStage } from '../engine/ranks/sharding.ts';
import type { Update } from '../graph/operators/optimizer.ts';
import type { FolderClaim, Host } from '../runtime/host.ts';
import { UPDATE_ON_RANKS } from '../train/run/check-settings.ts';
import { FailedElsewhere } from '../train/run/ranks.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import type { MemoryFlags } from './memory-flags.ts';
import { wholeNumberFrom } from './options.ts';
import { isSaidBefore, nameOf } from './rank-errors.ts';
import { rankProcesses } from './rank-processes.ts';

export interface RankFlags {
  zero?: ZeroStage;
  tensorParallel?: number;
  pipelineParallel?: number;
  sequenceParallel?: boolean;
}

/** The exit status of bad input. */
export const BAD_INPUT = 2;
/** Moments and gradients are sharded, for the bytes of duplicated ones. */
export const DEFAULT_STAGE: ZeroStage = 2;
/** Milliseconds until a wait is reported. */
const PATIENCE = 30_000;

export function addRankOptions(command: Command): Command {
  return addGridOptions(command, 'under mpiexec', '1, or as the run was');
}

/** `when` they mean something. */
export function addGridOptions(command: Command, when: string, otherwise: string): Command {
  return command
    .addOption(zeroOption(when))
    .option(
      '--tensor-parallel <n>',
      `${when}, ranks that share each layer of one copy of the model (default: ${otherwise})`,
      wholeNumberFrom(1),
    )
    .option(
      '--sequence-parallel',
      'with --tensor-parallel, each of its ranks has a part of the rows of norms and of the residual stream: less GPU memory, more bytes over the network',
    )
    .option(
      '--pipeline-parallel <n>',
      `${when}, stages that have the blocks of one copy of the model one behind the other, and pass on micro-batches (--accumulate) (default: ${otherwise})`,
      wholeNumberFrom(1),
    );
}

const zeroOption = (when: string): Option =>
  new Option(
    '--zero <stage>',
    `${when}, what only one rank keeps: nothing (0), moments (1), gradients (2), parameters too (3) (default: ${DEFAULT_STAGE})`,
  ).argParser(zeroStage);

function zeroStage(text: string): ZeroStage {
  const found = ZERO_STAGES.find((stage) => String(stage) === text);
  if (found === undefined) throw new InvalidArgumentError(`It must be one of ${ZERO_STAGES.join(', ')}.`);
  return found;
}

/** What of the flags of training does not go with several ranks. */
export type SharedFlags = RankFlags &
  Pick<MemoryFlags, 'gpuMemory' | 'recovery' | 'accumulateOrder'> & {
    data: readonly string[];
    update: Update;
    resume?: boolean;
  };

/** A flag that is given and that only several ranks take, with its value; undefined where there is none. */
export const ofSeveralRanks = ({
  zero,
  tensorParallel,
  pipelineParallel,
  sequenceParallel,
}: RankFlags): string | undefined =>
  Object.entries({
    '--zero': zero,
    '--tensor-parallel': tensorParallel,
    '--pipeline-parallel': pipelineParallel,
    '--sequence-parallel': sequenceParallel,
  })
    .find(([, value]) => value !== undefined)
    ?.filter((part) => part !== true)
    .join(' ');

/**
 * Runs `work` with the ranks that this process is one of; undefined where it is alone. Errors: as `work`, named for the rank, the
 * first of those that fail; HoldfastError for flags that need several ranks, or do not go with them.
 */
export async function onRanks(
  host: Host,
  flags: SharedFlags,
  given: (name: 'recovery') => boolean,
  work: (host: Host, ranks: Ranks | undefined) => Promise<void>,
): Promise<void> {
  const messages = await host.joinRanks?.();
  if (!messages || messages.size === 1) {
    const asked = ofSeveralRanks(flags);
    if (asked && !messages)
      throw new HoldfastError(
        `${asked}: is for several ranks; start them with MPI: mpiexec -n 2 node_modules/.bin/holdfast train ...`,
      );
    checkGrid(flags, 1);
    return work(host, undefined);
  }
  const { rank, size } = messages;
  const name = nameOf(messages);
  try {
    checkRankFlags(flags, given);
    // Whether the ranks of a run that goes on share layers is known with its checkpoint (`asSaved`).
    const { sequenceParallel, ...axes } = flags;
    checkGrid(flags.resume && flags.tensorParallel === undefined ? axes : flags, size);
    const watchdog: Watchdog = {
      patience: PATIENCE,
      tell: ({ peer, what, seconds }) =>
        host.terminal.warn(`holdfast: ${name}: waiting for rank ${peer} since ${seconds} s: ${what}\n`),
    };
    const ranks = makeRanks(messages, {
      ...{ stage: flags.zero ?? DEFAULT_STAGE, watchdog },
      ...{ tensor: flags.tensorParallel, pipeline: flags.pipelineParallel, sequenceParallel },
    });
    const processes = await rankProcesses(ranks.control, messages.process);
    if (rank === 0) for (const line of processes) host.terminal.warn(`${line}\n`);
    await work(rank === 0 ? host : silent(host), ranks);
    await ranks.control.barrier('the end');
  } catch (error) {
    if (error instanceof HoldfastError) {
      if (await isSaidBefore(messages)) throw silently();
      throw error instanceof FailedElsewhere ? error : new HoldfastError(`${name}: ${error.message}`);
    }
    // What it is follows, with its stack.
    host.terminal.warn(`holdfast: ${name}: ${messageOf(error)}\n`);
    throw error;
  }
}

/** Ends a command as bad input does, of which nothing is said. */
export const silently = (): CommanderError => new CommanderError(BAD_INPUT, 'holdfast.ranks', '');

/** Whether a command that one process does by itself was started on several ranks; then rank 0 says so. Errors: as `joinRanks`. */
export async function refusesRanks(host: Host, command: string): Promise<boolean> {
  const messages = await host.joinRanks?.();
  if (!messages || messages.size === 1) return false;
  const { rank, size } = messages;
  if (rank === 0)
    host.terminal.warn(
      `holdfast: ${command} is done by one process, and ${size} were started; start it without mpiexec (train and finetune run on ranks)\n`,
    );
  // None ends the others before it is said.
  await makeRanks(messages, { stage: DEFAULT_STAGE }).control.barrier('one process');
  return true;
}

/** Errors: HoldfastError where so many ranks have no such grid, or nothing in it to shard. */
export function checkGrid(
  { tensorParallel = 1, pipelineParallel = 1, sequenceParallel, zero }: RankFlags,
  size: number,
): void {
  if (sequenceParallel && tensorParallel === 1)
    throw new HoldfastError(
      '--sequence-parallel: is for ranks that share each layer; give --tensor-parallel 2 or more, too, or leave it out',
    );
  const asked = [
    ...(tensorParallel > 1 || pipelineParallel === 1 ? [`--tensor-parallel ${tensorParallel}`] : []),
    ...(pipelineParallel > 1 ? [`--pipeline-parallel ${pipelineParallel}`] : []),
  ].join(' and ');
  const each = tensorParallel * pipelineParallel;
  if (size % each !== 0) {
    const works = Array.from({ length: size }, (_, i) => i + 1).filter((n) => size % n === 0);
    const have = tensorParallel > 1 && pipelineParallel > 1 ? `${each} in a copy of the model` : 'so many in a row';
    throw new HoldfastError(
      `${asked}: ${size} ranks are not a grid of ${have}; give ${works.join(' or ')}, or start other ranks`,
    );
  }
  if (zero && size > 1 && each === size)
    throw new HoldfastError(
      `--zero ${zero}: with ${asked} on ${size} ranks there is one copy of the model, and nothing to shard; leave it out`,
    );
}

/** Errors: HoldfastError for flags that do not go with several ranks. */
export function checkRankFlags(
  { gpuMemory, recovery, accumulateOrder, update, data }: SharedFlags,
  given: (name: 'recovery') => boolean,
): void {
  if (gpuMemory === 'auto')
    throw new HoldfastError('--gpu-memory auto: ranks may share a GPU, and none knows of its part; give each a number');
  if (recovery === 'step' && given('recovery'))
    throw new HoldfastError(
      '--recovery step: a rank cannot do a step again by itself; with several, a lost GPU goes back to the checkpoint',
    );
  if (accumulateOrder === 'layer')
    throw new HoldfastError(
      '--accumulate-order layer: several ranks take their micro-batches one after the other; leave it out, or give more ranks',
    );
  if (update === 'in-backward') throw new HoldfastError(UPDATE_ON_RANKS);
  if (data.includes('-'))
    throw new HoldfastError('--data -: standard input reaches one rank alone; put the text into a file');
}

function silent(host: Host): Host {
  const nothing = () => {};
  return { ...host, terminal: { interactive: false, columns: host.terminal.columns, write: nothing, warn: nothing } };
}

/** A folder that rank 0 takes for all. */
export async function claimOnRanks(ranks: Ranks | undefined, claim: () => Promise<FolderClaim>): Promise<FolderClaim> {
  if (!ranks) return claim();
  const what = "the run's folder";
  if (ranks.rank > 0) return { folder: await ranks.control.fromFirst(what, ''), release: async () => {} };
  const taken = await claim();
  await ranks.control.fromFirst(what, taken.folder);
  return taken;
}
