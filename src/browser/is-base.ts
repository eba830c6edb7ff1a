// Rule by which others may start from a run's weights: the one of the page that offers it, and of the service that
// looks for the model of an imported low-rank update.

import { having } from '../util/arguments.ts';
import { check } from '../util/json.ts';
import type { RunInfo } from './protocol.ts';

/**
 * Weights that do not change any more: of a run that is over, and trained all of a model, or that were imported alone. Errors:
 * HoldfastError for what is no run.
 */
export function isBase(run: Pick<RunInfo, 'settings' | 'savedStep' | 'status'>): boolean {
  const { settings, savedStep, status } = check(
    having<RunInfo>('a run of the list', 'savedStep', 'status'),
    run,
    'the run',
  );
  return settings ? !settings.lora && savedStep === settings.steps : status === 'imported';
}
