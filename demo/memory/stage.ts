// `Stage`: the picture of a moment: shelves with their names, the cells on them, and what is said of the chunk that is
// pointed at. It paints the film that it is given, at the moment where that stands; when, others say.

import { drawing, formatBytes, type RunLengths, type Tier } from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { make, setText } from '../page.ts';
import { Cells, type Motion } from './cells.ts';
import { decoded, type Film, tierOf } from './film.ts';
import { letterOf, Paint } from './paint.ts';
import type { Playback } from './playback.ts';
import { type ShelfName, Shelves } from './shelves.ts';
import { chunkWords, whereabouts } from './words.ts';

const NAMES: Readonly<Record<ShelfName, string>> = {
  gpu: 'GPU',
  activations: 'activations',
  staging: 'staging',
  host: 'host memory',
  disk: 'disk',
};

/** Of kinds, where there is no room for their names; of the others, all frozen, too. */
const SHORT_KINDS: Readonly<Record<string, string>> = {
  parameter: 'params',
  parameterBF16: 'params',
  parameterLow: 'rest',
  parameterF16: 'params',
  master: 'f32',
  gradient: 'grads',
  gradientBF16: 'grads',
  gradientF16: 'grads',
  moment1: '1st m.',
  moment2: '2nd m.',
  moment1BF16: '1st m.',
  moment2BF16: '2nd m.',
  activation: 'activ.',
};

/** The height that is wished for: narrow pages are taller than wide ones. */
const heightFor = (width: number, activations: boolean): number => (width < 540 ? 430 : 360) + (activations ? 44 : 0);

export class Stage {
  readonly element = make('div', { className: 'stage' });
  readonly #resting = make('canvas');
  readonly #above = make('canvas', { className: 'above' });
  readonly #names = make('div', { className: 'names' });
  readonly #note = make('p', { className: 'nothing-moves' });
  readonly #tip = make('div', { className: 'tip' });
  readonly #marked: (chunk: number | undefined) => void;
  /** By shelf: how much of it is taken. */
  readonly #taken = new Map<ShelfName, HTMLElement>();
  #film: Film | undefined;
  #shelves: Shelves | undefined;
  #cells: Cells | undefined;
  /** There is a shelf for the disk. */
  #disk = false;
  /** Pressed, and not only pointed at. */
  #pinned = false;

  /** `marked`: another chunk is pointed at, or none. */
  constructor(marked: (chunk: number | undefined) => void) {
    this.#marked = marked;
    this.#tip.setAttribute('role', 'status');
    this.#tip.hidden = true;
    this.#note.hidden = true;
    this.#resting.ariaHidden = 'true';
    this.#above.ariaHidden = 'true';
    this.element.append(this.#resting, this.#above, this.#names, this.#note, this.#tip);
    this.element.tabIndex = 0;
    this.element.setAttribute('role', 'application');
    this.element.setAttribute('aria-roledescription', 'chunks and activations in their tiers');
    this.element.addEventListener('pointermove', (event) => {
      if (event.pointerType === 'mouse' && !this.#pinned) this.#point(event);
    });
    this.element.addEventListener('pointerleave', () => {
      if (!this.#pinned) this.#mark(undefined);
    });
    this.element.addEventListener('click', (event) => {
      this.#pinned = false;
      this.#point(event);
      this.#pinned = this.marked !== undefined;
    });
    this.element.addEventListener('keydown', (event) => this.#key(event));
  }

  get marked(): number | undefined {
    return this.#cells?.marked;
  }

  get gutter(): number {
    return this.#shelves?.gutter ?? 0;
  }

  /** Another film, another width or other colours. Chunks of before set out from where they were, if it takes time. */
  show(film: Film, width: number, colors: drawing.Colors, note: string, motion: Motion): void {
    const { lists, slots, staging, chunks } = film.history;
    const goesTo = (runs: RunLengths, tiers: readonly Tier[]) =>
      runs.some((code, i) => i % 2 === 0 && tiers.includes(tierOf(code)));
    const onDisk = film.rows.some((runs) => goesTo(runs, ['disk']));
    const activations = film.rows.slice(chunks.length).map((runs) => goesTo(runs, ['staging', 'host', 'disk']));
    // A step that leaves the disk alone, between others, does not take the shelf away.
    const disk = onDisk || (this.#film?.rows.length === film.rows.length && this.#disk);
    this.#disk = disk;
    const before = motion.milliseconds > 0 ? this.#cells : undefined;
    const marked = this.#cells?.marked;
    this.#film = film;
    this.#shelves = new Shelves(
      { lists, slots, staging, disk, activations },
      width,
      heightFor(width, activations.length > 0),
    );
    this.element.style.height = `${this.#shelves.height}px`;
    const canvases = { resting: this.#resting, above: this.#above };
    this.#cells = new Cells(canvases, film, this.#shelves, new Paint(colors), motion, before);
    this.#cells.marked = marked !== undefined && marked < film.rows.length ? marked : undefined;
    this.#nameShelves(this.#shelves);
    this.#note.hidden = note === '';
    setText(this.#note, note);
    // Below the shelves, where there is room, or else upon them.
    const { bottom } = this.#shelves.shelves.at(-1) ?? { bottom: 0 };
    const { height } = this.#shelves;
    this.#note.style.top = `${height - bottom > 70 ? (bottom + height) / 2 : bottom - 50}px`;
    this.tell();
  }

  /** Goes to a moment. */
  seek(moment: number, motion: Motion): void {
    if (!this.#film || !this.#cells) return;
    this.#film.seek(moment, this.#cells.changed);
    this.#cells.follow(motion);
    this.tell();
  }

  /** Chunks that are needed soon set out, so as to be there in time. */
  expect(playback: Pick<Playback<never>, 'glide' | 'pace' | 'until'>, time: number): void {
    const cells = this.#cells;
    this.#film?.ahead(Math.ceil(playback.glide / playback.pace), (chunk, slot, moment) => {
      cells?.expect(chunk, slot, time, time + playback.until(moment));
    });
  }

  /** The film does not go on: cells that have set out go back. */
  recall(motion: Motion): void {
    this.#cells?.recall();
    this.#cells?.follow(motion);
  }

  /** Paints what moves; false when nothing does. */
  frame(time: number, pulse: number): boolean {
    return this.#cells?.frame(time, pulse) ?? false;
  }

  /** What is on each shelf, and what of the marked chunk. */
  tell(): void {
    const film = this.#film;
    if (!film) return;
    const { slots, staging, chunkBytes, chunks, activations } = film.history;
    const counts = { gpu: 0, staging: 0, host: 0, disk: 0, none: 0 };
    const bytes = { ...counts };
    const here = { ...counts };
    film.codes.forEach((code, which) => {
      const { tier } = decoded(code);
      const tensor = activations.tensors[which - chunks.length];
      if (tensor) here[tier] += tensor.bytes;
      else counts[tier]++;
      bytes[tier] += tensor ? tensor.bytes : chunkBytes;
    });
    const held = (tier: 'host' | 'disk') => formatBytes(bytes[tier]);
    const texts: Record<ShelfName, string> = {
      gpu: `${counts.gpu} of ${slots} slots`,
      staging: `${film.staged[film.at] ?? 0} of ${staging}`,
      activations: formatBytes(here.gpu),
      host: held('host'),
      disk: held('disk'),
    };
    for (const [name, taken] of this.#taken) setText(taken, texts[name]);
    this.#tellMarked(film);
  }

  #nameShelves(shelves: Shelves): void {
    this.#names.replaceChildren();
    this.#taken.clear();
    for (const { name, top } of shelves.shelves) {
      const taken = make('span');
      const label = make('p', { className: shelves.gutter === 0 ? 'above' : '' }, make('b', {}, NAMES[name]), taken);
      const above = shelves.gutter === 0 ? (name === 'host' ? 38 : 20) : 1;
      label.style.top = `${top - above}px`;
      label.style.width = shelves.gutter === 0 ? '100%' : `${shelves.gutter}px`;
      this.#taken.set(name, taken);
      this.#names.append(label);
    }
    const larger = shelves.sizeOn('staging') / shelves.sizeOn('host');
    if (larger > 1) {
      const scale = make('p', { className: 'scale' }, `drawn ${Number(larger.toFixed(1))}× as large as below`);
      scale.style.top = `${(shelves.shelf('staging')?.bottom ?? 0) - 18}px`;
      this.#names.append(scale);
    }
    const top = shelves.shelf('host')?.top ?? 0;
    const labels = shelves.columns.map(({ kind, x, width }, i) => {
      const letter = shelves.gutter > 0 && shelves.sizeOn('gpu') >= 13 ? `${letterOf(kind)} `.trimStart() : '';
      const room = Math.max(width, (shelves.columns[i + 1]?.x ?? shelves.width) - x - 4);
      const label = make(
        'p',
        { className: 'kind' },
        shelves.columns.length > 1 ? `${letter}${drawing.WORDS[kind]}` : '',
      );
      label.style.left = `${x}px`;
      label.style.top = `${top - 18}px`;
      label.style.maxWidth = `${room}px`;
      this.#names.append(label);
      return { label, short: `${letter}${SHORT_KINDS[kind] ?? 'frozen'}` };
    });
    // All at once: they are laid out for it.
    const cut = labels.filter(({ label }) => label.scrollWidth > label.clientWidth);
    for (const { label, short } of cut) setText(label, short);
  }

  #point({ clientX, clientY }: MouseEvent): void {
    const box = this.element.getBoundingClientRect();
    const spot = this.#shelves?.at(clientX - box.left, clientY - box.top);
    this.#mark(spot && this.#cells?.chunkAt(spot));
  }

  #key(event: KeyboardEvent): void {
    const count = this.#film?.rows.length ?? 0;
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Escape') {
      this.#pinned = false;
      this.#mark(undefined);
    } else if (by !== undefined && count > 0) {
      event.preventDefault();
      this.#pinned = true;
      this.#mark(this.marked === undefined ? 0 : (this.marked + by + count) % count);
    }
  }

  #mark(chunk: number | undefined): void {
    if (!this.#cells || this.#cells.marked === chunk) return;
    this.#cells.marked = chunk;
    if (this.#film) this.#tellMarked(this.#film);
    this.#marked(chunk);
  }

  #tellMarked(film: Film): void {
    const { marked } = this;
    this.#tip.hidden = marked === undefined;
    if (marked === undefined || !this.#cells || !this.#shelves) return;
    const lines = [chunkWords(film, marked), whereabouts(film, marked)];
    if (this.#tip.children.length !== lines.length) this.#tip.replaceChildren(...lines.map(() => make('div')));
    lines.forEach((line, i) => {
      setText(at(this.#tip.children, i), line);
    });
    // Beside where the chunk belongs, on the side that has more room.
    const [x, y, size] = this.#cells.placeOf(marked);
    const { width, height } = this.#shelves;
    this.#tip.style.left = x < width / 2 ? `${x + size + 12}px` : 'auto';
    this.#tip.style.right = x < width / 2 ? 'auto' : `${width - x + 12}px`;
    this.#tip.style.top = `${Math.min(Math.max(0, y - 8), height - 52)}px`;
  }
}
