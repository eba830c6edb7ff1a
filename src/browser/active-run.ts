// A run that is open: training, paused, or on its way to the end. Turns what the training loop reports into events
// and keeps its record.

import type { ChatTemplate } from '../data/records/chat-template.ts';
import { checkpointsOf } from '../formats/checkpoint.ts';
import type { Device } from '../gpu/device.ts';
import { writeReport } from '../report/run-report.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { trainRun } from '../train/run/run.ts';
import type { ReadyRun, RunEvents } from '../train/run/run-events.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import type { SavedState } from '../train/run/saved-state.ts';
import { deferred } from '../util/deferred.ts';
import { HoldfastError, messageOf, Stopped } from '../util/errors.ts';
import { Gate } from './gate.ts';
import { memoryOptions } from './memory-options.ts';
import { Pictures } from './pictures.ts';
import type { MemorySettings, RunEvent, RunRecord, StepPicture } from './protocol.ts';
import type { Runs } from './runs.ts';
import { Writer } from './writer.ts';

const KEYS = ['gpu', 'host', 'disk', 'recovery', 'policy'] as const satisfies (keyof MemorySettings)[];

type EventBody = RunEvent extends infer E ? (E extends RunEvent ? Omit<E, 'run'> : never) : never;

export interface Dependencies {
  readonly host: BrowserHost;
  readonly runs: Runs;
  readonly device: () => Promise<Device>;
  readonly emit: (event: RunEvent) => void;
  /** How its conversations are written down, where it has a way. */
  readonly template: () => Promise<ChatTemplate | undefined>;
}

export class ActiveRun {
  readonly id: string;
  readonly gate = new Gate();
  readonly settings: RunSettings;
  #memory: MemorySettings;
  readonly #dependencies: Dependencies;
  readonly #abort = new AbortController();
  readonly #ended = deferred<void>();
  readonly #pictures: Pictures;
  #ready: ReadyRun | undefined;
  #recoveries = 0;
  /** Percent in the last event of it. */
  #tokenized = -1;
  #last: EventBody | undefined;
  /** Changes of the record, one after the other. Never rejects. */
  #recorded: Promise<void> = Promise.resolve();

  constructor(record: RunRecord, dependencies: Dependencies) {
    this.id = record.id;
    this.settings = record.settings as RunSettings;
    this.#dependencies = dependencies;
    this.#memory = record.memory;
    this.#pictures = new Pictures(this.id, () => (this.#ready as ReadyRun).trainer.session);
  }

  get paused(): boolean {
    return this.gate.paused;
  }

  /** Resolves when the run is over and its lock is free. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Trains to the end, or until it is stopped. Never rejects: what went wrong is an event and in the record. */
  async run(): Promise<void> {
    try {
      const summary = await this.#train();
      this.#record({
        status: summary.interrupted ? 'stopped' : 'finished',
        savedStep: summary.steps,
        loss: summary.finalLoss,
      });
      this.#last = { type: 'ended', summary };
    } catch (error) {
      this.#last = this.#endedBy(error);
    }
    this.gate.end();
    this.#pictures.end();
    await this.#recorded;
  }

  /** Tells the page; called when others may open the run again. */
  announceEnd(): void {
    if (this.#last) this.#emit(this.#last);
    this.#ended.resolve();
  }

  async pause(): Promise<void> {
    this.gate.pause();
    await this.saved(async () => {
      await this.#record({ status: 'paused' });
      this.#emit({ type: 'paused', step: this.#ready?.trainer.step ?? 0 });
    });
  }

  async unpause(): Promise<void> {
    this.gate.unpause();
    this.#emit({ type: 'going on' });
    await this.#record({ status: 'running' });
  }

  step(): Promise<void> {
    return this.gate.step();
  }

  /** Of the next step that is recorded whole; undefined when the run ends before. */
  recordStep(): Promise<StepPicture | undefined> {
    return this.#pictures.next();
  }

  /** What the run would save now, weights apart. */
  state(): Promise<SavedState> {
    return this.gate.do(() => (this.#ready as ReadyRun).state());
  }

  /**
   * Takes other budgets between two steps, if only that of the GPU is another and its chunks fit into it. False: that
   * takes another run of the same.
   */
  setMemory(memory: MemorySettings): Promise<boolean> {
    return this.gate.do(async () => {
      const { trainer } = this.#ready as ReadyRun;
      const { gpu } = memory;
      const others = { ...memory, gpu: this.#memory.gpu };
      const only = KEYS.every((key) => others[key] === this.#memory[key]);
      if (!only || gpu === undefined || !trainer.fits(gpu)) return false;
      try {
        await trainer.setBudget(gpu);
      } finally {
        // Where the GPU has not the memory it may be another one, also than before.
        const { gpu: taken } = trainer.session.memory;
        if (typeof taken === 'number') this.#memory = { ...memory, gpu: taken };
        this.#tellMemory();
        await this.#record({ memory: this.#memory });
      }
      return true;
    });
  }

  stop(): void {
    this.#abort.abort();
    this.gate.end();
  }

  /** Runs `work` between two steps, which lie in a checkpoint. */
  saved<T>(work: () => Promise<T>): Promise<T> {
    return this.gate.do(async () => {
      await this.#ready?.save();
      await this.#recorded;
      return work();
    });
  }

  /** Lets `work` write text between two steps. */
  write<T>(work: (writer: Writer) => Promise<T>): Promise<T> {
    return this.gate.do(async () => {
      const { trainer, tokenizer } = this.#ready as ReadyRun;
      const { generator } = trainer;
      if (!generator) throw new HoldfastError(`run ${this.id} sets no memory aside for text (sampleTokens is 0)`);
      return work(new Writer(generator, tokenizer, await this.#dependencies.template()));
    });
  }

  /** A run that is stopped before it is ready has nothing new to save. */
  #endedBy(error: unknown): EventBody {
    if (error instanceof Stopped) {
      this.#record({ status: 'stopped' });
      return { type: 'stopped' };
    }
    const message = messageOf(error);
    this.#record({ status: 'failed', error: message });
    return { type: 'failed', message };
  }

  async #train() {
    const { host, runs } = this.#dependencies;
    const folder = runs.folder(this.id);
    this.#emit({ type: 'preparing' });
    const resume = (await checkpointsOf(host.files, folder)).length > 0;
    const device = await this.#dependencies.device();
    device.allocator.restartPeak();
    const budgets = () => memoryOptions(host, this.#memory);
    return trainRun(host, device, this.settings, folder, {
      resume,
      signal: this.#abort.signal,
      events: { ...this.#events, over: (summary, state) => writeReport(host, folder, summary, state) },
      // As they are when a lost device makes the run begin anew.
      get memory() {
        return budgets();
      },
      intermission: this.gate,
      observer: this.#pictures,
    });
  }

  readonly #events: RunEvents = {
    tokenizing: (done, total) => this.#tellProgress(done, total),
    ready: (ready) => {
      this.#ready = ready;
      this.#recoveries = ready.trainer.recoveries;
      this.#emit({
        type: 'ready',
        firstStep: ready.firstStep,
        steps: this.settings.steps,
        parameters: ready.model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
        corpusBytes: ready.corpus.bytes,
        dispatches: ready.trainer.dispatches,
      });
    },
    step: (metrics) => {
      const { trainer } = this.#ready as ReadyRun;
      if (trainer.recoveries > this.#recoveries) {
        this.#recoveries = trainer.recoveries;
        this.#emit({ type: 'recovered', from: 'step', reason: 'the GPU device was lost' });
      }
      this.#emit({ type: 'step', ...metrics });
      this.#tellMemory();
    },
    validation: (step, loss, accuracy) =>
      this.#emit({ type: 'validation', step, loss, ...(accuracy !== undefined && { accuracy }) }),
    lost: (reason) => this.#emit({ type: 'recovered', from: 'checkpoint', reason }),
    sample: (step, text) => this.#emit({ type: 'sample', step, text }),
    saved: (path) => {
      const step = Number(/\d+$/.exec(path)?.[0]);
      this.#record({ savedStep: step });
      this.#emit({ type: 'saved', step });
    },
  };

  /** A hundred times at most: the page has more to do. */
  #tellProgress(done: number, total: number): void {
    const percent = Math.floor((100 * done) / total);
    if (percent === this.#tokenized) return;
    this.#tokenized = percent;
    this.#emit({ type: 'tokenizing', done, total });
  }

  #tellMemory(): void {
    const { trainer } = this.#ready as ReadyRun;
    const { bytes, peak } = trainer.device.allocator;
    this.#emit({ type: 'memory', report: trainer.session.report(), gpuBytes: bytes, gpuPeak: peak });
  }

  #emit(event: EventBody): void {
    this.#dependencies.emit({ run: this.id, ...event } as RunEvent);
  }

  /** Resolves when it is written, or cannot be: a run goes on without its record. */
  #record(changes: Partial<RunRecord>): Promise<void> {
    this.#recorded = this.#recorded
      .then(() => this.#dependencies.runs.change(this.id, changes))
      .then(
        () => {},
        () => {},
      );
    return this.#recorded;
  }
}
