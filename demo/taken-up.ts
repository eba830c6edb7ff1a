// Runs that the page takes up by itself when it is loaded: those that were cut off, once nothing else has them. Those without a
// checkpoint are noted by their ids, kept from one load of the page to the next: one that ends the tab each time it is prepared must
// not do so at every load.

import type { RunInfo, RunSettings } from '../src/browser/index.ts';

const KEY = 'holdfast runs taken up';

/** Whether a run that was cut off may be taken up without being asked for; one that has no checkpoint, once. */
export const mayTakeUp = ({ id, savedStep }: RunInfo): boolean => savedStep > 0 || !takenUp().includes(id);

/** Notes that a run is taken up, before it is. `runs`: all there are; others are forgotten. */
export function noteTakenUp({ id }: RunInfo, runs: readonly RunInfo[]): void {
  const there = takenUp().filter((other) => other !== id && runs.some((run) => run.id === other));
  localStorage.setItem(KEY, [...there, id].join(' '));
}

const takenUp = (): string[] => (localStorage.getItem(KEY) ?? '').split(' ');

/** Whether a run was paused or stopped before it had all its steps. */
export const isHalted = (run: RunInfo): run is RunInfo & { readonly settings: RunSettings } =>
  (run.status === 'paused' || run.status === 'stopped') &&
  run.settings !== undefined &&
  run.savedStep < run.settings.steps;

/** As long as the worker of a page that was loaded anew may take to end. */
const PATIENCE = { tries: 40, everyMs: 250 };

/** Whether a run that goes on is in another tab, as it seems: the page before, whose worker ends, looks the same. */
export const isElsewhere = (runs: readonly RunInfo[]): boolean =>
  runs.some(({ status, open }) => status === 'running' && open === 'in another tab');

/** Reads the list until that is over, the person has begun something, or another tab it is. */
export async function untilLeft(
  list: { readonly runs: readonly RunInfo[]; refresh(): Promise<void> },
  isBusy: () => boolean,
): Promise<void> {
  for (let i = 0; i < PATIENCE.tries && isElsewhere(list.runs) && !isBusy(); i++) {
    await new Promise((resolve) => setTimeout(resolve, PATIENCE.everyMs));
    await list.refresh();
  }
}
