// The checkpoint of a run's best validation, which stays beside the newest where the run keeps it.

import { checkpointsOf, loadTrainerState } from '../../formats/checkpoint.ts';
import { type Files, join } from '../../runtime/host.ts';
import { isObject } from '../../util/json.ts';

/**
 * Its folder, in the folder of the run; undefined where the run keeps none, and of what is no run. Errors: HoldfastError where
 * the newest checkpoint is damaged.
 */
export async function bestCheckpoint(files: Files, run: string): Promise<string | undefined> {
  const found = await checkpointsOf(files, run);
  if (found.length === 0) return undefined;
  const state = await loadTrainerState(files, run);
  const named = isObject(state) ? state['best_model_checkpoint'] : undefined;
  // The run may have been moved since.
  const [name] = (typeof named === 'string' && /[^/\\]+$/.exec(named)) || [];
  return found.find(({ path }) => name !== undefined && path === join(run, name))?.path;
}
