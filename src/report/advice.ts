// Advice on a run within a budget, where its time and its bytes went, in words that a user acts on: a line for each
// thing that another setting would change, with what it would change. For the command line's summary and for the
// report. The figures are measured or the planner's (train/plan/what-if.ts); here are the words.

import type { MemoryRecord } from '../train/run/memory-record.ts';
import { flagBytes, formatBytes } from '../util/bytes.ts';

/** A wait that is worth words, as a share of a step. */
const WORTH_SAYING = 0.02;
/** Settings that are named for one thing. */
const MOST_NAMED = 3;

/** Nothing where nothing is waited for and nothing moves. */
export const advice = (record: MemoryRecord): string[] => [
  ...planning(record),
  ...spending(record),
  ...waiting(record),
  ...moving(record),
  ...recovering(record),
];

function planning({ plannedAgain }: MemoryRecord): string[] {
  if (!plannedAgain) return [];
  const { before, after } = plannedAgain;
  const less = Math.round(100 * (1 - after / before));
  return [`planned again by what the first steps took: a step is to take ${less} % less than by the plan before`];
}

/** Shares of a step's time, as it was planned: a wait that is measured for the GPU's link may be work of the GPU. */
function spending({ whatIf }: MemoryRecord): string[] {
  const { computing, again, waiting } = whatIf?.time ?? { computing: 1, again: 0, waiting: 0 };
  if (again < WORTH_SAYING && waiting < WORTH_SAYING) return [];
  const remade = again < WORTH_SAYING ? '' : `, ${percent(again)} of the step to make activations again`;
  return [
    `time of a step, as planned: ${percent(computing)} arithmetic${remade}; ${percent(waiting)} waiting for the link between GPU and host memory`,
  ];
}

/** Of the waits, that for the tiers below alone is waiting and nothing else: in the others the GPU works. */
function waiting({ lastStep, whatIf, host, disk }: MemoryRecord): string[] {
  if (!lastStep || lastStep.milliseconds <= 0) return [];
  const share = lastStep.waits.below / lastStep.milliseconds;
  if (share < WORTH_SAYING) return [];
  const onDisk = disk.peak > 0;
  const time = `waiting for ${onDisk ? 'disk' : 'host memory'} ${Math.round(100 * share)} % of the last step`;
  if (!onDisk || !whatIf || host.budget === undefined || whatIf.hostEnough <= host.budget) return [time];
  const more = formatBytes(whatIf.hostEnough - host.budget);
  const other = whatIf.alternatives.find(({ flag }) => flag.startsWith('--activations'));
  const or = other
    ? `; or ${other.flag}, which moves ${formatBytes(other.moved)} a step, not ${formatBytes(whatIf.moved)}`
    : '';
  return [`${time}: --host-memory ${flagBytes(whatIf.hostEnough)}, ${more} more, leaves nothing on disk${or}`];
}

function moving({ whatIf }: MemoryRecord): string[] {
  if (!whatIf || whatIf.moved === 0) return [];
  const { moved, alternatives } = whatIf;
  if (alternatives.length === 0)
    return [`moving ${formatBytes(moved)} a step: no other setting moves less in this budget`];
  // One that moves no less than another and computes no less is of no use.
  const useful = alternatives.filter(
    (one) =>
      !alternatives.some(
        (other) =>
          other !== one &&
          !other.flag.startsWith('--gpu-memory') &&
          other.moved <= one.moved &&
          other.moreArithmetic < one.moreArithmetic,
      ),
  );
  const words = useful.slice(0, MOST_NAMED).map(({ flag, moved, moreArithmetic }) => {
    const bytes = moved === 0 ? 'nothing' : formatBytes(moved);
    const percent = Math.round(100 * moreArithmetic);
    const cost = percent === 0 ? '' : `, with ${Math.abs(percent)} % ${percent > 0 ? 'more' : 'less'} arithmetic`;
    return `${flag} would move ${bytes}${cost}`;
  });
  return [`moving ${formatBytes(moved)} a step: ${words.join('; ')}`];
}

function recovering({ recoveryBytesPerStep: bytes, bytesPerStep }: MemoryRecord): string[] {
  if (!bytesPerStep || bytes === 0 || bytes < WORTH_SAYING * (bytesPerStep.h2d + bytesPerStep.d2h)) return [];
  return [
    `copying ${formatBytes(bytes)} more a step, so that a lost GPU costs one step: --recovery checkpoint does without, and goes back to the last checkpoint`,
  ];
}

const percent = (share: number): string => `${Math.round(100 * share)} %`;
