// `holdfast/browser`: training on a page's behalf, in workers.

export { type ModelConfig, parseConfig } from '../formats/config.ts';
export type { DiskRoom } from '../runtime/browser.ts';
export type { RunSummary } from '../train/run.ts';
export type { RunSettings } from '../train/run-settings.ts';
export { callback, type Holdfast, type HoldfastOptions, openHoldfast } from './client.ts';
export type * from './protocol.ts';
export type { TrainerService } from './service.ts';
