// Parts that a session is made of when it opens: the arrangement that fits its budget, everything on the device, the
// tiers below with what is zero at the start, and the optimizer's threads. All of it is made, or nothing is left of it.

import { type Device, OutOfMemory } from '../../gpu/device.ts';
import type { HostUpdater } from '../../kernels/host-adamw.ts';
import { HostAdamW } from '../../kernels/host-adamw.ts';
import { WasmHeap } from '../../kernels/wasm-heap.ts';
import { ALL_KINDS, KINDS } from '../../memory/layout/kinds.ts';
import { Below } from '../../memory/tiers/below.ts';
import type { Threads } from '../../runtime/host.ts';
import { finishing } from '../../util/errors.ts';
import { beginsAhead, needBelow } from '../compile/candidate.ts';
import type { KernelChoices } from '../compile/choices.ts';
import { fitMemory } from '../compile/fit.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Passes } from '../compile/pass.ts';
import { dispatchesOf } from '../compile/pass-figures.ts';
import { heldByUpdate, updatesOnHost, type Workload } from '../compile/workload.ts';
import type { Ranks } from '../ranks/ranks.ts';
import { arrange, autoBudget, checkMemory, limitsOf, type MemoryOptions, optionsOf, SHRINK } from './arrangement.ts';
import { makeDeviceState } from './device-state.ts';
import { HostThreads } from './host-threads.ts';
import { emptyLedger, type LinkLedger } from './link-ledger.ts';
import { insteadOf, type SessionState } from './state-builder.ts';

export interface SessionParts<P extends Passes> {
  readonly state: SessionState<P>;
  readonly choices: KernelChoices;
  readonly below: Below;
  readonly ledger: LinkLedger;
  readonly updater: HostUpdater;
  readonly ranks: Ranks | undefined;
}

/** What a session is opened with, whatever it runs. */
export interface SessionOpening {
  readonly device: Device;
  readonly choices: KernelChoices;
  readonly memory: MemoryOptions;
  readonly threads: Threads | undefined;
  readonly ranks: Ranks | undefined;
}

/** Within the budget, or within less where the GPU has not the memory for it. Errors: see Session.open. */
export async function openParts<P extends Passes>(
  workload: Workload<P>,
  opening: SessionOpening,
): Promise<SessionParts<P>> {
  const { device, memory } = opening;
  checkMemory(memory);
  const limits = limitsOf(device, memory);
  const options = optionsOf(memory, heldByUpdate(workload));
  let budget = memory.gpu === 'auto' ? await autoBudget(device, workload) : memory.gpu;
  let exhausted: OutOfMemory | undefined;
  for (;;) {
    const found = insteadOf(exhausted, () => fitMemory(workload, limits, budget, options));
    try {
      const { gpu: _, ...rest } = memory;
      const settled = budget === undefined ? rest : { ...rest, gpu: budget };
      return await makeParts(found, { ...opening, memory: settled });
    } catch (error) {
      if (!(error instanceof OutOfMemory)) throw error;
      exhausted = error;
      // Buffers that are being mapped are destroyed when that is answered: in Deno later than the next attempt would begin.
      await device.idle();
      budget = Math.floor(found.peak * SHRINK);
    }
  }
}

async function makeParts<P extends Passes>(
  found: Fit<P>,
  { device, choices, memory, threads, ranks }: SessionOpening,
): Promise<SessionParts<P>> {
  const { map } = found;
  // Trials need operands of their own: before anything else is there, they fit.
  await choices.settle(dispatchesOf(found.passes));
  const heap = updatesOnHost(found.workload) ? WasmHeap.make() : undefined;
  const { host, disk } = memory;
  const allocate = heap && ((bytes: number) => heap.allocate(bytes));
  const need = needBelow(found, beginsAhead(found, device.adapter));
  const below = await Below.open(need, { host, disk, allocate, copyBytes: device.copyBytes });
  const updater = heap && threads ? new HostThreads(threads, heap) : new HostAdamW(heap);
  try {
    for (const kind of ALL_KINDS.filter((kind) => KINDS[kind].zero)) {
      const { first, chunks } = map.list(kind);
      for (let chunk = first; chunk < first + chunks; chunk++) below.chunks.setZero(chunk);
    }
    const arranged = arrange(found, memory);
    const ledger = emptyLedger();
    const options = { readAhead: arranged.readAhead, ledger, updater, ranks: ranks?.step };
    const deviceState = await makeDeviceState(device, found, choices, below, options);
    return { state: { ...arranged, deviceState }, choices, below, ledger, updater, ranks };
  } catch (error) {
    return finishing(
      () => Promise.reject(error),
      () => below.close(),
    );
  }
}
