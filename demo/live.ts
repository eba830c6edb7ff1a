// `Live`: the figures of the moment: step, losses, speed, memory, how far and how long. Written once a frame at most.

import { FAMILIES, formatBytes } from '../src/browser/index.ts';
import { longDuration, plain, short, whole } from './figures.ts';
import { byId, setText } from './page.ts';
import type { Training } from './training.ts';

/** Steps whose speed is averaged. */
const RECENT = 20;
const TITLE = document.title;

export class Live {
  readonly #progress = byId('progress', HTMLProgressElement);
  #frame = 0;
  #training: Training | undefined;

  show(training: Training): void {
    this.#training = training;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#training) this.#write(this.#training);
    });
  }

  #write(training: Training): void {
    const { curves, steps, memory, run } = training;
    const done = curves.lastStep === undefined ? (run?.savedStep ?? 0) : curves.lastStep + 1;
    const share = steps > 0 ? done / steps || 0 : 0;
    this.#progress.value = share;
    // Seen while another tab is looked at.
    document.title = training.open && steps > 0 ? `${Math.floor(100 * share)} % · ${TITLE}` : TITLE;
    const loss = curves.last('loss');
    const validation = curves.validations.at(-1);
    const recent = curves.recent('tokensPerSecond', RECENT);
    figure('step', run ? whole(done) : '–', steps > 0 ? `of ${whole(steps)}` : '');
    const config = run?.settings?.config;
    const each = config && !FAMILIES[config.model_type].writes ? 'each' : 'a token';
    figure(
      'loss',
      fixed(loss),
      loss === undefined || !Number.isFinite(loss) ? '' : `${(loss / Math.LN2).toFixed(2)} bits ${each}`,
    );
    figure('validation', fixed(validation?.loss), validation ? noteOn(validation) : '');
    const left =
      recent && training.phase === 'training' ? ((steps - done) * training.tokensPerStep) / recent : undefined;
    figure('speed', recent === undefined ? '–' : short(Math.round(recent)), left ? `${longDuration(left)} left` : '');
    const budget = memory?.report.gpu.budget;
    figure(
      'gpu',
      memory ? formatBytes(memory.gpuBytes) : '–',
      memory ? (budget === undefined ? 'no limit' : `of ${formatBytes(budget)}`) : '',
    );
  }
}

function figure(name: string, value: string, note: string): void {
  const dd = byId(`now-${name}`, HTMLElement);
  setText(dd, value);
  if (dd.nextElementSibling) setText(dd.nextElementSibling, note);
}

const fixed = (value: number | undefined): string =>
  value === undefined ? '–' : Number.isFinite(value) ? value.toFixed(3) : plain(value);

const noteOn = ({ step, accuracy }: { step: number; accuracy?: number }): string =>
  accuracy === undefined ? `at step ${whole(step)}` : `${Math.round(100 * accuracy)} % of unseen right`;
