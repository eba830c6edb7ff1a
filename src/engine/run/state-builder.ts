// `StateBuilder`: makes the state of a session for another budget or another device: works out what it comes to, and then
// makes all of it or nothing. Which state a session is in, and when it moves, is in session.ts.

import type { Device } from '../../gpu/device.ts';
import type { Tensor, TensorElements } from '../../graph/program.ts';
import type { HostUpdater } from '../../kernels/host-adamw.ts';
import type { Below } from '../../memory/tiers/below.ts';
import { roomForStashes } from '../../memory/tiers/shares.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { KernelChoices } from '../compile/choices.ts';
import { leastBudget, refitMemory } from '../compile/fit.ts';
import type { Fit } from '../compile/fitted.ts';
import type { FitOptions } from '../compile/least.ts';
import type { Passes } from '../compile/pass.ts';
import type { Ranks } from '../ranks/ranks.ts';
import { type Arrangement, arrange, bytesBelowOf, limitsOf, SHRINK } from './arrangement.ts';
import { type DeviceState, makeDeviceState } from './device-state.ts';
import type { LinkLedger } from './link-ledger.ts';

/** Everything that a move replaces: as a whole, or not at all. */
export interface SessionState<P extends Passes> extends Arrangement<P> {
  readonly deviceState: DeviceState;
}

export class StateBuilder<P extends Passes> {
  /** Of persistent tensors that keep their contents wherever the session moves. */
  readonly contents = new Map<Tensor, () => TensorElements>();
  readonly #choices: KernelChoices;
  readonly #below: Below;
  readonly #ledger: LinkLedger;
  readonly #updater: HostUpdater;
  readonly #ranks: Ranks['step'] | undefined;
  #least: { readonly fit: Fit<P>; readonly bytes: number } | undefined;

  constructor(
    choices: KernelChoices,
    below: Below,
    ledger: LinkLedger,
    updater: HostUpdater,
    ranks: Ranks['step'] | undefined,
  ) {
    this.#choices = choices;
    this.#below = below;
    this.#ledger = ledger;
    this.#updater = updater;
    this.#ranks = ranks;
  }

  /** The arrangement of the chunks of `from` within another budget. Errors: HoldfastError for one that they do not fit into. */
  within(gpu: number, from: Arrangement<P>, device: Device, options = this.#refitOptions(from)): Arrangement<P> {
    const refitted = refitMemory(from.fit, limitsOf(device, from.memory), gpu, options);
    return arrange(refitted, { ...from.memory, gpu });
  }

  /** The smallest budget into which these chunks fit, in bytes. */
  leastBudget(from: Arrangement<P>, device: Device): number {
    const { fit } = from;
    if (this.#least?.fit === fit) return this.#least.bytes;
    const bytes = leastBudget(fit, limitsOf(device, from.memory), this.#refitOptions(from));
    this.#least = { fit, bytes };
    return bytes;
  }

  /** What is tried next where the GPU has not the memory. Errors: HoldfastError when that was the smallest. */
  smaller(from: Arrangement<P>, device: Device): Arrangement<P> {
    const { peak } = from.fit;
    const least = this.leastBudget(from, device);
    const shrunk = Math.floor(peak * SHRINK);
    // What a lost device left below is finished as it was begun.
    const recovery = from.fit.durable ? 'step' : 'checkpoint';
    const options = { ...this.#refitOptions(from), recovery } as const;
    return this.within(peak > least ? Math.max(least, shrunk) : shrunk, from, device, options);
  }

  /** Below, there is as much room as there was when the session began. */
  #refitOptions({ memory }: Arrangement<P>): FitOptions {
    return { recovery: memory.recovery, below: roomForStashes(this.#below.stashes.room, bytesBelowOf(memory)) };
  }

  /** Makes what is arranged, and changes nothing else. Errors: whatever went wrong; nothing is left of it then. */
  async build(device: Device, arranged: Arrangement<P>): Promise<SessionState<P>> {
    const { fit, schedules, memory, readAhead } = arranged;
    const options = { readAhead, ledger: this.#ledger, updater: this.#updater, ranks: this.#ranks };
    // Of the memory under this budget.
    device.allocator.restartPeak();
    const deviceState = await makeDeviceState(device, fit, this.#choices, this.#below, options);
    try {
      for (const [tensor, contents] of this.contents) deviceState.storage.write(tensor, contents());
    } catch (error) {
      deviceState.release();
      throw error;
    }
    return { memory, fit, schedules, readAhead, deviceState };
  }

  /** As arranged, or, where the device has not the memory, within as much of it as there is. */
  async buildWhatFits(device: Device, arranged: Arrangement<P>): Promise<SessionState<P>> {
    let exhausted: unknown;
    for (let next = arranged; ; ) {
      const tried = next;
      try {
        return await this.build(device, tried);
      } catch (error) {
        if (!(error instanceof HoldfastError) || (await device.isGone(error))) throw error;
        exhausted ??= error;
        next = insteadOf(exhausted, () => this.smaller(tried, device));
      }
    }
  }
}

/** After the GPU ran out of memory that is what went wrong, not that nothing fits into less. */
export function insteadOf<T>(exhausted: unknown, work: () => T): T {
  try {
    return work();
  } catch (refused) {
    throw exhausted ?? refused;
  }
}
