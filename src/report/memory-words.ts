// How the report and the page call tiers, states and kinds of model data: one word for one thing. Only words.

/** By tier, state or kind. */
export const WORDS: Record<string, string> = {
  gpu: 'on the GPU',
  staging: 'on its way down',
  host: 'in host memory',
  disk: 'on disk',
  none: 'nowhere',
  FREE: 'free',
  COMPUTE: 'in use',
  HOLD: 'held',
  HOLD_AFTER_FWD: 'held, forward has used it',
  HOLD_AFTER_BWD: 'held, backward has used it',
  parameter: 'parameters',
  gradient: 'gradients',
  moment1: '1st moment',
  moment2: '2nd moment',
  frozen: 'frozen',
};
