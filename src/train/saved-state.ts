// What a checkpoint says of its run besides weights and moments: trainer_state.json. All that a run needs to go on, and
// all that it has to show for itself.

import type { ChoiceRecord } from '../engine/choices.ts';
import { type Checkpoint, checkpointsOf, loadState } from '../formats/checkpoint.ts';
import type { Host } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import type { RunRecord } from './report.ts';
import { type RunSettings, type TextIdentity, trainAlike } from './run-settings.ts';
import type { TrainerState } from './trainer.ts';

export interface SavedState {
  format: 'holdfast 1';
  settings: RunSettings;
  /** Where the run was forked or given more steps: what it was trained with before, and up to which step. */
  earlier?: { settings: RunSettings; until: number }[];
  corpus: TextIdentity;
  trainer: TrainerState;
  batches: number[];
  sampling: number[];
  choices: ChoiceRecord;
  adapter: string;
  history: Pick<RunRecord, 'steps' | 'validations' | 'samples'>;
}

/** The settings that a checkpoint was made with. */
export async function savedSettings(host: Host, out: string): Promise<RunSettings> {
  if ((await checkpointsOf(host.files, out)).length === 0) {
    throw new HoldfastError(`${out}: there is no checkpoint to resume; start without --resume`);
  }
  return (await savedState(host, out)).settings;
}

/** What the latest checkpoint says of its run. */
export async function savedState(host: Host, out: string): Promise<SavedState> {
  return stateOf({ state: await loadState(host.files, out) }, out);
}

export function stateOf({ state: json }: Pick<Checkpoint, 'state'>, from: string): SavedState {
  const state = json as SavedState;
  if (state?.format !== 'holdfast 1') {
    throw new HoldfastError(
      `${from}: its trainer_state.json is not one of Holdfast's; use a checkpoint that Holdfast wrote`,
    );
  }
  return state;
}

/** The state of a run that goes on with other settings. */
export function withSettings(state: SavedState, settings: RunSettings): SavedState {
  const { earlier = [], trainer } = state;
  if (trainAlike(state.settings, settings)) return { ...state, settings };
  return { ...state, settings, earlier: [...earlier, { settings: state.settings, until: trainer.step }] };
}
