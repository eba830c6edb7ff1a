// `Seeing`: a picture for a model that tells images apart: drawn, pasted or chosen, and under it what the run that is
// shown takes it for.

import { type ClassGuess, type Holdfast, messageOf, type RunInfo } from '../src/browser/index.ts';
import { showGuesses } from './guesses.ts';
import { byId, setText } from './page.ts';

const PEN = 14;
const [LIGHT, DARK] = ['#fff', '#000'];

type Trainer = Holdfast['trainer'];

export class Seeing {
  readonly #trainer: () => Trainer | undefined;
  readonly #panel = byId('seeing', HTMLElement);
  readonly #canvas = byId('picture', HTMLCanvasElement);
  readonly #context = this.#canvas.getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
  readonly #note = byId('seeing-note', HTMLElement);
  readonly #guesses = byId('guesses', HTMLElement);
  readonly #hint = this.#note.textContent ?? '';
  #paper = LIGHT;
  #run: RunInfo | undefined;
  #training = false;
  /** There is a picture. */
  #hasPicture = false;
  /** Counts pictures and runs: what is told of an earlier one is not shown. */
  #version = 0;
  #looking = false;

  constructor(trainer: () => Trainer | undefined) {
    this.#trainer = trainer;
    this.#clear();
    this.#canvas.addEventListener('pointerdown', (event) => {
      this.#canvas.setPointerCapture(event.pointerId);
      this.#stroke(event, event);
    });
    this.#canvas.addEventListener('pointermove', (event) => {
      if (event.buttons > 0)
        this.#stroke({ offsetX: event.offsetX - event.movementX, offsetY: event.offsetY - event.movementY }, event);
    });
    this.#canvas.addEventListener('pointerup', () => this.#changed());
    byId('picture-clear', HTMLButtonElement).addEventListener('click', () => this.#clear());
    byId('picture-invert', HTMLButtonElement).addEventListener('click', () => this.#invert());
    const input = byId('picture-file', HTMLInputElement);
    input.addEventListener('change', () => {
      const [file] = input.files ?? [];
      input.value = '';
      if (file) void this.#take(file);
    });
    addEventListener('paste', (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith('image/'));
      if (file && !this.#panel.hidden) void this.#take(file);
    });
  }

  /** The run that is asked, of the picture that is there; undefined: hidden, none looks at images. It is not asked while it trains. */
  show(run: RunInfo | undefined, training: boolean): void {
    this.#panel.hidden = run === undefined;
    if (run?.id === this.#run?.id && run?.savedStep === this.#run?.savedStep && training === this.#training) return;
    this.#run = run;
    this.#training = training;
    this.#say([]);
    if (this.#hasPicture && !training && !this.#panel.hidden) this.#changed();
  }

  #stroke(from: Pick<PointerEvent, 'offsetX' | 'offsetY'>, to: Pick<PointerEvent, 'offsetX' | 'offsetY'>): void {
    const scale = this.#canvas.width / this.#canvas.clientWidth;
    const context = this.#context;
    context.strokeStyle = this.#paper === LIGHT ? DARK : LIGHT;
    context.lineWidth = PEN;
    context.lineCap = 'round';
    context.beginPath();
    context.moveTo(from.offsetX * scale, from.offsetY * scale);
    context.lineTo(to.offsetX * scale, to.offsetY * scale);
    context.stroke();
  }

  #clear(): void {
    this.#context.fillStyle = this.#paper;
    this.#context.fillRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#hasPicture = false;
    this.#version++;
    this.#say([]);
  }

  #invert(): void {
    const pixels = this.#pixels;
    pixels.data.forEach((value, i) => {
      if (i % 4 !== 3) pixels.data[i] = 255 - value;
    });
    this.#context.putImageData(pixels, 0, 0);
    this.#paper = this.#paper === LIGHT ? DARK : LIGHT;
    this.#changed();
  }

  /** All of a picture, in as much of the canvas as it fills. */
  async #take(file: Blob): Promise<void> {
    const bitmap = await createImageBitmap(file).catch(() => undefined);
    if (!bitmap) return this.#say([], 'This picture cannot be read here: save it as PNG.');
    this.#clear();
    const { width, height } = this.#canvas;
    const scale = Math.min(width / bitmap.width, height / bitmap.height);
    const [w, h] = [bitmap.width * scale, bitmap.height * scale];
    this.#context.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
    this.#changed();
  }

  get #pixels(): ImageData {
    return this.#context.getImageData(0, 0, this.#canvas.width, this.#canvas.height);
  }

  #changed(): void {
    this.#hasPicture = true;
    this.#version++;
    void this.#look();
  }

  /** Asks the run, once at a time, until what is shown is of the picture that is there. */
  async #look(): Promise<void> {
    const [trainer, run] = [this.#trainer(), this.#run];
    if (!trainer || !run || this.#looking) return;
    this.#looking = true;
    const version = this.#version;
    const stays = () => version === this.#version && run.id === this.#run?.id;
    try {
      const { width, height, data } = this.#pixels;
      const guesses = await trainer.classify(run.id, { width, height, data });
      if (stays()) this.#say(guesses);
    } catch (error) {
      const problem = this.#training
        ? 'It trains: stop it, or wait until it is done, and draw again.'
        : messageOf(error);
      if (stays()) this.#say([], problem);
    }
    this.#looking = false;
    if (version !== this.#version && this.#hasPicture) await this.#look();
  }

  #say(guesses: readonly ClassGuess[], problem?: string): void {
    setText(this.#note, problem ?? this.#hint);
    this.#note.classList.toggle('problem', problem !== undefined);
    showGuesses(this.#guesses, guesses);
  }
}
