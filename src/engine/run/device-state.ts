// The state of a session on one device: buffers for everything in it, and the executor over them. Made as worked out,
// all or nothing; made anew for another device or another budget.

import type { Device } from '../../gpu/device.ts';
import { ReadbackRing } from '../../gpu/readback.ts';
import type { Below } from '../../memory/tiers/below.ts';
import { at } from '../../util/at.ts';
import { arenaSizes, beginsAhead, updatesAside } from '../compile/candidate.ts';
import type { KernelChoices } from '../compile/choices.ts';
import type { Fit } from '../compile/fitted.ts';
import { isOnHost, isTransfer } from '../compile/operations.ts';
import { dispatchesOf, exchangedTensors } from '../compile/pass-figures.ts';
import { Bindings } from './binding.ts';
import { ChunkCopies } from './copies.ts';
import { Executor, type ExecutorParts } from './executor.ts';
import { Slots } from './slots.ts';
import { Staging } from './staging.ts';
import { Storage } from './storage.ts';

export interface DeviceState {
  readonly device: Device;
  readonly storage: Storage;
  readonly executor: Executor;
  readonly ring: ReadbackRing;
  /** Frees every buffer; called again, it does nothing. */
  release(): void;
}

/** Errors: OutOfMemory where the device has not the memory; nothing is left of it then. */
export async function makeDeviceState(
  device: Device,
  fit: Fit,
  choices: KernelChoices,
  below: Below,
  options: Pick<ExecutorParts, 'readAhead' | 'ledger' | 'updater' | 'ranks'>,
): Promise<DeviceState> {
  const { map, passes, placements, slots: count, extra, staging: size, stagingBytes, workload, durable, stashes } = fit;
  const made: { destroy(): void }[] = [];
  const own = <T extends { destroy(): void }>(part: T): T => {
    made.push(part);
    return part;
  };
  const release = () => {
    for (const part of made.splice(0)) part.destroy();
  };
  try {
    return await device.guarded('the training state', async () => {
      const storage = own(new Storage(device));
      const arenas = storage.placeActivations(placements, arenaSizes(placements));
      for (const tensor of exchangedTensors(passes)) storage.range(tensor);
      for (const { operations } of Object.values(passes)) {
        for (const { operands } of operations.filter(isOnHost)) {
          storage.keepOnHost([operands.hyper, operands.decayMask]);
        }
        for (const { rows } of operations.filter(isTransfer)) if (rows) storage.keepOnHost([rows.position]);
      }
      const among = extra.map((range) => ({ ...range, buffer: at(arenas, range.arena) }));
      const slots = own(new Slots(device, count, map.chunkBytes, map.count + stashes.length, among));
      const staging = own(new Staging(device, size, stagingBytes));
      const ring = own(new ReadbackRing(device.allocator, 'step', workload.readback.bytes, workload.readback.reads));
      const operations = new Set(dispatchesOf(passes));
      const bindings = await Bindings.make(device, storage, slots, choices, operations);
      below.stashes.place(map.count, stashes);
      const copies = new ChunkCopies(slots, below, map.count + stashes.length, durable);
      const updating = { updatesAside: updatesAside(fit), updatesAhead: beginsAhead(fit, device.adapter) };
      const parts = { device, map, storage, slots, copies, bindings, staging, below };
      const executor = new Executor({ ...options, ...updating, ...parts });
      return { device, storage, executor, ring, release };
    });
  } catch (error) {
    release();
    throw error;
  }
}
