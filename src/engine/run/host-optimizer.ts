// `HostOptimizer`: runs the host's operations of a pass, aside: brings the scalars of the step to the host, and has parameters and
// moments updated there once the gradients lie below, while what follows is encoded; what needs a parameter waits for it. Where the
// memory below counts on each gradient's end before the next comes, nothing is encoded meanwhile. Not the arithmetic
// (kernels/host-adamw.ts), and no owner of copies (copies.ts).
//
// Invariant: nothing of a step is updated before all gradients of that step lie below, so that a new device can finish it; where
// chunks are updated inside the backward pass, or by several ranks, before its own gradient does.

import { bytesOf, type Tensor } from '../../graph/program.ts';
import type { HostExtent, HostScalars, HostValues, HostWidths } from '../../kernels/host-adamw.ts';
import { at } from '../../util/at.ts';
import type { HostOperation } from '../compile/operations.ts';
import type { ChunkCopies } from './copies.ts';
import type { Change, Link } from './link.ts';
import type { Storage } from './storage.ts';

/** Updates that are under way: one computes while the next gets its values. */
const AT_ONCE = 2;

/** Computes AdamW over values in host memory, here or in threads. */
export interface HostUpdater {
  /** Changes all but the gradient in place. */
  update(values: HostValues, extent: HostExtent, scalars: HostScalars): Promise<void> | void;
  /** Frees what it has. */
  end?(): Promise<void>;
}

export interface HostUpdating {
  /** Updates chunks below the GPU. */
  readonly updater: HostUpdater;
  /** Whether it does so while the GPU goes on: below there is room for all values at once. */
  readonly updatesAside: boolean;
}

/** What all operations of a step wait for. */
interface Step {
  /** What was decided, once the gradients lie below. */
  readonly known: Promise<Float32Array>;
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
  /** The last changes, of this step or the one before. */
  #changes: readonly (Change | undefined)[] = Array.from({ length: AT_ONCE }, () => undefined);

  constructor(
    { updater, updatesAside }: HostUpdating,
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
  }

  /** A pass begins: the scalars are another step's. */
  begin(): void {
    this.#decided = undefined;
    this.#sent = undefined;
    this.#step = undefined;
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
    const { known } = this.#step;
    const hyper = this.#storage.onHost(operands.hyper) as Float32Array;
    const decayMask = this.#storage.onHost(operands.decayMask) as Uint32Array;
    const others = Object.values(changed);
    this.#copies.leaveBelow([gradient], others);
    // A copy that was given up behind its last use.
    if (this.#widths.dtype === 'f16' && changed.beside !== undefined) this.#copies.renewBelow(changed.beside);
    const update = async () => {
      const scalars: HostScalars = { hyper, state: await known, decayMask, numbered };
      await this.#copies.update(gradient, others, ([gradient, ...bytes]) => {
        const values = Object.fromEntries(roles.map((role, i) => [role, at(bytes, i)]));
        return this.#updater.update({ gradient, ...values } as unknown as HostValues, extent, scalars);
      });
    };
    const arrived = () => {
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
    const known = Promise.all([decided, sent]).then(([decided]) => decided);
    // Of a lost device: the operations tell.
    known.catch(() => {});
    return { known };
  }

  async #readEarly(tensor: Tensor): Promise<() => Promise<Float32Array>> {
    const { buffer, offset } = this.#storage.range(tensor);
    const bytes = new Uint8Array(bytesOf(tensor));
    const arrival = await this.#link.readEarly(buffer, offset, bytes);
    return () => arrival().then(() => new Float32Array(bytes.buffer));
  }
}
