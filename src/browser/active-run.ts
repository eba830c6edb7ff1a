// A run that is open: training, paused, or on its way to the end. Turns what the training loop reports into events
// and keeps its record.

import type { MemoryOptions } from '../engine/session.ts';
import { checkpointsOf } from '../formats/checkpoint.ts';
import type { Device } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { type ReadyRun, type RunEvents, type RunSettings, trainRun } from '../train/run.ts';
import { deferred } from '../util/deferred.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { Gate } from './gate.ts';
import type { MemorySettings, RunEvent, RunRecord } from './protocol.ts';
import type { Runs } from './runs.ts';
import { Writer } from './writer.ts';

type EventBody = RunEvent extends infer E ? (E extends RunEvent ? Omit<E, 'run'> : never) : never;

export interface Surroundings {
  readonly host: BrowserHost;
  readonly runs: Runs;
  readonly device: () => Promise<Device>;
  readonly emit: (event: RunEvent) => void;
}

export class ActiveRun {
  readonly id: string;
  readonly gate = new Gate();
  readonly #settings: RunSettings;
  readonly #memory: MemoryOptions;
  readonly #around: Surroundings;
  readonly #abort = new AbortController();
  readonly #ended = deferred<void>();
  #ready: ReadyRun | undefined;
  #recoveries = 0;
  #last: EventBody | undefined;
  /** Changes of the record, one after the other. */
  #recorded: Promise<unknown> = Promise.resolve();

  constructor(record: RunRecord, around: Surroundings) {
    this.id = record.id;
    this.#settings = record.settings as RunSettings;
    this.#around = around;
    this.#memory = memoryOptions(around.host, record.memory);
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
      const message = messageOf(error);
      this.#record({ status: 'failed', error: message });
      this.#last = { type: 'failed', message };
    }
    this.gate.end();
    await this.#recorded.catch(() => {});
  }

  /** Tells the page; called when others may open the run again. */
  announceEnd(): void {
    if (this.#last) this.#emit(this.#last);
    this.#ended.resolve();
  }

  async pause(): Promise<void> {
    this.gate.pause();
    await this.saved(async () => {
      this.#record({ status: 'paused' });
      this.#emit({ type: 'paused', step: this.#ready?.trainer.step ?? 0 });
    });
  }

  goOn(): void {
    this.gate.goOn();
    this.#record({ status: 'running' });
    this.#emit({ type: 'going on' });
  }

  step(): Promise<void> {
    return this.gate.step();
  }

  stop(): void {
    this.#abort.abort();
    this.gate.end();
  }

  /** Runs `work` between two steps, which lie in a checkpoint. */
  saved<T>(work: () => Promise<T>): Promise<T> {
    return this.gate.do(async () => {
      await this.#ready?.save();
      return work();
    });
  }

  /** Lets `work` write text between two steps. */
  write<T>(work: (writer: Writer) => Promise<T>): Promise<T> {
    return this.gate.do(async () => {
      const generator = this.#ready?.trainer.generator;
      if (!generator) throw new HoldfastError(`run ${this.id} sets no memory aside for text (sampleTokens is 0)`);
      return work(new Writer(generator));
    });
  }

  async #train() {
    const { host, runs, device } = this.#around;
    const folder = runs.folder(this.id);
    this.#emit({ type: 'preparing' });
    return trainRun(host, await device(), this.#settings, folder, {
      resume: (await checkpointsOf(host.files, folder)).length > 0,
      signal: this.#abort.signal,
      events: this.#events,
      memory: this.#memory,
      intermission: this.gate,
    });
  }

  readonly #events: RunEvents = {
    ready: (ready) => {
      this.#ready = ready;
      this.#recoveries = ready.trainer.recoveries;
      this.#emit({
        type: 'ready',
        firstStep: ready.firstStep,
        steps: this.#settings.steps,
        parameters: ready.model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
        corpusBytes: ready.corpus.bytes.length,
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
      const { bytes, peak } = trainer.device.allocator;
      this.#emit({ type: 'memory', report: trainer.session.report(), gpuBytes: bytes, gpuPeak: peak });
    },
    validation: (step, loss) => this.#emit({ type: 'validation', step, loss }),
    lost: (reason) => this.#emit({ type: 'recovered', from: 'checkpoint', reason }),
    sample: (step, text) => this.#emit({ type: 'sample', step, text }),
    saved: (path) => {
      const step = Number(/\d+$/.exec(path)?.[0]);
      this.#record({ savedStep: step });
      this.#emit({ type: 'saved', step });
    },
  };

  #emit(event: EventBody): void {
    this.#around.emit({ run: this.id, ...event } as RunEvent);
  }

  #record(changes: Partial<RunRecord>): void {
    this.#recorded = this.#recorded.catch(() => {}).then(() => this.#around.runs.change(this.id, changes));
    this.#recorded.catch(() => {});
  }
}

function memoryOptions(
  host: BrowserHost,
  { gpu, host: hostLimit, disk, recovery, policy }: MemorySettings,
): MemoryOptions {
  return {
    ...(gpu === undefined ? {} : { gpu }),
    ...(hostLimit === undefined ? {} : { host: hostLimit }),
    ...(disk === undefined
      ? {}
      : { disk: { limit: disk, open: (bytes: number) => host.openBlockFile('tiers', bytes) } }),
    ...(recovery === undefined ? {} : { recovery }),
    ...(policy === undefined ? {} : { policy }),
  };
}
