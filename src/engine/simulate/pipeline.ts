// Waits between the stages of a pipeline on the simulated clock: values on their way to a neighbour, and exchanges that
// all of some stages come to. Each stage is followed by itself, as far as it can be without the others (stages.ts).
//
// Invariant: a stage gets values of another in the order in which they were sent, none before it was.

import type { SimulatedTask } from './clock.ts';

export class SimulatedPipeline {
  /** What happened so far: where nothing more does, stages wait for each other in a circle. */
  events = 0;
  readonly #sent = new Map<string, SimulatedTask[]>();
  /** By what it is and its number on the stage: when each stage came there. */
  readonly #met = new Map<string, number[]>();
  readonly #counts = new Map<string, number>();

  /** `task`: that brings it there. */
  send(from: number, to: number, task: SimulatedTask): void {
    const key = `${from} ${to}`;
    this.#sent.set(key, [...(this.#sent.get(key) ?? []), task]);
    this.events++;
  }

  /** The next value, as the one that gets it waits for it; undefined where it was not sent yet. */
  take(from: number, to: number): SimulatedTask | undefined {
    const task = this.#sent.get(`${from} ${to}`)?.shift();
    if (!task) return undefined;
    this.events++;
    return { ...task, behind: bubbleUntil(task.start) };
  }

  /** A stage comes to an exchange; returns how all others are found there. */
  arrive(stage: number, what: string, seconds: number): string {
    const own = `${stage} ${what}`;
    const count = this.#counts.get(own) ?? 0;
    this.#counts.set(own, count + 1);
    const key = `${what} ${count}`;
    this.#met.set(key, [...(this.#met.get(key) ?? []), seconds]);
    this.events++;
    return key;
  }

  /** What the last of so many is waited for with; undefined where some have not arrived. */
  met(key: string, stages: number): SimulatedTask | undefined {
    const all = this.#met.get(key) ?? [];
    return all.length < stages ? undefined : bubbleUntil(Math.max(...all));
  }
}

const bubbleUntil = (end: number): SimulatedTask => ({ work: 'bubble', start: 0, end, behind: undefined });
