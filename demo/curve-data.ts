// The numbers of one run, as its curves need them. Steps come in order; a run that goes back (to a checkpoint) takes
// its later steps again, and they replace the first ones.
//
// Not the drawing: charts.ts. Invariant: what is drawn of a long run is at most MOST_POINTS points, whatever its length.

import type { drawing, History, StepEvent } from '../src/browser/index.ts';
import { at } from './at.ts';

export const MOST_POINTS = 1500;

/** What is kept of each step. */
export type CurveField = 'loss' | 'lr' | 'gradNorm' | 'tokensPerSecond';
export type Thinned = { readonly x: number[] } & Readonly<Record<CurveField, drawing.Column>>;
type Validation = Readonly<History['validations'][number]>;

const FIELDS: readonly CurveField[] = ['loss', 'lr', 'gradNorm', 'tokensPerSecond'];

export class RunCurves {
  readonly steps: number[] = [];
  readonly #values: Readonly<Record<CurveField, number[]>> = { loss: [], lr: [], gradNorm: [], tokensPerSecond: [] };
  validations: Validation[] = [];
  samples: { step: number; text: string }[] = [];

  static of({ steps, validations, samples }: History): RunCurves {
    const curves = new RunCurves();
    for (const step of steps) curves.addStep(step);
    curves.validations = [...validations];
    curves.samples = [...samples];
    return curves;
  }

  get lastStep(): number | undefined {
    return this.steps.at(-1);
  }

  last(field: CurveField): number | undefined {
    return this.#values[field].at(-1);
  }

  /** The mean of the latest steps. */
  recent(field: CurveField, count: number): number | undefined {
    const values = this.#values[field];
    return mean(values, Math.max(0, values.length - count), values.length) ?? undefined;
  }

  addStep(event: Pick<StepEvent, 'step' | CurveField>): void {
    this.#rewind(event.step);
    this.steps.push(event.step);
    for (const field of FIELDS) this.#values[field].push(event[field]);
  }

  addValidation(validation: Validation): void {
    this.validations = [...this.validations.filter(({ step }) => step < validation.step), validation];
  }

  addSample(sample: { step: number; text: string }): void {
    this.samples = [...this.samples.filter(({ step }) => step < sample.step), sample];
  }

  /** Neighbouring steps share a point, by powers of two, so that points stay where they are while a run grows. */
  thinned(most = MOST_POINTS): Thinned {
    const width = 2 ** Math.max(0, Math.ceil(Math.log2(this.steps.length / most)));
    const x = this.steps.filter((_, i) => (i + 1) % width === 0 || i === this.steps.length - 1);
    const column = (values: number[]): drawing.Column => x.map((_, i) => mean(values, i * width, (i + 1) * width));
    const { loss, lr, gradNorm, tokensPerSecond } = this.#values;
    return {
      x,
      loss: column(loss),
      lr: column(lr),
      gradNorm: column(gradNorm),
      tokensPerSecond: column(tokensPerSecond),
    };
  }

  #rewind(step: number): void {
    while ((this.steps.at(-1) ?? -1) >= step) {
      this.steps.pop();
      for (const field of FIELDS) this.#values[field].pop();
    }
  }
}

function mean(values: readonly number[], from: number, to: number): number | null {
  let sum = 0;
  let count = 0;
  for (let i = from; i < Math.min(to, values.length); i++) {
    const value = at(values, i);
    if (!Number.isFinite(value)) continue;
    sum += value;
    count++;
  }
  return count === 0 ? null : sum / count;
}

/** Values at some steps, spread over all of `x`. */
export function spread(
  points: readonly { step: number; value: number | undefined }[],
  x: readonly number[],
): drawing.Column {
  const at = new Map(points.map(({ step, value }) => [step, value]));
  return x.map((step) => at.get(step) ?? null);
}
