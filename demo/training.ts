// `Training`: the run that is open in this tab: what it is doing, and what a person can tell it. Turns the worker's
// events into a phase and into curves; shows nothing.
//
// Invariant: the phase is that of the worker's last event; what is under way has a phase of its own.

import type {
  Holdfast,
  MemorySettings,
  NewRun,
  ResumeOptions,
  RunEvent,
  RunInfo,
  StepPicture,
} from '../src/browser/index.ts';
import { RunCurves } from './curve-data.ts';

export type TrainingPhase = 'none' | 'preparing' | 'training' | 'pausing' | 'paused' | 'moving' | 'stopping';

export class Training {
  readonly #trainer: Holdfast['trainer'];
  readonly #changed: () => void;
  phase: TrainingPhase = 'none';
  /** The one that is open, or was last. */
  run: RunInfo | undefined;
  curves = new RunCurves();
  /** Tokens of a step. */
  tokensPerStep = 0;
  memory: Extract<RunEvent, { type: 'memory' }> | undefined;
  /** What a run is again once its budgets are changed. */
  #pausedBefore = false;
  /** Changes of the budgets that are under way. */
  #moves = 0;
  /** Counts the runs that were asked for: of several, the last is shown. */
  #asked = 0;
  /** Resolves when the run is open in the worker: before, there is none to send anything to. */
  #known: Promise<unknown> = Promise.resolve();
  #isKnown = true;

  constructor(trainer: Holdfast['trainer'], changed: () => void) {
    this.#trainer = trainer;
    this.#changed = changed;
  }

  get open(): boolean {
    return this.phase !== 'none';
  }

  /** Whether it can be stopped: as soon as the worker has it, which may be minutes before its first step. */
  get stoppable(): boolean {
    return this.phase === 'training' || this.phase === 'paused' || (this.phase === 'preparing' && this.#isKnown);
  }

  get steps(): number {
    return this.run?.settings?.steps ?? 0;
  }

  async start(run: NewRun): Promise<void> {
    await this.#begin(undefined, new RunCurves(), () => this.#trainer.start(run));
  }

  /** Goes on with a run, from its latest checkpoint; `data`: what it learns from, where that is not here. */
  async resume(run: RunInfo, data: Pick<ResumeOptions, 'text' | 'images'> = {}): Promise<void> {
    const curves = RunCurves.of(await this.#trainer.history(run.id));
    await this.#begin(run, curves, () => this.#trainer.resume(run.id, data));
  }

  /** The next step, recorded; undefined when the run ends before. */
  picture(): Promise<StepPicture | undefined> {
    return this.#trainer.recordStep();
  }

  /** Looks at a run without training it. */
  async show(run: RunInfo): Promise<void> {
    const asked = ++this.#asked;
    const curves = RunCurves.of(await this.#trainer.history(run.id));
    if (this.open || asked !== this.#asked) return;
    this.run = run;
    this.curves = curves;
    this.memory = undefined;
    this.#changed();
  }

  /** The run that is shown is there no more. */
  forget(): void {
    if (this.open) return;
    this.#asked++;
    this.run = undefined;
    this.curves = new RunCurves();
    this.memory = undefined;
    this.#changed();
  }

  /** Errors: HoldfastError where it cannot be saved; it stands still all the same. */
  async pause(): Promise<void> {
    this.#enter('pausing');
    try {
      await this.#trainer.pause();
    } catch (error) {
      if (this.phase === 'pausing') this.#enter('paused');
      throw error;
    }
  }

  async unpause(): Promise<void> {
    await this.#trainer.unpause();
  }

  async step(): Promise<void> {
    await this.#trainer.step();
  }

  async stop(): Promise<void> {
    this.#enter('stopping');
    await this.#trainer.stop();
  }

  /** Errors: HoldfastError where it does not fit, and the run goes on as it was; or where the run has ended meanwhile. */
  async setMemory(memory: MemorySettings): Promise<void> {
    await this.#known;
    if (this.phase !== 'moving') this.#pausedBefore = this.phase === 'paused';
    this.#moves++;
    this.#enter('moving');
    try {
      await this.#trainer.setMemory(memory);
    } finally {
      this.#moves--;
      await this.refresh();
      if (this.phase === 'moving' && this.#moves === 0)
        this.#enter(this.run?.open === 'here' ? this.#underWay : 'none');
    }
  }

  get #underWay(): TrainingPhase {
    return this.#pausedBefore ? 'paused' : 'training';
  }

  /** Reads the run's record again. */
  async refresh(): Promise<void> {
    const { run } = this;
    const found = (await this.#trainer.runs()).find(({ id }) => id === run?.id);
    if (found) this.run = found;
  }

  take(event: RunEvent): void {
    switch (event.type) {
      case 'ready':
        // While it is about to be opened anew, with other budgets, nothing else can be asked of it.
        if (this.phase !== 'stopping' && this.#moves === 0) this.#enter(this.#underWay);
        break;
      case 'step':
        this.curves.addStep(event);
        break;
      case 'validation':
        this.curves.addValidation(event);
        break;
      case 'sample':
        this.curves.addSample(event);
        break;
      case 'memory':
        this.memory = event;
        break;
      case 'paused':
        this.#pausedBefore = true;
        if (this.phase !== 'moving') this.#enter('paused');
        break;
      case 'going on':
        this.#pausedBefore = false;
        if (this.phase !== 'moving') this.#enter('training');
        break;
      case 'ended':
        // To be opened again with other budgets, unless it came to its end.
        if (this.phase !== 'moving' || !event.summary.interrupted) this.#enter('none');
        break;
      case 'failed':
      case 'stopped':
        this.#enter('none');
        break;
    }
  }

  /** `run`: undefined of one that is new; until the worker has it, none is shown and not the one before. */
  async #begin(run: RunInfo | undefined, curves: RunCurves, start: () => Promise<RunInfo>): Promise<void> {
    this.#asked++;
    const before = { phase: this.phase, run: this.run, curves: this.curves };
    this.run = run;
    this.curves = curves;
    this.memory = undefined;
    this.#pausedBefore = false;
    this.#isKnown = false;
    this.#enter('preparing');
    try {
      const started = start();
      this.#known = started.catch(() => {});
      this.run = await started;
      this.#isKnown = true;
    } catch (error) {
      Object.assign(this, before);
      this.#changed();
      throw error;
    }
    const { batch, seq, accumulate } = this.run.settings ?? { batch: 0, seq: 0, accumulate: 0 };
    this.tokensPerStep = batch * seq * accumulate;
    this.#changed();
  }

  #enter(phase: TrainingPhase): void {
    this.phase = phase;
    this.#changed();
  }
}
