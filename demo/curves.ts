// The curves of the run that is looked at, with those of others beside them. Drawn at most a few times a second,
// however fast steps come.

import { drawing } from '../src/browser/index.ts';
import { Chart, type Line } from './charts.ts';
import { type RunCurves, spread, type Thinned } from './curve-data.ts';
import { byId } from './page.ts';

/** A run that is compared with the one that is looked at. */
export interface ComparedRun {
  readonly name: string;
  readonly color: string;
  readonly curves: RunCurves;
}

const REDRAW_MS = 300;
const fromZero = (_: number, most: number): [number, number] => [0, most * 1.08 || 1];

export class Curves {
  readonly #empty = byId('curves-empty', HTMLElement);
  readonly #accuracyHost = byId('chart-accuracy', HTMLElement);
  readonly #loss: Chart;
  readonly #accuracy: Chart;
  readonly #small: readonly { chart: Chart; field: 'tokensPerSecond' | 'gradNorm' | 'lr' }[];
  #run: RunCurves | undefined;
  #others: readonly ComparedRun[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    const chart = (id: string, title: string, height: number, range?: typeof fromZero) =>
      new Chart(byId(id, HTMLElement), { title, height, ...(range && { range }) });
    this.#loss = chart('chart-loss', 'Loss', 260);
    this.#accuracy = chart('chart-accuracy', 'Right, of what it has not seen', 110, () => [0, 1]);
    this.#small = [
      { chart: chart('chart-speed', 'Tokens/s', 110, fromZero), field: 'tokensPerSecond' },
      { chart: chart('chart-norm', 'Gradient norm', 110, fromZero), field: 'gradNorm' },
      { chart: chart('chart-rate', 'Learning rate', 110, fromZero), field: 'lr' },
    ];
  }

  show(run: RunCurves, others: readonly ComparedRun[]): void {
    this.#run = run;
    this.#others = others;
    this.changed();
  }

  /** To be called when there is more to draw. */
  changed(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      requestAnimationFrame(() => this.#draw());
    }, REDRAW_MS);
  }

  #draw(): void {
    const run = this.#run;
    if (!run) return;
    const all = [run, ...this.#others.map(({ curves }) => curves)];
    this.#empty.hidden = all.some(({ steps }) => steps.length > 0);
    const own = run.thinned();
    const others = this.#others.map(({ curves, ...rest }) => ({ ...rest, thinned: curves.thinned(), curves }));
    this.#drawLoss(run, own, others);
    for (const { chart, field } of this.#small) {
      const values = own[field];
      void chart.draw(own.x, [{ label: '', color: '--first', width: 1.5, values }]);
    }
    const solved = run.validations.filter(({ accuracy }) => accuracy !== undefined);
    this.#accuracyHost.hidden = solved.length === 0;
    if (solved.length === 0) return;
    const values = solved.map(({ accuracy }) => accuracy ?? null);
    const line: Line = { label: '', color: '--second', width: 1.5, points: true, values };
    void this.#accuracy.draw(
      solved.map(({ step }) => step),
      [line],
    );
  }

  #drawLoss(run: RunCurves, own: Thinned, others: readonly (ComparedRun & { thinned: Thinned })[]): void {
    const x = union([own.x, run.validations.map(({ step }) => step), ...others.map(({ thinned }) => thinned.x)]);
    const on = (from: readonly number[], values: drawing.Column): drawing.Column =>
      spread(
        from.map((step, i) => ({ step, value: values[i] ?? undefined })),
        x,
      );
    const lines: Line[] = [
      { label: 'each step', color: '--faint', width: 1, values: on(own.x, own.loss), points: own.x.length < 3 },
      { label: 'smoothed', color: '--first', width: 2, values: on(own.x, drawing.smooth(own.loss)) },
    ];
    if (run.validations.length > 0) {
      const values = spread(
        run.validations.map(({ step, loss }) => ({ step, value: loss })),
        x,
      );
      lines.push({ label: 'validation', color: '--second', width: 1.5, points: true, values });
    }
    for (const { name, color, thinned } of others) {
      lines.push({ label: name, color, width: 1.5, values: on(thinned.x, drawing.smooth(thinned.loss)) });
    }
    void this.#loss.draw(x, lines);
  }
}

function union(lists: readonly (readonly number[])[]): number[] {
  return [...new Set(lists.flat())].sort((a, b) => a - b);
}
