// Notes to the person: the one line of what is going on, which screen readers read out, and below the page the list of
// earlier ones.

import { messageOf, type RunEvent } from '../src/browser/index.ts';
import { byId, make, setText } from './page.ts';
import type { TrainingPhase } from './training.ts';

const MOST_KEPT = 200;

export class Notes {
  readonly #status = byId('status', HTMLElement);
  readonly #log = byId('log', HTMLElement);

  say(text: string): void {
    this.#show(text, false);
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
    notes.say(`Preparing: ${Math.floor((100 * event.done) / event.total)} % of the text is tokenized …`);
  }
  if (event.type === 'ready') {
    const { firstStep } = event;
    if (phase === 'paused') notes.say(`Paused after ${firstStep} steps`);
    else notes.say(firstStep > 0 ? `Going on from step ${firstStep}` : 'Training');
  }
  if (event.type === 'paused') notes.say(`Paused after ${event.step} steps; it is saved`);
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
