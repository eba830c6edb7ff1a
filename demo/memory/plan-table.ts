// `PlanTable`: where the bytes of a run lie and what a step of it moves over each link, in the figures of `holdfast plan`, in a part of
// the page that is worked out once it is opened.

import { formatBytes, type RunForecast, type RunPlan, type TierPlan } from '../../src/browser/index.ts';
import { plain, shortDuration } from '../figures.ts';
import { make, scrollable, setText } from '../page.ts';

const TIERS = { gpu: 'GPU', host: 'host memory', disk: 'disk' } as const satisfies Record<
  keyof RunPlan['tiers'],
  string
>;
const KINDS = {
  ...{ parameters: 'parameters', gradients: 'gradients', moments: 'moments', activations: 'activations' },
  ...{ other: 'other', all: 'at once' },
} as const satisfies Record<keyof TierPlan, string>;

const keysOf = <K extends string>(record: Readonly<Record<K, unknown>>): K[] => Object.keys(record) as K[];
const said = (bytes: number): string => (bytes > 0 ? formatBytes(bytes) : '–');

/** Sentences on the budgets of a run and on what a step of it moves, computes and takes. */
export function planSentences(plan: RunForecast): string[] {
  const { smallest, unlimited, comfortable, tiers, links, flops, step } = plan;
  const { gpu, disk } = links;
  const beside = [
    ...(gpu.activations > 0 ? [`${formatBytes(gpu.activations)} of activations each way`] : []),
    ...(gpu.recovery > 0 ? [`${formatBytes(gpu.recovery)} against the loss of a device`] : []),
  ];
  return [
    `Its peak on the GPU is ${formatBytes(tiers.gpu.all)}. It works within ${formatBytes(smallest)}, and takes ${formatBytes(unlimited)} without a budget. ` +
      (comfortable === undefined
        ? 'No budget is comfortable, within 5 % of a step without one.'
        : `Within ${formatBytes(comfortable)} a step takes at most 5 % longer.`),
    `A step moves ${formatBytes(gpu.up)} up to the GPU and ${formatBytes(gpu.down)} down${beside.length > 0 ? `, ${beside.join(', ')} among them` : ''}; ` +
      `${formatBytes(gpu.chunks)} are chunks, and no schedule moves fewer than ${formatBytes(gpu.bound)}.`,
    ...(disk
      ? [
          `It reads ${formatBytes(disk.read)} from disk and writes ${formatBytes(disk.written)}` +
            (disk.bound === undefined ? '.' : `; of chunks that is ${formatBytes(disk.bound)} at least.`),
        ]
      : []),
    `It computes ${sayFLOP(flops.step)}, ${flops.recomputed > 0 ? `${sayFLOP(flops.recomputed)} of them` : 'none of them'} to recompute activations.` +
      (step
        ? ` Here that takes ${shortDuration(step.seconds)}, ${step.from === 'run' ? 'as in a run of this shape' : 'by the times of other steps'}.`
        : ''),
  ];
}

const sayFLOP = (flops: number): string =>
  flops < 1e9 ? `${plain(flops / 1e6)} MFLOP` : `${plain(flops / 1e9)} GFLOP`;

export class PlanTable {
  /** Called when it is opened: the figures are asked for then. */
  onOpen: (() => void) | undefined;
  readonly #details: HTMLDetailsElement;
  readonly #content = make('div');

  constructor(details: HTMLDetailsElement) {
    this.#details = details;
    details.append(this.#content);
    details.addEventListener('toggle', () => {
      if (details.open) this.onOpen?.();
    });
  }

  /** Whether it is looked at. */
  get isOpen(): boolean {
    return this.#details.open;
  }

  /** Of a run that does not fit there is only why. */
  show(plan: RunForecast | string): void {
    if (typeof plan === 'string') {
      setText(this.#content, plan);
      return;
    }
    const head = make('tr', {}, make('th', { scope: 'col' }, 'at most'));
    head.append(...keysOf(KINDS).map((kind) => make('th', { scope: 'col' }, KINDS[kind])));
    const rows = keysOf(TIERS)
      .filter((tier) => plan.tiers[tier].all > 0)
      .map((tier) => {
        const cells = keysOf(KINDS).map((kind) => make('td', {}, said(plan.tiers[tier][kind])));
        return make('tr', {}, make('th', { scope: 'row' }, TIERS[tier]), ...cells);
      });
    const table = make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows));
    const wide = make('div', { className: 'wide', role: 'region', ariaLabel: 'Where the bytes lie' }, table);
    scrollable(wide);
    this.#content.replaceChildren(wide, ...planSentences(plan).map((text) => make('p', { className: 'note' }, text)));
  }
}
