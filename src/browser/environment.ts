// Notes for a page on the browser it runs in.

import type { Environment } from './protocol.ts';

/** What is missing here, and what it costs. */
export function notesOn({ adapter, isolated, room }: Omit<Environment, 'notes'>): string[] {
  const notes: string[] = [];
  if (!isolated) {
    notes.push('This page is not cross-origin isolated (headers COOP and COEP): the disk tier works, slower.');
  }
  if (!room.persisted) {
    notes.push('The browser may clear the runs of this site when the disk is full: export what matters.');
  }
  if (adapter.software) notes.push('No GPU here: the software adapter computes on the CPU, slower.');
  return notes;
}
