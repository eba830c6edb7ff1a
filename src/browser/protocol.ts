// The types of what passes between a page and the trainer's worker: plain data, all of it, so that it can be cloned.

import type { TrainOn } from '../data/records/read-records.ts';
import type { Pixels } from '../data/write-png.ts';
import type { Recovery } from '../engine/compile/recovery.ts';
import type { PolicyName } from '../engine/compile/schedule.ts';
import type { ChunkHistory } from '../engine/observe/chunk-codes.ts';
import type { LinkBytes } from '../engine/observe/recording.ts';
import type { MemoryReport } from '../engine/run/memory-report.ts';
import type { ModelConfig } from '../formats/config.ts';
import type { SavedDtype } from '../formats/export.ts';
import type { TensorType } from '../formats/gguf/tensor-types.ts';
import type { ImagePreparation } from '../formats/preprocessor.ts';
import type { AdapterSummary } from '../gpu/device.ts';
import type { StoredElement } from '../kernels/stored.ts';
import type { DiskRoom } from '../runtime/browser/room.ts';
import type { MemoryBound } from '../train/run/memory-record.ts';
import type { RunSummary } from '../train/run/run-events.ts';
import type { LoraSettings, RunSettings } from '../train/run/run-settings.ts';
import type { SavedState } from '../train/run/saved-state.ts';

/** Budgets, in bytes. Absent: no limit, and no disk tier. */
export interface MemorySettings {
  /** GPU memory, for everything. @default no limit */
  gpu?: number;
  /** Host memory for chunks. @default no limit */
  host?: number;
  /** Keeps model data that host memory has no room for in the site's files, up to so much. */
  disk?: number;
  /** See MemoryOptions. @default 'auto' */
  recovery?: Recovery;
  /** The policy that decides which chunk leaves the GPU; the losses are the same. @default 'planned' */
  policy?: PolicyName;
}

/** What the place offers; `notes` are sentences for the person: what is missing and what it costs. */
export interface Environment {
  /** The adapter that trains. */
  readonly adapter: AdapterSummary;
  /** Cross-origin isolated: the disk tier shares memory with its worker. */
  readonly isolated: boolean;
  /** Room for files. */
  readonly room: DiskRoom;
  /** Sentences for the person. */
  readonly notes: readonly string[];
}

/** Text to train on: absent, the example text; it is kept with the run. */
export type TrainingText = string | Blob;

/** A file of a model, and where it lies below what was chosen: `SmolLM2/config.json`. */
export interface ChosenFile {
  /** With its folders. */
  readonly path: string;
  /** Its bytes stay where they are until they are needed. */
  readonly file: File;
}

/** What each of a model's weights is stored as, by its name. */
export type StoredWeights = Readonly<Record<string, StoredElement>>;

/** What there is to know of a model before its weights are read. */
export interface ModelInfo {
  /** For the person: of its folder, or of the run. */
  readonly name: string;
  /** Of its config.json. */
  readonly config: ModelConfig;
  /** Their number, not bytes. */
  readonly parameters: number;
  /** Of its weights' files. */
  readonly bytes: number;
  /** How its files hold its weights: a frozen one lies in memory so. */
  readonly stored: StoredWeights;
  /** Tokens of its own tokenizer; absent: its tokens are bytes. */
  readonly tokens?: number;
  /** How many classes it tells apart; absent: it does not yet. */
  readonly classes?: number;
  /** What is done with images before it sees them. */
  readonly images?: ImagePreparation;
  /** Whether it brings a chat template. */
  readonly chats: boolean;
  /** Rates of dropout that its config.json has, and training here does not. @default none */
  readonly dropout?: readonly string[];
  /** An adapter that came with it. */
  readonly adapter?: LoraSettings;
  /** `settings.from` of a run that starts from it; absent: it is not kept here yet. */
  readonly from?: string;
}

/** What labelled data would make of a model. */
export interface ClassesFound {
  /** How many are told apart. */
  readonly classes: number;
  /** For the person: as many as a line holds. */
  readonly names: string;
  /** As they were given, with the head that the data needs. */
  readonly settings: RunSettings;
}

/** How records are learned from, as the flags of `holdfast train` have it. */
export interface RecordChoice {
  /** Of conversations, the answers alone. @default 'answers' */
  readonly trainOn?: TrainOn;
  /** Whether rows hold several records, which do not see each other. @default 'yes' */
  readonly pack?: 'yes' | 'no';
  /** A template that comes along, in place of the model's. @default the model's */
  readonly template?: 'chatml';
}

/** What a new run is made of. */
export interface NewRun {
  /** What it computes: see `defaultSettings`. */
  settings: RunSettings;
  /** @default the model's family and shape */
  name?: string;
  /** Budgets, which change no result. @default no limits */
  memory?: MemorySettings;
  /** @default the example text */
  text?: TrainingText;
  /**
   * Images instead, for a model that looks at them: PNG files below a folder for each class (`imageFile` makes one of a canvas's
   * pixels), or the files of MNIST or CIFAR. They are kept with the run, which trains a new head where the model tells other classes.
   */
  images?: readonly ChosenFile[];
  /** A tokenizer.json and what lies beside it, kept with the run; `settings.config` has room for its tokens. @default the weights’ own, else bytes */
  tokenizer?: readonly File[];
  /** How the text is learned from where it holds JSON records: see `recordsIn`. @default it is text */
  records?: RecordChoice;
}

/**
 * What a run was last known to do. 'imported': it has not trained here. 'damaged': its record is not what a page writes;
 * `error` says why. It can be exported and removed.
 */
export type RunStatus = 'running' | 'paused' | 'stopped' | 'finished' | 'failed' | 'imported' | 'damaged';

/** A run's entry in the list: see record.ts for how it is read. */
export interface RunRecord {
  /** Stays the same whatever its name. */
  readonly id: string;
  /** For the person. */
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  /** Absent for weights that were imported without a training state. */
  readonly settings?: RunSettings;
  /** Its budgets. */
  readonly memory: MemorySettings;
  /** As it was last written: a run whose tab was closed still says 'running'; then `open` is 'no'. */
  readonly status: RunStatus;
  /** Steps that the latest checkpoint has seen; 0: there is none. */
  readonly savedStep: number;
  /** The last that is known, of a training step; NaN: that step was skipped. */
  readonly loss?: number;
  /** Why it failed, or what is damaged. */
  readonly error?: string;
  /** The run whose checkpoint it began as. */
  readonly forkedFrom?: { readonly id: string; readonly name: string; readonly step: number };
}

/** A run that goes on from another's latest checkpoint, with the same history until there. */
export interface Fork {
  /** @default the other's, with "fork" behind it */
  name?: string;
  /** What is other from here on; the model's shape and the text stay. */
  changes?: Partial<
    Pick<
      RunSettings,
      | 'steps'
      | 'lr'
      | 'minLr'
      | 'schedule'
      | 'warmup'
      | 'clip'
      | 'weightDecay'
      | 'evalEvery'
      | 'sampleEvery'
      | 'saveEvery'
    >
  >;
  /** @default the other's */
  memory?: MemorySettings;
}

/** A run as the list shows it. */
export interface RunInfo extends RunRecord {
  /** Whether it is open, and where. */
  readonly open: 'here' | 'in another tab' | 'no';
}

/** Where every chunk was at every moment of one step, from what the executor recorded while it ran. */
export interface StepPicture {
  /** The id of the run. */
  readonly run: string;
  /** From 0. */
  readonly step: number;
  /** From the first moment's encoding to the last byte's arrival. */
  readonly milliseconds: number;
  /** Where the chunks were. */
  readonly history: ChunkHistory;
  /** That this step set on their way, padding and copies for recovery included. */
  readonly bytes: LinkBytes;
  /** Of activations that this step moves below the GPU, in bytes. */
  readonly offloaded: number;
  /** Of those that it brings back: twice as many where its backward pass runs twice. */
  readonly fetched: number;
  /** That the plan moves in a step. */
  readonly planned: { readonly h2d: number; readonly d2h: number };
  /** Absent without a budget, and where its linear program is too large to be solved on the way. */
  readonly bound?: MemoryBound;
  /** Bytes of GPU memory; absent: no limit. */
  readonly budget?: number;
  /** What the plan was made by. */
  readonly policy: PolicyName;
}

/** A training step is done. */
export interface StepEvent {
  /** Tells events apart. */
  readonly type: 'step';
  /** From 0. */
  readonly step: number;
  /** Mean over the step's targets, before its update; nats per token. */
  readonly loss: number;
  /** The learning rate of the step. */
  readonly lr: number;
  /** Global L2 norm before clipping. */
  readonly gradNorm: number;
  /** Nothing was changed: the loss or the norm is not finite. */
  readonly skipped: boolean;
  /** Of the last steps, the mean. */
  readonly tokensPerSecond: number;
}

/** In the order in which it happened. `run` is the id. 'stopped': while its data was read, with nothing new to save. */
export type RunEvent = { readonly run: string } & (
  | { readonly type: 'preparing' }
  /** So many bytes of the text are tokens. */
  | { readonly type: 'tokenizing'; readonly done: number; readonly total: number }
  | {
      readonly type: 'ready';
      readonly firstStep: number;
      readonly steps: number;
      readonly parameters: number;
      readonly corpusBytes: number;
      readonly dispatches: number;
    }
  | StepEvent
  /** `accuracy`: of a classifier, the share that it tells right; of a generated task, of unseen problems that it solves. */
  | { readonly type: 'validation'; readonly step: number; readonly loss: number; readonly accuracy?: number }
  | { readonly type: 'sample'; readonly step: number; readonly text: string }
  | { readonly type: 'saved'; readonly step: number }
  /** At most one a batch of events. */
  | { readonly type: 'memory'; readonly report: MemoryReport; readonly gpuBytes: number; readonly gpuPeak: number }
  | { readonly type: 'paused'; readonly step: number }
  | { readonly type: 'going on' }
  /** The GPU device was lost; the run goes on with another, from the last step or from the last checkpoint. */
  | { readonly type: 'recovered'; readonly from: 'step' | 'checkpoint'; readonly reason: string }
  | { readonly type: 'ended'; readonly summary: RunSummary }
  | { readonly type: 'stopped' }
  | { readonly type: 'failed'; readonly message: string }
);

/** Resolves when the page has room for more. */
export type Listener = (events: RunEvent[]) => Promise<void> | void;

/** Losses, validations and samples of a run, step by step. */
export type History = SavedState['history'];

/** A token that may come next. */
export interface Candidate {
  /** Its id. */
  readonly token: number;
  /** As text; what is not printable, as hexadecimal. */
  readonly text: string;
  /** 0 to 1. */
  readonly probability: number;
}

/** What is exported for other programs. */
export type ModelExport =
  /** What a low-rank update trained, in PEFT's layout: a zip. */
  | { readonly form: 'adapter' }
  /** The model as Hugging Face's libraries load it, an adapter made a part of it: a zip. `dtype`: f32 where it says nothing. */
  | { readonly form: 'model'; readonly dtype?: SavedDtype }
  /** The model, an adapter made a part of it, as llama.cpp loads it: one file. `type`: of its matrices, F16 where it says nothing. */
  | { readonly form: 'gguf'; readonly type?: TensorType };

/** How a run can be asked: written with, or for classes. */
export interface Voice {
  /** Whether its model goes on with a text: then `sample` and `next` answer. */
  readonly writes: boolean;
  /** Whether it has a chat template: then `chat` answers. */
  readonly chats: boolean;
  /** Whether it has an adapter, which can be left out. */
  readonly adapter: boolean;
  /** What its model tells the classes of, by `classify`; absent: it tells none. */
  readonly tells?: 'images' | 'texts';
  /** Of texts: whether it learned pairs of them; absent where what it learned from is not here to say. */
  readonly pairs?: boolean;
}

/** How much is written, and how. */
export interface WritingRequest {
  /** 'none': the model without the adapter that it has. @default with it */
  readonly adapter?: 'none';
  /** @default 160 */
  readonly tokens?: number;
  /** @default 0.7 */
  readonly temperature?: number;
  /** @default 0.95 */
  readonly topP?: number;
  /** For the draws; the same seed writes the same. @default 1 */
  readonly seed?: number;
}

/** Gets a text piece by piece, as it is written; where it returns false, the text ends, with the piece under way at the latest. */
export type TextListener = (text: string) => unknown;

/** Text to write. */
export interface SampleRequest extends WritingRequest {
  /** What the text continues. */
  readonly prompt: string;
}

/** A picture to look at: pixels, such as `context.getImageData` gives of a canvas, or a PNG file. What is seen through is left out. */
export type Picture = Pixels | Blob;

/** Two texts of which a model tells one class, in the order of its data. */
export type TextPair = readonly [first: string, second: string];

/** A class that a picture, a text or a pair of texts may be of. */
export interface ClassGuess extends Pick<Candidate, 'probability'> {
  /** As the model calls it. */
  readonly name: string;
}

/** What was said by one side. */
export interface ChatMessage {
  /** 'system', 'user' or 'assistant'. */
  readonly role: string;
  /** What was said. */
  readonly content: string;
}

/** An answer to write. */
export interface ChatRequest extends WritingRequest {
  /** So far; the last is the question. */
  readonly messages: readonly ChatMessage[];
}
