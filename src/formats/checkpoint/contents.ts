// The contents of a checkpoint, and of a model's folder, as they are loaded and saved: no names of files here, no reading.

import type { StoredElement } from '../../kernels/stored.ts';
import type { MomentDtype } from '../../memory/layout/kinds.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import type { AdapterInfo } from '../adapter.ts';
import type { ModelConfig } from '../config.ts';
import type { AdapterConfig } from '../peft.ts';
import type { ImagePreparation } from '../preprocessor.ts';
import type { TokenizerFiles } from '../tokenizer-files.ts';

/** Shapes by tensor name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** A model's folder: config.json and model.safetensors, or the shards of it. */
export interface SavedWeights {
  /** Of its config.json. */
  readonly config: ModelConfig;
  /** Of its safetensors files, by the names of the parameters; read when they are asked for. */
  readonly weights: TensorSource;
  /** Of every tensor in `weights`. */
  readonly shapes: Shapes;
  /** How its files hold those of `weights` that are not f32. @default all are */
  readonly stored?: ReadonlyMap<string, StoredElement>;
  /** Its tokenizer, where there is one beside it. */
  readonly tokenizer?: TokenizerFiles;
}

/** Weights with what resuming needs. */
export interface Checkpoint extends SavedWeights {
  /** Of the trained tensors, in their shapes. */
  readonly moment1: TensorSource;
  /** As `moment1`. */
  readonly moment2: TensorSource;
  /** Plain JSON: the trainer's, the data's and the report's state. */
  readonly state: unknown;
}

/** A checkpoint to be saved. */
export interface CheckpointToSave extends Checkpoint {
  /** What the moments are written as: they are those already. @default 'f32' */
  readonly momentsIn?: MomentDtype;
  /** There where `weights` are an adapter's alone: which, and the name or folder of its base, of that revision where one is said. */
  readonly adapter?: { readonly info: AdapterInfo; readonly base: string | undefined; readonly revision?: string };
  /** What tools that plot a run read: the fields of Hugging Face's TrainerState, as plain JSON. @default none: its own defaults */
  readonly trainerState?: object;
  /** Of a vision model: what is done with its images. @default from -1 to 1, of its size */
  readonly images?: ImagePreparation;
}

/** A checkpoint, and the folder that it lies in. */
export interface LoadedCheckpoint extends Checkpoint {
  readonly path: string;
  /** The file with `state`. */
  readonly statePath: string;
  /** There where `weights` are an adapter's alone. */
  readonly adapter?: AdapterConfig;
  /** The SHA-256 of its files by name, which they had when it was loaded. @default it has none beside it */
  readonly sums?: ReadonlyMap<string, string>;
}

/** The part of a checkpoint that says how it is to be read. */
export type LoadedState = Pick<LoadedCheckpoint, 'state' | 'config' | 'path' | 'statePath'>;
