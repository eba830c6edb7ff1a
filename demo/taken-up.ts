// The runs without a checkpoint that the page took up by itself, by their ids, kept from one load of the page to the next: one
// that ends the tab each time it is prepared must not do so at every load.

import type { RunInfo } from '../src/browser/index.ts';

const KEY = 'holdfast runs taken up';

/** Whether a run that was cut off may be taken up without being asked for; one that has no checkpoint, once. */
export const mayTakeUp = ({ id, savedStep }: RunInfo): boolean => savedStep > 0 || !takenUp().includes(id);

/** Notes that a run is taken up, before it is. `runs`: all there are; others are forgotten. */
export function noteTakenUp({ id }: RunInfo, runs: readonly RunInfo[]): void {
  const there = takenUp().filter((other) => other !== id && runs.some((run) => run.id === other));
  localStorage.setItem(KEY, [...there, id].join(' '));
}

const takenUp = (): string[] => (localStorage.getItem(KEY) ?? '').split(' ');
