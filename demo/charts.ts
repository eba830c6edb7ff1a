// One chart: a caption with readings that follow the cursor, and the curves below it, drawn by uPlot, which is loaded
// when there is something to draw. Colours are variables of the page, read while drawing.

import type uPlot from 'uplot';
import { drawing } from '../src/browser/index.ts';
import { at } from './at.ts';
import { plain, short } from './figures.ts';
import { make, SILENT, setText } from './page.ts';

export interface Line {
  readonly label: string;
  /** A CSS variable. */
  readonly color: string;
  readonly width: number;
  readonly values: drawing.Column;
  readonly points?: boolean;
}

interface ChartOptions {
  readonly title: string;
  readonly height: number;
  readonly range?: (least: number, most: number) => [number, number];
}

let library: Promise<typeof uPlot> | undefined;
const WHOLE_STEPS = Array.from({ length: 30 }, (_, i) => at([1, 2, 5], i % 3) * 10 ** Math.floor(i / 3));

async function load(): Promise<typeof uPlot> {
  drawing.mendLanguage();
  const [module] = await Promise.all([import('uplot'), import('uplot/dist/uPlot.min.css')]);
  return module.default;
}

export class Chart {
  readonly #host: HTMLElement;
  readonly #options: ChartOptions;
  readonly #caption = make('figcaption');
  readonly #target = make('div');
  #plot: uPlot | undefined;
  #x: readonly number[] = [];
  #lines: readonly Line[] = [];
  #outputs: HTMLOutputElement[] = [];
  #stepOutput: HTMLOutputElement | undefined;
  /** What the plot was made for. */
  #made = '';

  constructor(host: HTMLElement, options: ChartOptions) {
    this.#host = host;
    this.#options = options;
    this.#target.style.height = `${options.height}px`;
    host.append(make('figure', {}, this.#caption, this.#target));
    host.setAttribute('role', 'group');
    setCaption(this.#caption, options.title, []);
    new ResizeObserver(() => this.#resize()).observe(this.#target);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#plot?.redraw());
  }

  /** x ascending; every line has one value for each. */
  async draw(x: readonly number[], lines: readonly Line[]): Promise<void> {
    this.#x = x;
    this.#lines = lines;
    if (x.length === 0) return this.#clear();
    const uPlot = await this.#library();
    // Since then there may be nothing to draw any more.
    if (!uPlot || this.#x.length === 0) return;
    const made = this.#lines.map(({ label, color }) => `${label} ${color}`).join();
    if (made !== this.#made || !this.#plot) {
      this.#made = made;
      this.#plot?.destroy();
      this.#rebuildCaption();
      this.#plot = new uPlot(this.#plotOptions(uPlot), this.#data(), this.#target);
    } else this.#plot.setData(this.#data());
    this.#read();
    const [last] = this.#lines.map(({ values }) => lastUntil(values, values.length - 1));
    this.#host.setAttribute('aria-label', `${this.#options.title}: ${last == null ? 'nothing yet' : plain(last)}`);
  }

  /** Undefined where it cannot be had, which is said: a browser does not try again before the page is reloaded. */
  async #library(): Promise<typeof uPlot | undefined> {
    library ??= load();
    try {
      return await library;
    } catch {
      setCaption(this.#caption, this.#options.title, ['what draws it did not load: reload the page']);
      return undefined;
    }
  }

  /** As before anything was drawn. */
  #clear(): void {
    this.#plot?.destroy();
    this.#plot = undefined;
    setCaption(this.#caption, this.#options.title, []);
    this.#host.setAttribute('aria-label', `${this.#options.title}: nothing yet`);
  }

  #data(): uPlot.AlignedData {
    return [this.#x as number[], ...this.#lines.map(({ values }) => values)];
  }

  #resize(): void {
    const { clientWidth: width } = this.#target;
    if (width > 0) this.#plot?.setSize({ width, height: this.#options.height });
  }

  #rebuildCaption(): void {
    const several = this.#lines.length > 1;
    this.#outputs = this.#lines.map(() => make('output', SILENT));
    const readings = this.#lines.map(({ label, color }, i) => {
      const swatch = make('i');
      swatch.style.background = `var(${color})`;
      return make('span', {}, ...(several ? [swatch] : []), `${label} `, at(this.#outputs, i));
    });
    this.#stepOutput = several ? make('output', SILENT) : undefined;
    if (this.#stepOutput) readings.push(make('span', { className: 'step' }, 'step ', this.#stepOutput));
    setCaption(this.#caption, this.#options.title, readings);
  }

  /** At the cursor, or else the last ones. */
  #read(): void {
    const index = this.#plot?.cursor.idx ?? this.#x.length - 1;
    if (this.#stepOutput) setText(this.#stepOutput, String(this.#x[index] ?? ''));
    this.#lines.forEach(({ values }, i) => {
      const value = lastUntil(values, index);
      setText(at(this.#outputs, i), value === null ? '' : plain(value));
    });
  }

  #plotOptions(library: typeof uPlot): uPlot.Options {
    const { height, range } = this.#options;
    const axis = (rest: uPlot.Axis): uPlot.Axis => ({
      stroke: () => color('--muted'),
      font: '12px system-ui, sans-serif',
      values: (_, splits) => splits.map(short),
      ticks: { show: false },
      ...rest,
    });
    return {
      width: Math.max(100, this.#target.clientWidth),
      height,
      // The last step's number stands half beside it.
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, sync: { key: library.sync('run').key }, points: { size: 7 } },
      scales: { x: { time: false }, y: range ? { range: (_, least, most) => range(least, most) } : {} },
      axes: [
        axis({ size: 28, gap: 6, space: 48, incrs: WHOLE_STEPS, grid: { show: false } }),
        axis({ size: 48, gap: 8, space: 34, grid: { stroke: () => color('--rule'), width: 1 } }),
      ],
      series: [
        {},
        ...this.#lines.map(({ color: name, width, points = false }) => ({
          stroke: () => color(name),
          width,
          spanGaps: true,
          points: { show: points, size: 6, fill: () => color(name) },
        })),
      ],
      hooks: { setCursor: [() => this.#read()] },
    };
  }
}

function setCaption(caption: HTMLElement, title: string, readings: (Node | string)[]): void {
  caption.replaceChildren(make('b', {}, title), ...readings);
}

function lastUntil(values: drawing.Column, at: number): number | null {
  let i = Math.min(at, values.length - 1);
  while (i > 0 && values[i] == null) i--;
  return values[i] ?? null;
}

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
