// Rule by which others may start from a run's weights: the one of the page that offers it, and of the service that
// looks for the model of an imported low-rank update.

import type { RunInfo } from './protocol.ts';

/** Weights that do not change any more: of a run that is over, and trained all of a model, or that were imported alone. */
export const isBase = ({ settings, savedStep, status }: Pick<RunInfo, 'settings' | 'savedStep' | 'status'>): boolean =>
  settings ? !settings.lora && savedStep === settings.steps : status === 'imported';
