// The library: what a program that trains, evaluates or generates imports. The headless host (Node, Deno) is
// in `holdfast/headless`; the rest of this package names no runtime. What is listed here is documented and kept in
// docs/api; a type that only appears in one of these is not.

export { type Batch, type BatchArray, evenWindows, RandomWindows, type TokenBatch } from './data/batches.ts';
export type { TextIdentity } from './data/corpus.ts';
export { type Corpus, defaultCorpus, loadCorpus, split, type TextSource } from './data/corpus.ts';
export { tokenizerFrom } from './data/open-tokenizer.ts';
export type { ChatTemplate } from './data/records/chat-template.ts';
export { findChatTemplate } from './data/records/find-template.ts';
export type { RecordSettings } from './data/records/read-records.ts';
export { holdRecords } from './data/records/record-files.ts';
export type { Message } from './data/records/shapes.ts';
export { type StrideOptions, stridedWindows } from './data/strided-windows.ts';
export type { TaskName } from './data/tasks.ts';
export {
  ByteTokenizer,
  type Cut,
  promptIds,
  type SpecialTokens,
  type StreamDecoder,
  type TextMarks,
  type Tokenizer,
  type TokenizerIdentity,
} from './data/tokenizer.ts';
export { type ChoiceRecord, loadChoices, saveChoices } from './engine/compile/choices.ts';
export type { Rates } from './engine/compile/rates.ts';
export type { Recovery } from './engine/compile/recovery.ts';
export type { Policy, PolicyName } from './engine/compile/schedule.ts';
export { measureRates } from './engine/observe/device-rates.ts';
export { makeRanks, type RankOptions, type Ranks } from './engine/ranks/ranks.ts';
export type { ZeroStage } from './engine/ranks/sharding.ts';
export type { MemoryOptions } from './engine/run/arrangement.ts';
export type { MemoryReport } from './engine/run/memory-report.ts';
export type { AdaptedLinear, AdapterInfo, Linear, LoraOptions } from './formats/adapter.ts';
export {
  type Checkpoint,
  type CheckpointToSave,
  checkWeights,
  type LoadedAdapter,
  loadAdapter,
  loadCheckpoint,
  loadWeights,
  type SavedWeights,
  type Shapes,
  saveCheckpoint,
} from './formats/checkpoint.ts';
export { parseConfig } from './formats/config.ts';
export type { ModelShape } from './formats/families/family.ts';
export type * from './formats/families/table.ts';
export type { GGUFSummary } from './formats/gguf/export.ts';
export type { TensorType } from './formats/gguf/tensor-types.ts';
export {
  type Dtype,
  parse as parseSafetensors,
  type StoredTensor,
  serialize as serializeSafetensors,
  type TensorData,
} from './formats/safetensors.ts';
export { configOfShape, DEFAULT_SHAPE, type ShapeOptions } from './formats/shape.ts';
export { findTokenizer, type TokenizerFiles } from './formats/tokenizer-files.ts';
export { type AdapterSummary, type Device, type DeviceOptions, listAdapters, openDevice } from './gpu/device.ts';
export type { StoredElement } from './kernels/stored.ts';
export type { Kind, MomentDtype, TrainingDtype } from './memory/layout/kinds.ts';
export { makeModel } from './nn/index.ts';
export { initialWeights } from './nn/initialise.ts';
export { mergedWeights, withLora } from './nn/lora.ts';
export {
  computedIn,
  type Initial,
  type Model,
  momentsIn,
  type Parameter,
  parameterCount,
  withStored,
} from './nn/model.ts';
export { writeReport } from './report/run-report.ts';
export { writeTimeline } from './report/run-timeline.ts';
export type {
  BlockFile,
  Files,
  FolderReader,
  GPUSource,
  GPUSourceOptions,
  Host,
  HubAccess,
  OpenFile,
  ResumedFile,
  Sha256,
  Terminal,
  WriteStream,
} from './runtime/host.ts';
export { BatchGenerator, type BatchGeneratorOptions } from './train/inference/batch-generator.ts';
export { Classifier, type ClassifierOptions } from './train/inference/classifier.ts';
export type { GenerationOptions } from './train/inference/continuation.ts';
export { Conversation, type ConversationOptions } from './train/inference/conversation.ts';
export { Generator, type GeneratorOptions } from './train/inference/generator.ts';
export type { SamplingOptions } from './train/inference/sampling.ts';
export { type WritingOptions, writeText } from './train/inference/writing.ts';
export type { ExpectedStep } from './train/plan/step-times.ts';
export { EarlyStopping, type TrainerCallback, type TrainerControl } from './train/run/callbacks.ts';
export type { HuggingFaceState, LogEntry } from './train/run/huggingface-state.ts';
export type { MemoryRecord } from './train/run/memory-record.ts';
export { type ModelSources, type OpenedModel, withModel } from './train/run/open-model.ts';
export { type PlanOptions, planRun } from './train/run/plan-run.ts';
export { trainRun } from './train/run/run.ts';
export type { Intermission, Observer, ReadyRun, RunEvents, RunOptions, RunSummary } from './train/run/run-events.ts';
export type { DataKind, PlannedLinks, PlannedMemory, RunForecast, RunPlan, TierPlan } from './train/run/run-plan.ts';
export { defaultSettings, type LoraSettings, type RunSettings } from './train/run/run-settings.ts';
export { type GGUFWriting, writeGGUF } from './train/run/write-gguf.ts';
export { type BatchLoss, Evaluator, type EvaluatorOptions } from './train/step/evaluator.ts';
export type { Decay, LearningRateSchedule } from './train/step/schedule.ts';
export type { StepHooks } from './train/step/step-hooks.ts';
export { STEP_READS } from './train/step/stepper.ts';
export { type StepMetrics, Trainer } from './train/step/trainer.ts';
export { ADAMW_DEFAULTS, type AdamWOptions, type TrainerOptions } from './train/step/trainer-options.ts';
export type { TrainerState } from './train/step/trainer-state.ts';
export { HoldfastError, Stopped } from './util/errors.ts';
export { Random } from './util/random.ts';
export { collect, sourceOf, type TensorSource, type Values } from './values/tensor-source.ts';
