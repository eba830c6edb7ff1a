// The figures beside the picture: bytes over each link against the least that any schedule moves, what each tier held
// at most against its budget, and what other policies would move and make again. Bars are decoration: every number stands beside its own.

import {
  type ActivationPolicyFigures,
  formatBytes,
  type PolicyComparison,
  type PolicyName,
  type RunEvent,
  type StepPicture,
} from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { make, setText } from '../page.ts';
import { POLICY_WORDS } from './words.ts';

export type MemoryEvent = Extract<RunEvent, { type: 'memory' }>;

/** "1.000 ×": three digits behind the point where they tell something. */
const times = (value: number, of: number): string => {
  const ratio = of === 0 ? 1 : value / of;
  return `${ratio.toFixed(ratio < 1.1 ? 3 : 2)}×`;
};

interface Bar {
  readonly color: string;
  readonly value: number;
}

/** A name, a number and a bar of one or two parts; `line` is where the bound stands. */
class Row {
  readonly element = make('div', { className: 'row' });
  readonly name: HTMLElement;
  readonly #value = make('span', { className: 'value' }, '–');
  readonly #track = make('span', { className: 'track' });
  readonly #line = make('i', { className: 'line' });
  readonly #parts: HTMLElement[] = [];

  constructor(name: string, parts: number) {
    this.name = make('span', { className: 'name' }, name);
    this.#track.ariaHidden = 'true';
    for (let i = 0; i < parts; i++) this.#parts.push(make('i'));
    this.#line.hidden = true;
    this.#track.append(...this.#parts, this.#line);
    this.element.append(this.name, this.#value, this.#track);
  }

  /** `of`: the value of a full bar. */
  show(text: string, bars: readonly Bar[], of: number, line?: number): void {
    setText(this.#value, text);
    const share = (value: number) => `${of > 0 ? Math.min(100, (100 * value) / of).toFixed(2) : 0}%`;
    this.#parts.forEach((part, i) => {
      part.style.width = share(bars[i]?.value ?? 0);
      part.style.background = bars[i]?.color ?? '';
    });
    this.#line.hidden = line === undefined;
    if (line !== undefined) this.#line.style.left = share(line);
  }
}

const block = (title: string, note: HTMLElement, ...rows: Row[]): HTMLElement =>
  make('section', { className: 'block' }, make('h3', {}, title), ...rows.map((row) => row.element), note);

export class Figures {
  readonly element = make('div', { className: 'figures' });
  /** Called with the policy whose name was pressed. Set, names are buttons. */
  onPolicy: ((name: PolicyName) => void) | undefined;
  readonly #up = new Row('host to GPU', 1);
  readonly #down = new Row('GPU to host', 2);
  readonly #activations = new Row('activations', 1);
  readonly #read = new Row('read from disk', 1);
  readonly #written = new Row('written to disk', 1);
  readonly #both = new Row('both ways, planned', 1);
  readonly #movedNote = make('p', { className: 'note' });
  readonly #gpu = new Row('GPU', 1);
  readonly #host = new Row('host memory', 1);
  readonly #disk = new Row('disk', 1);
  readonly #peakNote = make('p', { className: 'note' });
  readonly #peaks = block('At most held so far', this.#peakNote, this.#gpu, this.#host, this.#disk);
  readonly #policies = make('section', { className: 'block policies' });
  readonly #activationPolicies = make('section', { className: 'block policies activation-policies' });
  #comparison: PolicyComparison | undefined;
  #running: PolicyName = 'planned';

  constructor() {
    this.#peaks.classList.add('peaks');
    this.element.append(
      block(
        'Moved in this step',
        this.#movedNote,
        this.#up,
        this.#down,
        this.#both,
        this.#activations,
        this.#read,
        this.#written,
      ),
      this.#peaks,
      this.#policies,
      this.#activationPolicies,
    );
    this.clear();
  }

  clear(): void {
    for (const row of [this.#up, this.#down, this.#both, this.#activations, this.#read, this.#written])
      row.show('–', [], 0);
    for (const row of [this.#gpu, this.#host, this.#disk]) row.show('–', [], 0);
    setText(this.#movedNote, 'The line is the least that any schedule can move.');
    setText(this.#peakNote, 'Every GPU buffer is counted, and the budget is never exceeded.');
    this.compare(undefined);
    this.compareActivations(undefined);
  }

  show({ bytes, offloaded, fetched, planned, bound, policy }: StepPicture): void {
    const both = planned.h2d + planned.d2h;
    const most = Math.max(
      bytes.h2d,
      bytes.d2h,
      bytes.diskRead,
      bytes.diskWrite,
      both,
      offloaded + fetched,
      bound?.lp ?? 0,
    );
    const copies = Math.max(0, bytes.d2h - planned.d2h);
    const one = (row: Row, value: number, color: string) => row.show(formatBytes(value), [{ color, value }], most);
    one(this.#up, bytes.h2d, 'var(--gpu)');
    const down = { color: 'var(--host)', value: bytes.d2h - copies };
    this.#down.show(formatBytes(bytes.d2h), [down, { color: 'var(--copies)', value: copies }], most);
    one(this.#activations, offloaded + fetched, 'var(--activations)');
    one(this.#read, bytes.diskRead, 'var(--disk)');
    one(this.#written, bytes.diskWrite, 'var(--disk)');
    this.#both.show(formatBytes(both), [{ color: 'var(--muted)', value: both }], most, bound?.lp);
    setText(this.#movedNote, movedWords(both, copies, bound?.lp));
    if (this.#running === policy) return;
    this.#running = policy;
    this.compare(this.#comparison);
  }

  live({ report, gpuPeak }: MemoryEvent): void {
    const tier = (row: Row, peak: number, budget: number | undefined, color: string) => {
      const text =
        peak === 0 ? 'not used' : `${formatBytes(peak)}${budget === undefined ? '' : ` of ${formatBytes(budget)}`}`;
      row.show(text, [{ color, value: peak }], budget ?? peak);
    };
    tier(this.#gpu, gpuPeak, report.gpu.budget, 'var(--gpu)');
    tier(this.#host, report.host.peak, report.host.budget, 'var(--host)');
    tier(this.#disk, report.disk.peak, report.disk.budget, 'var(--disk)');
    const { predictedPeak } = report.gpu;
    const predicted = `${formatBytes(predictedPeak)} were predicted before the first step`;
    setText(
      this.#peakNote,
      predictedPeak === gpuPeak ? `GPU: just as predicted before the first step.` : `GPU: ${predicted}.`,
    );
  }

  compare(comparison: PolicyComparison | undefined): void {
    this.#comparison = comparison;
    this.#policies.hidden = !comparison;
    if (!comparison) return;
    const { policies, lp, slots, chunks } = comparison;
    const sums = policies.map(({ h2d, d2h }) => h2d + d2h);
    const most = Math.max(...sums, lp);
    const rows = policies.map(({ name }, i) => {
      const row = new Row(POLICY_WORDS[name], 1);
      const value = at(sums, i);
      const running = name === this.#running;
      row.element.classList.toggle('running', running);
      if (running) row.name.append(make('span', { className: 'hidden-text' }, ' (running)'));
      else if (this.onPolicy) row.name.replaceChildren(this.#choice(name));
      const color = name === 'planned' ? 'var(--gpu)' : 'var(--muted)';
      row.show(`${formatBytes(value)} ${times(value, lp).padStart(7, '\u2007')}`, [{ color, value }], most, lp);
      return row.element;
    });
    const note =
      sums[0] === 0
        ? 'Everything fits: none of them moves anything.'
        : `Worked out from the trace, for ${slots} slots and ${chunks} chunks. The line is the least that any schedule can move: ${formatBytes(lp)}. The losses are the same under all.`;
    this.#policies.replaceChildren(
      make('h3', {}, 'Which chunk leaves the GPU: bytes a step, by policy'),
      ...rows,
      make('p', { className: 'note' }, note),
    );
  }

  compareActivations(policies: readonly ActivationPolicyFigures[] | undefined): void {
    this.#activationPolicies.hidden = !policies;
    if (!policies) return;
    const most = Math.max(...policies.map(({ step }) => step?.slowdown ?? 0));
    const rows = policies.map(({ name, paper, smallest, step }, i) => {
      const row = new Row(name, 1);
      row.element.title = paper;
      row.element.classList.toggle('running', i === 0);
      const color = i === 0 ? 'var(--gpu)' : 'var(--muted)';
      const again = step && `+${(100 * step.recomputedShare).toFixed(0)} %`.padStart(6, '\u2007');
      const text = step
        ? `${step.slowdown.toFixed(2)}× ${formatBytes(step.moved).padStart(8, '\u2007')} ${again}`
        : `needs ${formatBytes(smallest)}`;
      row.show(text, step ? [{ color, value: step.slowdown }] : [], most);
      return row.element;
    });
    this.#activationPolicies.replaceChildren(
      make('h3', {}, 'What becomes of activations: time, bytes and arithmetic done again a step, by policy'),
      ...rows,
      make(
        'p',
        { className: 'note' },
        'Times are in multiples of a step with everything on the GPU, as plans reckon them. Within the same budget, with the same plan for chunks; what does not fit says what it needs. Worked out, not run. The losses are the same under all.',
      ),
    );
  }

  #choice(name: PolicyName): HTMLButtonElement {
    const made = make('button', { className: 'choice' }, POLICY_WORDS[name]);
    made.type = 'button';
    made.addEventListener('click', () => this.onPolicy?.(name));
    return made;
  }
}

function movedWords(both: number, copies: number, lp: number | undefined): string {
  const kept = copies > 0 ? ` ${formatBytes(copies)} more went down, so that a lost GPU costs one step at most.` : '';
  if (both === 0) return `Everything fits: no schedule has to move anything.${kept}`;
  if (lp === undefined) return `The schedule moves ${formatBytes(both)} between host memory and GPU.${kept}`;
  return `The schedule moves ${formatBytes(both)} of chunks; no schedule moves less than ${formatBytes(lp)}: ${times(both, lp)}.${kept}`;
}
