// The chunk map of a report, alive: it draws the step when the page's width or colours change, zooms into it, and reads
// out what is pointed at, by pointer or keyboard. The section's markup is memory-section.ts's.

import {
  type ChunkHistory,
  decode,
  expand,
  type RunLengths,
  rowsOf,
  slotsInUse,
} from '../../engine/observe/chunk-codes.ts';
import { formatBytes } from '../../util/bytes.ts';
import { activationName, contentsOf, kindOf, operatorAt, phaseAt, WORDS } from '../chunk-words.ts';
import { readColors } from '../paint/colors.ts';
import { type MemoryLayers, memoryLayers } from '../paint/step.ts';
import { drawMemory, drawRows, drawSwatch } from './draw-step.ts';
import { Geometry, GUTTER } from './geometry.ts';

/** What the page holds for this. */
export interface MapData {
  readonly history: ChunkHistory;
  /** Bytes. */
  readonly budget: number | null;
}

/** A moment, and on the map a chunk, or behind those an activation. */
interface Spot {
  readonly m: number;
  readonly chunk?: number;
}

/** What is moved by less was pressed, not dragged. */
const LEAST_DRAG = 4;

export class StepMap {
  readonly #history: ChunkHistory;
  readonly #budget: number | null;
  readonly #at: Geometry;
  readonly #rowRuns: readonly RunLengths[];
  /** By moment. */
  readonly #used: readonly number[];
  readonly #staged: readonly number[];
  readonly #layers: MemoryLayers;
  readonly #root: HTMLElement;
  readonly #frame: HTMLElement;
  readonly #rows: HTMLCanvasElement;
  readonly #areas: HTMLCanvasElement;
  readonly #tip: HTMLElement;
  readonly #cross: HTMLElement;
  readonly #marked: HTMLElement;
  readonly #selected: HTMLElement;
  #pointed: Spot | undefined;
  /** Where a press began. */
  #dragged: number | undefined;

  constructor(root: HTMLElement, { history, budget }: MapData) {
    this.#history = history;
    this.#budget = budget;
    this.#at = new Geometry(history);
    this.#rowRuns = rowsOf(history);
    this.#used = slotsInUse(history.chunks);
    this.#staged = expand(history.staged);
    this.#layers = memoryLayers(history, this.#used, this.#staged);
    this.#root = root;
    const find = <E extends HTMLElement>(selector: string) => root.querySelector(selector) as E;
    this.#frame = find('.frame');
    this.#rows = find('.tiers');
    this.#areas = find('.areas');
    this.#tip = find('.tip');
    this.#cross = find('.cross');
    this.#marked = find('.marked');
    this.#selected = find('.selected');
    this.#listen();
    new ResizeObserver(() => {
      this.#at.right = this.#frame.clientWidth;
      this.#draw();
      this.#point(undefined);
    }).observe(this.#frame);
    for (const query of ['(prefers-color-scheme: dark)', 'print']) {
      matchMedia(query).addEventListener('change', () => this.#draw());
    }
  }

  #draw(): void {
    const colors = readColors(document.documentElement);
    drawRows(this.#rows, this.#history, this.#at, colors);
    drawMemory(this.#areas, this.#history, this.#layers, this.#budget, this.#at, colors);
    for (const swatch of this.#root.querySelectorAll<HTMLCanvasElement>('canvas.swatch')) {
      drawSwatch(swatch, Number(swatch.dataset['code']), colors);
    }
  }

  #look(from: number, to: number): void {
    this.#at.look(from, to);
    this.#draw();
    this.#point(this.#pointed && this.#at.isInView(this.#pointed.m) ? this.#pointed : undefined);
  }

  // ---- Pointing -----------------------------------------------------------------------------------------

  #point(to: Spot | undefined): void {
    this.#pointed = to;
    this.#tip.hidden = this.#cross.hidden = !to;
    this.#marked.hidden = to?.chunk === undefined;
    if (!to) return;
    const { m, chunk } = to;
    const { rowHeight, tops, right } = this.#at;
    this.#tip.replaceChildren(...this.#reading(to));
    const middle = this.#at.x(m + 0.5);
    const top = chunk === undefined ? this.#areas.offsetTop : (tops[chunk] ?? 0);
    this.#cross.style.left = `${middle}px`;
    this.#marked.style.top = `${top - 1}px`;
    this.#marked.style.height = `${rowHeight + 2}px`;
    this.#marked.style.left = `${GUTTER}px`;
    const flip = middle > right / 2;
    this.#tip.style.left = flip ? '' : `${middle + 14}px`;
    this.#tip.style.right = flip ? `${right - middle + 14}px` : '';
    this.#tip.style.top = `${Math.max(0, top - 20)}px`;
  }

  #reading({ m, chunk }: Spot): HTMLElement[] {
    const { slots, staging } = this.#history;
    return [
      ...(chunk === undefined ? this.#ofMemory(m) : this.#ofChunk(chunk, m)),
      line('', operatorAt(this.#history, m)),
      line('more', `moment ${m}, ${phaseAt(this.#history, m)}`),
      line('more', `${this.#used[m]} of ${slots} slots, ${this.#staged[m]} of ${staging} staging`),
    ];
  }

  #ofMemory(m: number): HTMLElement[] {
    return [line('name', `${formatBytes(this.#layers.inUse(m))} of GPU memory in use`)];
  }

  #ofChunk(chunk: number, m: number): HTMLElement[] {
    const { tier, state, activation } = decode(this.#codeAt(chunk, m));
    const tensor = this.#history.activations.tensors[chunk - this.#history.chunks.length];
    if (tensor && activation) {
      return [
        line('name', activationName(tensor.name)),
        line('more', `activation, ${formatBytes(tensor.bytes)}`),
        line('', `${WORDS[activation]}${state === 'COMPUTE' ? '; in use' : ''}`),
      ];
    }
    const kind = kindOf(this.#history, chunk);
    const where = tier === 'none' ? (state === 'FREE' ? 'nowhere' : 'all zeros, kept nowhere') : WORDS[tier];
    return [
      line('name', `${kind?.kind} ${kind?.index}`),
      line('more', contentsOf(this.#history, chunk)),
      line('', `${where}: ${WORDS[state]}`),
    ];
  }

  #codeAt(chunk: number, m: number): number {
    const runs = this.#rowRuns[chunk] ?? [];
    let at = 0;
    for (let i = 0; i < runs.length; i += 2) {
      at += runs[i + 1] ?? 0;
      if (m < at) return runs[i] ?? 0;
    }
    return 0;
  }

  // ---- Pointer and keys ---------------------------------------------------------------------------------

  #listen(): void {
    const frame = this.#frame;
    frame.addEventListener('pointermove', (event) => this.#move(event));
    frame.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || event.pointerType === 'touch') return;
      this.#dragged = this.#position(event).x;
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener('pointerup', (event) => this.#release(event));
    frame.addEventListener('pointerleave', () => this.#point(undefined));
    frame.addEventListener('dblclick', () => this.#look(0, this.#at.moments));
    frame.addEventListener('blur', () => this.#point(undefined));
    frame.addEventListener('keydown', (event) => this.#key(event));
  }

  #position(event: PointerEvent): { x: number; y: number } {
    const box = this.#frame.getBoundingClientRect();
    return { x: Math.max(GUTTER, event.clientX - box.left), y: event.clientY - box.top };
  }

  /** Both ends of what is dragged over, from left to right. */
  #drag(x: number): [number, number] | undefined {
    if (this.#dragged === undefined || Math.abs(x - this.#dragged) <= LEAST_DRAG) return undefined;
    return [Math.min(x, this.#dragged), Math.max(x, this.#dragged)];
  }

  #move(event: PointerEvent): void {
    const { x, y } = this.#position(event);
    const drag = this.#drag(x);
    if (!drag) {
      const m = this.#at.momentAt(x);
      this.#point(y > this.#at.height ? { m } : { m, chunk: this.#at.chunkAt(y) });
      return;
    }
    this.#point(undefined);
    this.#selected.hidden = false;
    this.#selected.style.left = `${drag[0]}px`;
    this.#selected.style.width = `${drag[1] - drag[0]}px`;
  }

  #release(event: PointerEvent): void {
    const drag = this.#drag(this.#position(event).x);
    this.#selected.hidden = true;
    this.#dragged = undefined;
    if (drag) this.#look(this.#at.timeAt(drag[0]), this.#at.timeAt(drag[1]));
  }

  #key(event: KeyboardEvent): void {
    const at = this.#at;
    const { m, chunk = 0 } = this.#pointed ?? { m: Math.floor(at.from) };
    const span = at.to - at.from;
    const stride = event.shiftKey ? Math.max(1, Math.round(span / 20)) : 1;
    const go = (dm: number, dc: number) => {
      const to = at.held(m + dm);
      if (!at.isInView(to)) this.#look(to - span / 2, to + span / 2);
      this.#point({ m: to, chunk: Math.min(Math.max(0, chunk + dc), this.#rowRuns.length - 1) });
    };
    const keys: Record<string, () => void> = {
      ArrowLeft: () => go(-stride, 0),
      ArrowRight: () => go(stride, 0),
      ArrowUp: () => go(0, -1),
      ArrowDown: () => go(0, 1),
      Home: () => go(-at.moments, 0),
      End: () => go(at.moments, 0),
      '+': () => this.#look(m - span / 4, m + span / 4),
      '-': () => this.#look(m - span, m + span),
      '0': () => this.#look(0, at.moments),
      Escape: () => this.#point(undefined),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function line(className: string, text: string): HTMLElement {
  return Object.assign(document.createElement('div'), { className, textContent: text });
}
