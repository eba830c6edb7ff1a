// `holdfast/browser`: training on a page's behalf, in workers. Not the engine: that is in the trainer's worker, and a page
// talks to it through TrainerService. The demo uses nothing but this: what a page needs to show runs is here, too.

export type { TrainOn } from '../data/records/read-records.ts';
export type { ShapeName } from '../data/records/shapes.ts';
export { TASKS, type Task, type TaskName } from '../data/tasks.ts';
export type { Pixels } from '../data/write-png.ts';
export type { Recovery } from '../engine/compile/recovery.ts';
export type { PolicyName } from '../engine/compile/schedule.ts';
export {
  ACTIVATION_STATES,
  type ActivationHistory,
  type ActivationState,
  activationCode,
  type ChunkHistory,
  CODES,
  type Decoded,
  decode,
  encodeState,
  expand,
  type RunLengths,
  rowsOf,
  TIERS,
  type Tier,
} from '../engine/observe/chunk-codes.ts';
export type { MemoryReport } from '../engine/run/memory-report.ts';
export type { LoraOptions } from '../formats/adapter.ts';
export { ALL_LINEAR } from '../formats/adapter.ts';
export { parseConfig } from '../formats/config.ts';
export type { SavedDtype } from '../formats/export.ts';
export { FAMILIES, FAMILY_NAMES, labelsIn, shapeOf } from '../formats/families/index.ts';
export type * from '../formats/families/table.ts';
export type { TensorType } from '../formats/gguf/tensor-types.ts';
export type { HubSource } from '../formats/remote/hub-model.ts';
export { configOfShape, DEFAULT_SHAPE, type ShapeOptions } from '../formats/shape.ts';
export type { AdapterSummary } from '../gpu/device.ts';
export { STATES, type State } from '../memory/layout/states.ts';
export * as drawing from '../report/drawing.ts';
export type { DiskRoom } from '../runtime/browser/room.ts';
export type { ExpectedStep } from '../train/plan/step-times.ts';
export { fineTuningSettings } from '../train/run/fine-tuning.ts';
export type { MemoryBound, MemoryRecord } from '../train/run/memory-record.ts';
export type { RunSummary } from '../train/run/run-events.ts';
export type { DataKind, PlannedLinks, RunForecast, RunPlan, TierPlan } from '../train/run/run-plan.ts';
export { defaultSettings, type LoraSettings, type RunSettings } from '../train/run/run-settings.ts';
export type { Decay } from '../train/step/schedule.ts';
export { formatBytes, parseBytes } from '../util/bytes.ts';
export { HoldfastError, messageOf } from '../util/errors.ts';
export { type Holdfast, type HoldfastOptions, openHoldfast } from './client.ts';
export type * from './estimate-types.ts';
export { type FilesToTrain, filesToTrain } from './files-to-train.ts';
export { imageFile } from './image-file.ts';
export { isBase } from './is-base.ts';
export type { KeepProgress, ModelFiles } from './models.ts';
export type * from './protocol.ts';
export type { ResumeOptions } from './run-records.ts';
export type { TrainerService } from './service.ts';
export { unreadForm, unreadRecords } from './unread-form.ts';
