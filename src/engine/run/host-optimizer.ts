// `HostOptimizer`: runs the host's operations of a pass, aside: brings the scalars of the step to the host, and has parameters and
// moments updated there once the gradients lie below, while what follows is encoded; what needs a parameter waits for it. Where the
// memory below counts on each gradient's end before the next comes, nothing is encoded meanwhile. Where host memory is left, or disk
// where values lie there, it computes before the step is decided (updates-ahead.ts). Not the arithmetic (kernels/host-adamw.ts), and no owner of copies (copies.ts).
//
// Invariant: no value of a step is replaced before all gradients of that step lie below, so that a new device can finish it; where
// chunks are updated inside the backward pass, or by several ranks, before its own gradient does.

import { bytesOf, type Tensor } from '../../graph/program.ts';
import type { HostExtent, HostScalars, HostUpdater, HostValues, HostWidths } from '../../kernels/host-adamw.ts';
import { HYPER, STATE, unclippedState } from '../../kernels/step-control.ts';
import { at } from '../../util/at.ts';
import { type HostOperation, isOnHost } from '../compile/operations.ts';
import type { Pass } from '../compile/pass.ts';
import type { ChunkCopies } from './copies.ts';
import type { Change, Link } from './link.ts';
import type { Storage } from './storage.ts';
import { type AheadParts, UpdatesAhead } from './updates-ahead.ts';

/** Updates that are under way: one computes while the next two get their values, which a disk brings faster side by side. */
export const UPDATES_AT_ONCE = 3;

export interface HostUpdating {
  /** Updates chunks below the GPU. */
  readonly updater: HostUpdater;
  /** Whether it does so while the GPU goes on: below there is room for all values at once. */
  readonly updatesAside: boolean;
  /** Whether it may begin before a step is decided, where there is room. */
  readonly updatesAhead: boolean;
}

/** What a step may begin before it is decided. */
interface Foresight {
  readonly operations: readonly HostOperation[];
  readonly scalars: Omit<HostScalars, 'state'>;
  /** The step before: nothing begins while its updates are under way. */
  readonly before: Step | undefined;
  /** From the first gradient on that lies below. */
  ahead: UpdatesAhead | undefined;
}

/** What all operations of a step wait for. */
interface Step {
  /** Operations that have not ended. */
  left: number;
  /** What was decided, once the gradients lie below and nothing is computed ahead any more. */
  readonly known: Promise<Float32Array>;
  readonly foresight: Foresight | undefined;
}

export class HostOptimizer {
  readonly #updater: HostUpdater;
  readonly #isAside: boolean;
  readonly #widths: HostWidths;
  readonly #storage: Storage;
  readonly #copies: ChunkCopies;
  readonly #link: Link;
  /** Of the step under way: see STATE. @default read from the GPU when an operation needs it */
  #decided: Promise<Float32Array> | undefined;
  /** Ends when what was on its way down has arrived, by the time when the step was decided. @default by its first operation */
  #sent: Promise<void> | undefined;
  #step: Step | undefined;
  /** The last step of which something was to be updated. */
  #updating: Step | undefined;
  readonly #aheadParts: AheadParts;
  /** Of the pass under way. */
  #foresight: Foresight | undefined;
  /** Those that have not given up what they made. */
  readonly #unfinished = new Set<UpdatesAhead>();
  /** What was decided last. */
  #last: Float32Array | undefined;
  /** See unclippedState: learned where it was not foreseen. */
  #fuses = false;
  /** The last changes, of this step or the one before. */
  #changes: readonly (Change | undefined)[] = Array.from({ length: UPDATES_AT_ONCE }, () => undefined);

  constructor(
    { updater, updatesAside, updatesAhead }: HostUpdating,
    { dtype, momentDtype }: HostWidths,
    storage: Storage,
    copies: ChunkCopies,
    link: Link,
  ) {
    this.#updater = updater;
    this.#isAside = updatesAside;
    this.#widths = { dtype, momentDtype };
    this.#storage = storage;
    this.#copies = copies;
    this.#link = link;
    const widths = this.#widths;
    const { chunks, slots, onDisk } = copies.spare;
    this.#aheadParts = { updater, widths, copies, room: updatesAhead ? chunks : 0, slots, onDisk };
  }

  /** A pass begins: the scalars are another step's. */
  begin({ operations, update }: Pass): void {
    this.#decided = undefined;
    this.#sent = undefined;
    this.#step = undefined;
    this.#foresight = undefined;
    if (!update || this.#aheadParts.room === 0) return;
    const [first, ...others] = operations.filter(isOnHost);
    if (!first) return;
    const { operands, numbered } = first;
    const hyper = this.#storage.onHost(operands.hyper) as Float32Array;
    const decayMask = this.#storage.onHost(operands.decayMask) as Uint32Array;
    this.#foresight = {
      operations: [first, ...others],
      scalars: { hyper, decayMask, numbered },
      ahead: undefined,
      before: this.#updating,
    };
  }

  /** What is to be called when the gradients in these chunks, of the pass under way, lie below, complete. */
  gradientsSent(chunks: readonly number[]): () => void {
    const foresight = this.#foresight;
    return () => {
      if (!foresight || (foresight.before?.left ?? 0) > 0) return;
      for (const operation of foresight.operations) {
        if (!chunks.includes(operation.chunks.gradient)) continue;
        foresight.ahead ??= this.#foresee(foresight.scalars);
        foresight.ahead?.begin(operation);
      }
    };
  }

  /** Undefined where a step is not likely to be decided as can be foreseen. */
  #foresee({ hyper, ...others }: Foresight['scalars']): UpdatesAhead | undefined {
    const last = this.#last;
    if (!last || at(last, STATE.skip) !== 0) return undefined;
    const maxNorm = at(hyper, HYPER.maxNorm);
    if (maxNorm > 0 && !(at(last, STATE.gradNorm) < maxNorm)) return undefined;
    const state = unclippedState(last, hyper, this.#fuses);
    const ahead = new UpdatesAhead(this.#aheadParts, { hyper, state, ...others });
    this.#unfinished.add(ahead);
    return ahead;
  }

  /** Waits for what is under way ahead of a step that is not decided any more, and gives it up. */
  async abandon(): Promise<void> {
    for (const ahead of this.#unfinished) {
      await ahead.end();
      await ahead.giveUp();
    }
    this.#unfinished.clear();
  }

  /** What comes down behind this is no gradient of the step. */
  markDecision(): void {
    this.#sent = this.#link.sentDown();
  }

  /** What the GPU will have decided of the step. */
  decide(state: Promise<Float32Array>): void {
    this.#decided = state;
  }

  /** Has the chunks of an index updated; what of them is on the GPU goes. `updated` is called then; `frees` are used up. */
  async run(operation: HostOperation, frees: readonly number[], updated: (() => void) | undefined): Promise<void> {
    const { chunks, operands, numbered, size, firstBlock, firstNarrow } = operation;
    const { gradient, ...changed } = chunks;
    const roles = Object.keys(changed) as (keyof typeof changed)[];
    const extent: HostExtent = { size, firstBlock, firstNarrow, widths: this.#widths };
    this.#step ??= await this.#learn(operands.state);
    const step = this.#step;
    this.#updating = step;
    step.left++;
    const { known, foresight } = step;
    const hyper = this.#storage.onHost(operands.hyper) as Float32Array;
    const decayMask = this.#storage.onHost(operands.decayMask) as Uint32Array;
    const others = Object.values(changed);
    this.#copies.leaveBelow([gradient], others);
    // They are read while others work, or the step is decided.
    if (step.left <= UPDATES_AT_ONCE) for (const chunk of others) this.#copies.prefetchBelow(chunk);
    // A copy that was given up behind its last use.
    if (this.#widths.dtype === 'f16' && changed.beside !== undefined) this.#copies.renewBelow(changed.beside);
    const update = async () => {
      const ahead = foresight?.ahead;
      const isTaken = await ahead?.take(operation, await known);
      if (ahead?.left === 0) this.#unfinished.delete(ahead);
      if (isTaken) return;
      const scalars: HostScalars = { hyper, state: await known, decayMask, numbered };
      await this.#copies.update(gradient, others, ([gradient, ...bytes]) => {
        const values = Object.fromEntries(roles.map((role, i) => [role, at(bytes, i)]));
        return this.#updater.update({ gradient, ...values } as unknown as HostValues, extent, scalars);
      });
    };
    const arrived = () => {
      step.left--;
      for (const chunk of frees) if (chunk === gradient || others.includes(chunk)) this.#copies.freeBelow(chunk);
      updated?.();
    };
    const [after, ...later] = this.#changes;
    const change = this.#link.changeBelow([gradient, ...others], update, { known: () => known, arrived, after });
    this.#changes = [...later, change];
    if (!this.#isAside) await this.#link.changed(change);
  }

  async #learn(state: Tensor): Promise<Step> {
    const sent = this.#sent ?? this.#link.sentDown();
    const decided = this.#decided ?? (await this.#readEarly(state))();
    const foresight = this.#foresight;
    const known = Promise.all([decided, sent]).then(async ([decided]) => {
      await foresight?.ahead?.end();
      if (foresight && this.#last) this.#learnRounding(this.#last, foresight.scalars.hyper, decided);
      this.#last = decided;
      return decided;
    });
    // Of a lost device: the operations tell.
    known.catch(() => {});
    return { known, foresight, left: 0 };
  }

  #learnRounding(before: Float32Array, hyper: Float32Array, decided: Float32Array): void {
    const isFound = (fuses: boolean) => {
      const state = unclippedState(before, hyper, fuses);
      return [STATE.correction1, STATE.correction2].every((i) => state[i] === decided[i]);
    };
    if (!isFound(this.#fuses) && isFound(!this.#fuses)) this.#fuses = !this.#fuses;
  }

  async #readEarly(tensor: Tensor): Promise<() => Promise<Float32Array>> {
    const { buffer, offset } = this.#storage.range(tensor);
    const bytes = new Uint8Array(bytesOf(tensor));
    const arrival = await this.#link.readEarly(buffer, offset, bytes);
    return () => arrival().then(() => new Float32Array(bytes.buffer));
  }
}
