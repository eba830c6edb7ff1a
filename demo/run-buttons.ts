// `RunButtons`: Train, or Pause, One step and Stop: which of them are there, and where the focus is meanwhile. One that is
// pressed goes, or is out of use, for a while: the focus then waits at the line that says what is going on, and comes
// back to the button that is of use next.

import { byId } from './page.ts';
import type { Training } from './training.ts';

export type RunButton = 'train' | 'pause' | 'step' | 'stop';

/** What has the focus next, the first of them that is of use. */
const NEXT: readonly RunButton[] = ['pause', 'train'];

export class RunButtons {
  readonly #idle = byId('buttons-idle', HTMLElement);
  readonly #open = byId('buttons-open', HTMLElement);
  readonly #status = byId('status', HTMLElement);
  readonly #all = Object.fromEntries(
    (['train', 'pause', 'step', 'stop'] as const).map((name) => [name, byId(name, HTMLButtonElement)]),
  ) as Record<RunButton, HTMLButtonElement>;

  constructor(pressed: Readonly<Record<RunButton, () => unknown>>) {
    for (const [name, button] of Object.entries(this.#all)) {
      button.addEventListener('click', () => void pressed[name as RunButton]());
    }
  }

  /** Whether a run can be begun. */
  set canTrain(can: boolean) {
    this.#change(() => {
      this.#all.train.disabled = !can;
    });
  }

  show({ phase, open, stoppable }: Pick<Training, 'phase' | 'open' | 'stoppable'>): void {
    const { pause, step, stop } = this.#all;
    this.#change(() => {
      this.#idle.hidden = open;
      this.#open.hidden = !open;
      pause.textContent = phase === 'paused' ? 'Go on' : 'Pause';
      pause.disabled = phase !== 'training' && phase !== 'paused';
      step.disabled = phase !== 'paused';
      stop.disabled = !stoppable;
    });
  }

  #change(change: () => void): void {
    const focused = Object.values(this.#all).find((button) => button === document.activeElement);
    const isHere = focused !== undefined || document.activeElement === this.#status;
    change();
    if (!isHere || (focused && isUsable(focused))) return;
    const next = NEXT.map((name) => this.#all[name]).find(isUsable);
    (next ?? this.#status).focus({ preventScroll: true });
  }
}

const isUsable = (button: HTMLButtonElement): boolean => !button.disabled && button.closest('[hidden]') === null;
