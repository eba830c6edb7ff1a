// The folder that a run of the command line writes to: chosen, taken against other processes, and checked before the
// first step for what would otherwise be noticed behind the last.

import { checkpointsOf, incompleteIn } from '../../formats/checkpoint.ts';
import { TIMELINE_BEGINS } from '../../report/run-timeline.ts';
import { type FolderClaim, type Host, join } from '../../runtime/host.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { checkWritable } from '../options.ts';
import { RUNS, type TrainFlags } from './flags.ts';

/** Takes the folder of the run: the one named, the latest one to resume, or a new one. */
export async function claimOut(host: Host, flags: TrainFlags): Promise<FolderClaim> {
  const { claimFolder, claimNextFolder } = host;
  assert(claimFolder && claimNextFolder, 'the command line shares folders with other processes');
  if (flags.resume) return claimFolder(await runToResume(host, flags));
  return flags.out === undefined ? claimNextFolder(RUNS, 'run-') : claimFolder(flags.out);
}

/** The folder of the run that goes on. Errors: HoldfastError where there is none. */
export const runToResume = async (host: Host, { out }: Pick<TrainFlags, 'out'>): Promise<string> =>
  out ?? (await latestRun(host));

async function latestRun({ files }: Host): Promise<string> {
  const names = (await files.stat(RUNS))?.kind === 'folder' ? await files.list(RUNS) : [];
  const numbers = names.map((name) => /^run-(\d+)$/.exec(name)?.[1]).filter((digits) => digits !== undefined);
  for (const n of numbers.map(Number).sort((a, b) => b - a)) {
    const run = join(RUNS, `run-${n}`);
    if ((await checkpointsOf(files, run)).length > 0 || (await incompleteIn(files, run))) return run;
  }
  throw new HoldfastError(`${RUNS}/: there is no run to resume; start without --resume, or name one with --out`);
}

/** What would otherwise be noticed when the steps are done. */
export async function checkOut({ files }: Host, out: string, { resume, timeline }: TrainFlags): Promise<void> {
  if (!resume && (await checkpointsOf(files, out)).length > 0) {
    throw new HoldfastError(`${out}: holds a checkpoint already; add --resume to go on, or choose another --out`);
  }
  const incomplete = resume ? undefined : await incompleteIn(files, out);
  if (incomplete) throw new HoldfastError(`${incomplete}; put that back and add --resume, or choose another --out`);
  if (timeline !== undefined) await checkWritable(files, timeline, TIMELINE_BEGINS);
}
