// `ModelValues`: the model data of a session by the names of its tensors, set and read wherever its chunks are: on the GPU,
// below it, or on another rank. How tensors lie in chunks is values.ts.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { ALL_KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, oneOf } from '../../util/json.ts';
import { checkSource, type TensorSource } from '../../values/tensor-source.ts';
import type { Fit } from '../compile/fitted.ts';
import { updatesOnHost } from '../compile/workload.ts';
import { rankAt } from '../ranks/grid.ts';
import { answering, askOwner, type ChunkBytes, type Ranks } from '../ranks/ranks.ts';
import { onlyOwnerOf } from '../ranks/sharding.ts';
import type { MemoryOptions } from './arrangement.ts';
import type { Executor } from './executor.ts';
import { setTensors, tensorsOf } from './values.ts';

/** What model data is reached through: a session, whose memory, fit and executor change on the way. */
interface ValuesHolder {
  readonly map: ChunkMap;
  readonly fit: Pick<Fit, 'workload'>;
  readonly memory: Readonly<MemoryOptions>;
  readonly executor: Executor;
  /** Runs `work` in its turn, and again after a lost device; `what` it is, for messages. */
  runWithRetry<T>(what: string, work: () => Promise<T>): Promise<T>;
}

/** The part of a model's values that is on other ranks of the grid. */
export interface OtherPart {
  /** Along the tensor axis: other parts of the same tensors. */
  readonly tensor?: number;
  /** Along the pipeline axis: other tensors, in chunks of their own. */
  readonly stage?: number;
  readonly map?: ChunkMap;
}

const anyKind = oneOf(ALL_KINDS);

/** Errors: HoldfastError for what is no kind of model data. */
export const checkKind = (kind: Kind): void => void check(anyKind, kind, 'kind');

export class ModelValues {
  readonly #session: ValuesHolder;
  readonly #ranks: Ranks | undefined;
  /** Parameters that were never set. */
  readonly #unset: Set<string>;

  constructor(session: ValuesHolder, ranks: Ranks | undefined) {
    this.#session = session;
    this.#ranks = ranks;
    this.#unset = new Set(session.map.names('parameter'));
  }

  /** Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. */
  async set(kind: Kind, source: TensorSource): Promise<void> {
    checkKind(kind);
    checkSource(source);
    const { map } = this.#session;
    return this.#session.runWithRetry(`the setting of ${kind} values`, async () => {
      // What is on its way down lies neither here nor below.
      await this.#session.executor.settle();
      await setTensors(map, kind, source, {
        get: (chunk, bytes) => this.#getChunk(chunk, bytes),
        set: async (chunk, bytes) => {
          if (this.#otherOwnerOf(chunk) === undefined) await this.#setChunk(chunk, bytes);
        },
        takeRoom: (chunk) =>
          this.#livesBelow && this.#otherOwnerOf(chunk) === undefined
            ? this.#session.executor.copies.takeRoom()
            : undefined,
        giveRoomBack: (bytes) => this.#session.executor.copies.giveRoomBack(bytes),
      });
      if (kind === 'parameter') for (const name of source.names) this.#unset.delete(name);
    });
  }

  /** Errors: HoldfastError naming a parameter that was never set. */
  check(): void {
    const [name] = this.#unset;
    if (name === undefined) return;
    throw new HoldfastError(`the model has no weights yet (${name} was never set); set all of them first: setWeights`);
  }

  /** The tensors of a kind, as they are when they are read. `part`: on ranks with others. @default here */
  of(kind: Kind, part?: OtherPart): TensorSource {
    const inTurn = (work: () => Promise<void>) => this.#session.runWithRetry(`the reading of ${kind} values`, work);
    return this.#source(kind, inTurn, part);
  }

  /** As `of`, within a turn that the caller has. */
  now(kind: Kind): TensorSource {
    return this.#source(kind, (work) => work());
  }

  /**
   * Runs `work` on rank 0, which reads values of all ranks in it; the others bring theirs until it is done. All ranks call
   * it, between two steps. Undefined on the others.
   */
  async collect<T>(work: () => Promise<T>): Promise<T | undefined> {
    const isFirst = this.#ranks === undefined || this.#ranks.rank === 0;
    return this.share(async () => (isFirst ? work() : undefined));
  }

  /** Runs `work`, which reads values of all ranks, on every rank, between two steps; and brings to the others what they read. */
  share<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#ranks) return work();
    const session = this.#session;
    const read = ({ chunk, offset }: ChunkBytes, into: Uint8Array<ArrayBuffer>) =>
      session.runWithRetry('the reading of values for another rank', () => session.executor.read(chunk, offset, into));
    return answering(this.#ranks, read, work);
  }

  #source(kind: Kind, turn: (work: () => Promise<void>) => Promise<void>, part: OtherPart = {}): TensorSource {
    const { map = this.#session.map } = part;
    const read = async (chunk: number, offset: number, into: Uint8Array<ArrayBuffer>) => {
      if (kind === 'parameter') this.check();
      const other = this.#ranks && this.#otherWith(chunk, this.#ranks, part);
      // Not in a turn: the other one may be asking, too, and needs a turn of its own to answer.
      if (this.#ranks && other !== undefined) await askOwner(this.#ranks, other, { chunk, offset }, into);
      else await turn(() => readHere(chunk, offset, into));
    };
    const readHere = async (chunk: number, offset: number, into: Uint8Array<ArrayBuffer>) => {
      const { executor } = this.#session;
      if (!(await executor.exists(chunk))) {
        throw new HoldfastError(`there are no ${kind} values now: gradients last until the end of their step`);
      }
      await executor.read(chunk, offset, into);
    };
    return tensorsOf(map, kind, read);
  }

  /** Without a tier below in use, values live on the GPU alone. */
  get #livesBelow(): boolean {
    const { memory, fit } = this.#session;
    return memory.gpu !== undefined || updatesOnHost(fit.workload);
  }

  async #setChunk(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { executor } = this.#session;
    if (!this.#livesBelow) {
      await executor.upload(chunk, bytes);
      return;
    }
    await executor.settle();
    await executor.copies.replace(chunk, bytes);
  }

  async #getChunk(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { executor } = this.#session;
    if (await executor.exists(chunk)) await executor.read(chunk, 0, bytes);
  }

  /** Along the data axis, the rank that alone has a chunk's value, where it is another one. */
  #otherOwnerOf(chunk: number, map = this.#session.map): number | undefined {
    const sharding = this.#ranks?.sharding;
    const owner = sharding && onlyOwnerOf(chunk, map, sharding);
    return owner === sharding?.rank ? undefined : owner;
  }

  /** The rank that has a chunk's value, where it is another one. */
  #otherWith(chunk: number, { rank, grid }: Ranks, { tensor, stage, map }: OtherPart): number | undefined {
    const found = rankAt(grid, {
      data: this.#otherOwnerOf(chunk, map) ?? grid.data.rank,
      ...(tensor !== undefined && { tensor }),
      ...(stage !== undefined && { pipeline: stage }),
    });
    return found === rank ? undefined : found;
  }
}
