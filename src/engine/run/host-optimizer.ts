// `HostOptimizer`: runs the host's operations of a pass: brings the scalars of the step to the host, waits until the gradients
// lie below, and has parameters and moments updated there. Not the arithmetic (kernels/host-adamw.ts), and no owner of
// copies (copies.ts).
//
// Invariant: nothing of a step is updated before all gradients of that step lie below, so that a new device can finish it; where
// chunks are updated inside the backward pass, or by several ranks, before its own gradient does.

import { bytesOf, type Tensor } from '../../graph/program.ts';
import type { HostExtent, HostScalars, HostValues, HostWidths } from '../../kernels/host-adamw.ts';
import { at } from '../../util/at.ts';
import type { HostOperation } from '../compile/operations.ts';
import type { ChunkCopies } from './copies.ts';
import type { Link } from './link.ts';
import type { Storage } from './storage.ts';

/** Computes AdamW over values in host memory, here or in threads. */
export interface HostUpdater {
  /** Changes all but the gradient in place. */
  update(values: HostValues, extent: HostExtent, scalars: HostScalars): Promise<void> | void;
  /** Frees what it has. */
  end?(): Promise<void>;
}

export class HostOptimizer {
  readonly #updater: HostUpdater;
  readonly #widths: HostWidths;
  readonly #storage: Storage;
  readonly #copies: ChunkCopies;
  readonly #link: Link;
  /** Of the step under way: see STATE. Known, or read from the GPU when it is needed. */
  #state: Float32Array | undefined;
  #begun = false;
  /** Waits for what was on its way down when the step was decided. @default for all that is */
  #gradientsArrive: (() => Promise<void>) | undefined;

  constructor(
    updater: HostUpdater,
    { dtype, momentDtype }: HostWidths,
    storage: Storage,
    copies: ChunkCopies,
    link: Link,
  ) {
    this.#updater = updater;
    this.#widths = { dtype, momentDtype };
    this.#storage = storage;
    this.#copies = copies;
    this.#link = link;
  }

  /** A pass begins: the scalars are another step's. */
  begin(): void {
    this.#state = undefined;
    this.#begun = false;
    this.#gradientsArrive = undefined;
  }

  /** What comes down behind this is no gradient of the step. */
  markDecision(): void {
    this.#gradientsArrive = this.#link.sentDown();
  }

  /** What the GPU has decided of the step. */
  decide(state: Float32Array): void {
    this.#state = state;
  }

  /** Updates the chunks of an index; what of them is on the GPU goes. */
  async run({ chunks, operands, numbered, size, firstBlock, firstNarrow }: HostOperation): Promise<void> {
    const { gradient, ...changed } = chunks;
    const roles = Object.keys(changed) as (keyof typeof changed)[];
    const extent: HostExtent = { size, firstBlock, firstNarrow, widths: this.#widths };
    if (!this.#begun) await (this.#gradientsArrive?.() ?? this.#link.settle());
    this.#begun = true;
    await this.#link.arrival(gradient);
    this.#state ??= new Float32Array(await this.#read(operands.state));
    const scalars: HostScalars = {
      hyper: this.#storage.onHost(operands.hyper) as Float32Array,
      state: this.#state,
      decayMask: this.#storage.onHost(operands.decayMask) as Uint32Array,
      numbered,
    };
    // A copy that was given up behind its last use.
    if (this.#widths.dtype === 'f16' && changed.beside !== undefined) this.#copies.renewBelow(changed.beside);
    await this.#link.waiting(
      'below',
      this.#copies.update(gradient, Object.values(changed), ([gradient, ...bytes]) => {
        const values = Object.fromEntries(roles.map((role, i) => [role, at(bytes, i)]));
        return this.#updater.update({ gradient, ...values } as unknown as HostValues, extent, scalars);
      }),
    );
  }

  async #read(tensor: Tensor): Promise<ArrayBuffer> {
    const { buffer, offset } = this.#storage.range(tensor);
    const bytes = new Uint8Array(bytesOf(tensor));
    await this.#link.read(buffer, offset, bytes.length, (piece, at) => bytes.set(piece, at));
    return bytes.buffer;
  }
}
