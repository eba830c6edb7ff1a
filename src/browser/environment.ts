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
  if (!adapter.features.includes('shader-f16')) {
    notes.push('This adapter has no 16-bit floats (shader-f16): nothing is lost, all is computed in 32 bits.');
  }
  return notes;
}
