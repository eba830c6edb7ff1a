// `Ranks`: the processes that train one model together, as one of them sees them: its place, and a communicator for each
// thing that has an order of its own. Made once a process; what a step exchanges is in collectives.ts.

import type { GridPlace } from '../../graph/grid-place.ts';
import type { Messages } from '../../runtime/host.ts';
import { callable, having } from '../../util/arguments.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, closed, number, object, oneOf, optional, truth } from '../../util/json.ts';
import { realNumber, wholeNumber } from '../../util/range.ts';
import { Communicator, type RankWait, type Watchdog } from './communicator.ts';
import { between, type ExchangeAxis, type GridPlaces, type GridShape, gridPlacesOf, membersOf } from './grid.ts';
import { type Sharding, ZERO_STAGES, type ZeroStage } from './sharding.ts';

/** Several processes that train one model together: this one among all, and how it talks to the others. */
export interface Ranks extends GridPlace {
  /** Its place along each axis. */
  readonly grid: GridPlaces;
  /** How the ranks along the data axis share what they all have. */
  readonly sharding: Sharding;
  /** Whether those that share layers each have some of the rows between them. */
  readonly sequenceParallel: boolean;
  /** For the collectives of steps. */
  readonly step: Readonly<Record<ExchangeAxis, Communicator>>;
  /** For what a run decides: all ranks ask the same in the same order. */
  readonly control: Communicator;
  /** For values that only their owner has: what is asked for. */
  readonly questions: Communicator;
  /** For the same: what comes. */
  readonly state: Communicator;
  /** These ranks in another grid. */
  inGrid(shape: GridShape): Ranks;
}

/** How ranks are made: those of its shape divide the number of all. */
export interface RankOptions extends GridShape {
  /** What ranks along the data axis shard. */
  readonly stage: ZeroStage;
  /** Whether ranks that share layers each have some of the rows between them. @default false */
  readonly sequenceParallel?: boolean | undefined;
  /** Told of waits that are long. @default nothing is */
  readonly watchdog?: Watchdog | undefined;
}

const messagesOfRanks = having<Messages>('messages, as host.joinRanks gives', 'send', 'receive');
const share = optional(number(wholeNumber(1)));
const rankOptions = closed<RankOptions>({
  tensor: share,
  pipeline: share,
  stage: oneOf(ZERO_STAGES),
  sequenceParallel: optional(truth),
  watchdog: optional(object({ patience: number(realNumber(0)), tell: callable })),
});

/**
 * The ranks of a job, as this process has them: `messages` are those of `host.joinRanks`. All processes make theirs alike. Errors:
 * HoldfastError for a grid that so many ranks are not.
 */
export function makeRanks(messages: Messages, options: RankOptions): Ranks {
  check(messagesOfRanks, messages, 'messages');
  check(rankOptions, options, 'the options of ranks');
  const { stage, watchdog, sequenceParallel = false, ...shape } = options;
  const { rank, size } = messages;
  const grid = gridPlacesOf(messages, shape);
  if (!Number.isInteger(grid.data.size)) {
    const each = grid.tensor.size * grid.pipeline.size;
    throw new HoldfastError(
      `${size} ranks are no grid of ${grid.tensor.size} x ${grid.pipeline.size}; start a multiple of ${each}`,
    );
  }
  const along = (axis: ExchangeAxis): Communicator => {
    const members = membersOf(grid, axis);
    const named = watchdog && {
      patience: watchdog.patience,
      tell: (wait: RankWait) => watchdog.tell({ ...wait, rank, peer: at(members, wait.peer) }),
    };
    return new Communicator(between(messages, members), axis, named);
  };
  return {
    // One copy of the model has nothing to shard.
    ...{ rank, size, grid, sharding: { ...grid.data, stage: grid.data.size > 1 ? stage : 0 } },
    sequenceParallel: sequenceParallel && grid.tensor.size > 1,
    step: { data: along('data'), tensor: along('tensor'), pipeline: along('pipeline'), ends: along('ends') },
    control: new Communicator(messages, 'control', watchdog),
    // That nothing is asked for is no stall, while there is work of its own: `answering` has its waits told of.
    questions: new Communicator(messages, 'questions'),
    state: new Communicator(messages, 'state', watchdog),
    inGrid: (other) => makeRanks(messages, { stage, watchdog, sequenceParallel, ...other }),
  };
}

const ASK = 1;
const END = 0;

/** What is asked of an owner. */
export interface ChunkBytes {
  readonly chunk: number;
  readonly offset: number;
}

/** Brings bytes that only another rank has, while that one answers. */
export async function askOwner(
  { questions, state, rank }: Ranks,
  owner: number,
  { chunk, offset }: ChunkBytes,
  into: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const what = `chunk ${chunk} for rank ${rank}`;
  const question = new Uint8Array(Uint32Array.of(ASK, chunk, offset, into.length).buffer);
  await state.watched(what, owner, questions.send(what, owner, question));
  await state.receive(what, owner, into);
}

/**
 * Does `work`, which may ask other ranks, and answers what they ask, until all have done theirs: all of them call it. Errors: as
 * `work`, and as `read`.
 */
export async function answering<T>(
  ranks: Ranks,
  read: (asked: ChunkBytes, into: Uint8Array<ArrayBuffer>) => Promise<void>,
  work: () => Promise<T>,
): Promise<T> {
  const { questions, state, rank, size } = ranks;
  const others = Array.from({ length: size }, (_, other) => other).filter((other) => other !== rank);
  const answers = others.map((other) => answer(ranks, other, read));
  const failure = Promise.all(answers).then(() => new Promise<never>(() => {}));
  // It may fail after the work.
  failure.catch(() => {});
  const result = await Promise.race([work(), failure]);
  const end = () => new Uint8Array(Uint32Array.of(END, 0, 0, 0).buffer);
  await Promise.all(
    others.flatMap((other, i) => [
      state.watched(`the end of what rank ${other} asks for`, other, at(answers, i)),
      state.watched('the end of the questions', other, questions.send('the end of the questions', other, end())),
    ]),
  );
  return result;
}

/** Answers one rank until it has all. */
async function answer(
  { questions, state }: Ranks,
  other: number,
  read: (asked: ChunkBytes, into: Uint8Array<ArrayBuffer>) => Promise<void>,
): Promise<void> {
  for (;;) {
    const words = new Uint32Array(4);
    await questions.receive(`what rank ${other} asks for`, other, new Uint8Array(words.buffer));
    const [asks = END, chunk = 0, offset = 0, length = 0] = words;
    if (asks === END) return;
    const bytes = new Uint8Array(length);
    await read({ chunk, offset }, bytes);
    await state.send(`chunk ${chunk} for rank ${other}`, other, bytes);
  }
}
