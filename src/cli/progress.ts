// The progress display of a run: on a terminal one line that is rewritten, piped one plain line now and then, with
// --json one object a line and nothing else on standard output.

import { parameterCount, trainedCount } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import { microBatchesOf, rankText } from '../train/run/ranks.ts';
import type { RunEvents, RunSummary } from '../train/run/run-events.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import { counted } from '../util/counted.ts';
import { printable } from '../util/printable.ts';
import { describeSplit } from './optimizer-split.ts';

/** Milliseconds between plain lines when the output is piped. */
const PLAIN_EVERY = 5000;
/** Milliseconds between rewrites of the live line. */
const LIVE_EVERY = 100;
/** Weight of the newest step in the smoothed loss. */
const SMOOTHING = 0.1;

export class Progress {
  readonly events: RunEvents;
  /** Of the run: its steps may be known only after its text was read. */
  settings: RunSettings;
  readonly #host: Host;
  readonly #json: boolean;
  #shown = Number.NEGATIVE_INFINITY;
  #tokenized = Number.NEGATIVE_INFINITY;
  #live = false;
  #loss: number | undefined;
  /** Why no step is taken. */
  #over: string | undefined;

  constructor(host: Host, settings: RunSettings, json: boolean) {
    this.#host = host;
    this.settings = settings;
    this.#json = json;
    this.events = json ? this.#jsonEvents() : this.#textEvents();
  }

  /** A line beside the progress: to standard error with --json. */
  note(text: string): void {
    if (this.#json) this.#host.terminal.warn(`${text}\n`);
    else this.#line(text);
  }

  /** Says why no step is taken, in place of what is trained; undefined: some are. */
  sayOver(why: string | undefined): void {
    if (this.#json && why !== undefined) this.note(why);
    this.#over = why;
  }

  finish(summary: RunSummary & { readonly timeline?: string }, lines: readonly string[]): void {
    if (this.#json) {
      // The chunk map is for the report: megabytes of it.
      const { map: _, ...figures } = summary.memory ?? {};
      const plain = summary.memory ? { ...summary, memory: figures } : summary;
      this.#host.terminal.write(`${JSON.stringify({ summary: plain })}\n`);
    } else for (const line of ['', ...lines]) this.#line(line);
  }

  #jsonEvents(): RunEvents {
    return {
      step: ({ step, loss, lr, gradNorm, tokensPerSecond, skipped }) => {
        const record = { step, loss, lr, gradNorm, tokensPerSecond, ...(skipped ? { skipped } : {}) };
        this.#host.terminal.write(`${JSON.stringify(record)}\n`);
      },
      validation: (step, loss, accuracy) => {
        const found = { step, loss, ...(accuracy !== undefined && { accuracy }) };
        this.#host.terminal.write(`${JSON.stringify({ validation: found })}\n`);
      },
    };
  }

  #textEvents(): RunEvents {
    return {
      tokenizing: (done, total) => {
        const now = performance.now();
        const every = this.#host.terminal.interactive ? LIVE_EVERY : PLAIN_EVERY;
        if (now - this.#tokenized < every) return;
        this.#tokenized = now;
        const text = `tokenizing the text: ${Math.floor((100 * done) / total)} %`;
        if (this.#host.terminal.interactive) this.#rewrite(text);
        else this.#line(text);
      },
      ready: ({ model, corpus, tokenizer, notes, trainer, firstStep }) => {
        const { config, shape } = model;
        const { batch, seq, steps, dtype, optimizerState, activationDtype } = this.settings;
        const size = `${counted(shape.layers, 'layer')}, width ${shape.width}, ${counted(shape.heads, 'head')}, context ${seq}`;
        const count = parameterCount(model).toLocaleString('en');
        const trained = model.adapters ? `, ${trainedCount(model).toLocaleString('en')} of them train` : '';
        const computed = dtype !== undefined && dtype !== 'f32' ? `, computed with in ${dtype}` : '';
        const moments = optimizerState === 'bf16' ? ', moments in bf16' : '';
        const kept = activationDtype && activationDtype !== 'f32' ? `, activations in ${activationDtype}` : '';
        this.#line(`${config.model_type}: ${count} parameters${trained} (${size})${computed}${moments}${kept}`);
        const skipped = corpus.skipped > 0 ? `, ${corpus.skipped} skipped (binary, or no files)` : '';
        const files = counted(corpus.files, 'file');
        if (notes.length === 0) this.#line(`corpus: ${corpus.bytes.toLocaleString('en')} bytes in ${files}${skipped}`);
        for (const note of notes) this.#line(`data: ${note}`);
        const { identity, vocabulary } = tokenizer;
        if (identity.kind !== 'byte')
          this.#line(`tokenizer: ${vocabulary.toLocaleString('en')} tokens, ${identity.path}`);
        this.#line(`adapter: ${trainer.device.adapter.name}, ${trainer.dispatches} dispatches a step`);
        const { optimizerSplit } = trainer.options;
        if (optimizerSplit !== undefined) this.#line(describeSplit(model, optimizerSplit));
        const tokens = batch * seq * microBatchesOf(this.settings);
        const shared = trainer.ranks ? ` on ${rankText(trainer.ranks)}` : '';
        const from = firstStep > 0 ? `from step ${firstStep} ` : '';
        this.#line(`${this.#over ?? `training ${from}to step ${steps}, ${tokens} tokens a step${shared}`}\n`);
      },
      step: (metrics) => {
        const finite = Number.isFinite(metrics.loss);
        if (finite) this.#loss = smooth(this.#loss, metrics.loss);
        if (metrics.skipped) this.#line(`step ${metrics.step + 1}: loss or gradient is not finite, skipped`);
        const now = performance.now();
        const every = this.#host.terminal.interactive ? LIVE_EVERY : PLAIN_EVERY;
        if (metrics.step > 0 && now - this.#shown < every) return;
        this.#shown = now;
        const { steps, batch, seq } = this.settings;
        const left =
          ((steps - metrics.step - 1) * batch * seq * microBatchesOf(this.settings)) / metrics.tokensPerSecond;
        const text = [
          `step ${metrics.step + 1}/${steps}`,
          `loss ${(this.#loss ?? metrics.loss).toFixed(4)}`,
          `${Math.round(metrics.tokensPerSecond).toLocaleString('en')} tokens/s`,
          `${duration(left)} left`,
        ].join('  ');
        if (this.#host.terminal.interactive) this.#rewrite(text);
        else this.#line(text);
      },
      lost: (why) => this.#line(`${why}; going back to the last checkpoint`),
      validation: (step, loss, accuracy) => {
        const told = accuracy === undefined ? '' : `, ${accuracyText(accuracy, this.settings)}`;
        this.#line(`step ${step}: validation loss ${loss.toFixed(4)}${told}`);
      },
      sample: (step, text) => {
        this.#line(`step ${step} writes:`);
        for (const line of printable(text).replace(/\n+$/, '').split('\n')) this.#line(`  | ${line}`);
      },
    };
  }

  #line(text: string): void {
    if (this.#live) this.#host.terminal.write('\r\x1b[K');
    this.#live = false;
    this.#host.terminal.write(`${text}\n`);
  }

  #rewrite(text: string): void {
    this.#live = true;
    this.#host.terminal.write(`\r\x1b[K${text.slice(0, this.#host.terminal.columns - 1)}`);
  }
}

/** The share of problems that a task's model solves, or of labels that a classifier tells right. */
export const accuracyText = (accuracy: number, { task }: RunSettings): string =>
  task ? `solves ${(100 * accuracy).toFixed(1)} % of unseen problems` : `accuracy ${(100 * accuracy).toFixed(1)} %`;

function smooth(old: number | undefined, value: number): number {
  return old === undefined ? value : old + SMOOTHING * (value - old);
}

function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (h > 0) return `${h} h ${m} min`;
  return m > 0 ? `${m} min ${s} s` : `${s} s`;
}
