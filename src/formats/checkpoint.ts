// A checkpoint: a folder that Hugging Face's libraries open (config.json, model.safetensors, trainer_state.json), with what
// resuming needs beside it (optimizer.safetensors, holdfast_state.json) and the checksums of all (SHA256SUMS). This file is the
// door to the folder beside it, which says what one holds, chooses, saves and loads them. Of a run that trains an adapter it holds that
// alone, in PEFT's layout (adapter_config.json, adapter_model.safetensors), and says which base it belongs to.
//
// Tensors come and go in pieces (tensor-source.ts): what is loaded is read from the files when it is asked for.

export type {
  Checkpoint,
  CheckpointToSave,
  LoadedCheckpoint,
  LoadedState,
  SavedWeights,
  Shapes,
} from './checkpoint/contents.ts';
export { finiteWeights } from './checkpoint/finite.ts';
export { checkpointPath, checkpointsOf, incompleteIn } from './checkpoint/folder.ts';
export {
  type DescribedAdapter,
  describeAdapter,
  type FoundModel,
  findModel,
  type HeldCheckpoint,
  type HeldWeights,
  holdCheckpoint,
  holdWeights,
  type LoadedAdapter,
  loadAdapter,
  loadCheckpoint,
  loadPreparation,
  loadState,
  loadTokenizer,
  loadTrainerState,
  loadWeights,
  type Wanted,
  withWeights,
} from './checkpoint/load.ts';
export type { FoundFolder } from './checkpoint/opening.ts';
export { replaceBase, replaceState, saveCheckpoint } from './checkpoint/save.ts';
export type { Writers } from './checkpoint/shards.ts';
export { checkWeights } from './checkpoint/tensor-names.ts';
