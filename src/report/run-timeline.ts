// The timeline of a run: a file with its last step as a trace. What the trace has is engine/observe/timeline.ts's.

import type { RankStep } from '../engine/observe/rank-step.ts';
import type { Recording } from '../engine/observe/recording.ts';
import { chromeTrace } from '../engine/observe/timeline.ts';
import { checkHost } from '../runtime/check-host.ts';
import type { Host } from '../runtime/host.ts';
import { having } from '../util/arguments.ts';
import { check, list, object, text } from '../util/json.ts';

/** What a timeline begins with, by which a file is known to be one. */
export const TIMELINE_BEGINS = '{"traceEvents":[';

/** Writes a recorded step to a file, for chrome://tracing and ui.perfetto.dev: for `lastStep` of RunEvents. */
export async function writeTimeline(
  host: Host,
  file: string,
  recording: Recording,
  others: readonly RankStep[] = [],
): Promise<void> {
  checkHost(host);
  check(text, file, 'file');
  check(having<Recording>('a recorded step, as lastStep of RunEvents gives', 'pass'), recording, 'recording');
  check(list(object({})), others, 'others');
  await host.files.writeAtomic(file, JSON.stringify(chromeTrace([recording], others)));
}
