// Extra slots on the GPU as they begin and end to serve: a chunk in one that ends to is copied to another slot before an
// activation comes to lie there. One queue, in order, makes it safe to do so at once. Which slots, and when, is in
// the schedule.

import type { SlotChanges } from '../../memory/plan/extra-slots.ts';
import type { ChunkCopies } from './copies.ts';
import type { Link } from './link.ts';
import type { Slots } from './slots.ts';

/** `leaves`: when a chunk leaves by the plan. `makeRoom`: evicts a chunk, where the plan was not followed. */
export async function changeSlots(
  { opens, closes }: SlotChanges,
  slots: Slots,
  copies: ChunkCopies,
  link: Link,
  leaves: (chunk: number) => number,
  makeRoom: () => Promise<void>,
): Promise<void> {
  for (const { slot, until } of opens) slots.open(slot, until);
  const inside = closes.map((slot) => slots.close(slot)).filter((chunk) => chunk !== undefined);
  for (const chunk of inside) {
    while (slots.free === 0 && copies.onGPU(chunk)) await makeRoom();
    if (!copies.onGPU(chunk)) continue;
    for (const { from, to } of slots.move(chunk, leaves(chunk))) {
      const [source, target] = [slots.at(from), slots.at(to)];
      link.command((encoder) =>
        encoder.copyBufferToBuffer(source.buffer, source.offset, target.buffer, target.offset, target.bytes),
      );
      link.ledger.copiedBytes += target.bytes;
    }
  }
}
