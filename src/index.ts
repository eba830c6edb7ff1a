// The library: what a program that trains, evaluates or generates imports. The headless host (Node, Deno) is
// in `holdfast/headless`; the rest of this package names no runtime.

export { type Batch, evenWindows, RandomWindows } from './data/batches.ts';
export { type Corpus, defaultCorpus, loadCorpus, split } from './data/corpus.ts';
export { ByteTokenizer, type Tokenizer } from './data/tokenizer.ts';
export { type ChoiceRecord, loadChoices, saveChoices } from './engine/choices.ts';
export { type MemoryOptions, type MemoryReport, Session } from './engine/session.ts';
export { checkWeights, loadCheckpoint, loadWeights, saveCheckpoint } from './formats/checkpoint.ts';
export { type GPT2Config, type LlamaConfig, type ModelConfig, parseConfig } from './formats/config.ts';
export { parse as parseSafetensors, serialize as serializeSafetensors } from './formats/safetensors.ts';
export { type AdapterSummary, type Device, type DeviceOptions, listAdapters, openDevice } from './gpu/device.ts';
export { Graph, type Program, printProgram, type Tensor } from './graph/graph.ts';
export { makeModel } from './nn/index.ts';
export { initialWeights } from './nn/initialise.ts';
export { type Model, parameterCount } from './nn/model.ts';
export type { Files, GPUSource, Host, Terminal, WriteStream } from './runtime/host.ts';
export { Generator } from './train/generator.ts';
export { type RunEvents, type RunSummary, trainRun } from './train/run.ts';
export type { RunSettings } from './train/run-settings.ts';
export type { SamplingOptions } from './train/sampling.ts';
export type { Schedule } from './train/schedule.ts';
export { type AdamWOptions, type StepMetrics, Trainer, type TrainerOptions } from './train/trainer.ts';
export { HoldfastError } from './util/errors.ts';
export { Random } from './util/random.ts';
export { collect, sourceOf, type TensorSource } from './util/tensor-source.ts';
