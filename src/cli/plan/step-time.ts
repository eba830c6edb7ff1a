// The line of `holdfast plan` that says the time of a step on the adapter that would train.

import type { AdapterRecord } from '../../engine/observe/adapter-records.ts';
import type { ExpectedStep } from '../../train/plan/step-times.ts';
import type { PlannedRun } from './flags.ts';
import { count, duration } from './words.ts';

const FROM = {
  run: 'as the steps of such a run took there',
  probe: 'by the times of other steps there',
} as const satisfies Record<ExpectedStep['from'], string>;

/** `71 ms  a step, 7,200 tokens/s on SwiftShader, as the steps of such a run took there`. */
export function stepTimeLine(
  { seconds, from }: ExpectedStep,
  { batch, seq, accumulate }: PlannedRun['settings'],
  { name }: AdapterRecord,
): string {
  const tokens = batch * seq * accumulate;
  return `  ${duration(seconds).padStart(8)}  a step, ${count(tokens / seconds)} tokens/s on ${name}, ${FROM[from]}`;
}
