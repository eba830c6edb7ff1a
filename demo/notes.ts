// Notes to the person: the one line of what is going on, which screen readers read out, and below the page the list of
// earlier ones.

import { messageOf, type RunEvent } from '../src/browser/index.ts';
import { byId, make, scrollable, setText } from './page.ts';
import type { TrainingPhase } from './training.ts';

const MOST_KEPT = 200;

export class Notes {
  readonly #status = byId('status', HTMLElement);
  readonly #log = byId('log', HTMLElement);

  constructor() {
    scrollable(this.#log);
  }

  say(text: string): void {
    this.#show(text, false);
  }

  /** How far what was said has come: not into the list. */
  progress(text: string): void {
    setText(this.#status, text);
  }

  problem(error: unknown): void {
    this.#show(messageOf(error), true);
  }

  /** Into the list alone. */
  add(text: string): void {
    const time = new Date().toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
    this.#log.prepend(make('li', {}, make('time', {}, time), ` ${text}`));
    while (this.#log.childElementCount > MOST_KEPT) this.#log.lastElementChild?.remove();
  }

  #show(text: string, problem: boolean): void {
    setText(this.#status, text);
    this.#status.classList.toggle('problem', problem);
    this.add(text);
  }
}

/** What there is to say of an event, in the phase that it led to. */
export function sayEvent(notes: Notes, event: RunEvent, phase: TrainingPhase): void {
  if (phase === 'stopping') return;
  if (event.type === 'preparing') notes.say('Preparing: compiling kernels, reading the text …');
  if (event.type === 'tokenizing') {
    // By tens: each is read out.
    const tens = Math.floor((10 * event.done) / event.total);
    notes.progress(`Preparing: ${10 * tens} % of the text is tokenized …`);
  }
  if (event.type === 'ready' && phase !== 'moving') {
    const { firstStep } = event;
    if (phase === 'paused') notes.say(`Paused after ${firstStep} steps`);
    else notes.say(firstStep > 0 ? `Going on from step ${firstStep}` : 'Training');
  }
  if (event.type === 'paused') notes.say(`Paused after ${event.step} steps; it is saved`);
  // One that was asked for: it is saved when the run goes on, or is stopped.
  if (event.type === 'step' && phase === 'paused') notes.say(`Paused after ${event.step + 1} steps`);
  if (event.type === 'going on') notes.say('Training');
  if (event.type === 'recovered') {
    notes.say(`The GPU was lost (${event.reason}); training goes on from the last ${event.from}`);
  }
  if (event.type === 'stopped') notes.say('Stopped before it began to train');
  if (event.type === 'failed') notes.problem(event.message);
  // Of one that is opened again, its going on is said.
  if (event.type === 'ended' && phase !== 'moving') {
    const { steps, finalLoss, interrupted } = event.summary;
    const loss = Number.isFinite(finalLoss)
      ? `, loss ${finalLoss.toFixed(3)}`
      : steps > 0
        ? ', the last one skipped'
        : '';
    notes.say(`${interrupted ? 'Stopped' : 'Done'} after ${steps} steps${loss}; it is saved`);
  }
}
