// Where a film of moments stands at a time: at reading speed, played, paused or scrubbed. Pure arithmetic; somebody
// else has the clock.

/** Milliseconds that a step takes to read: so many a moment, within bounds; one that took longer plays as it was. */
const PER_MOMENT = 22;
const SHORTEST = 4000;
const LONGEST = 14000;
const GLIDE_MOMENTS = 15;
const SHORTEST_GLIDE = 180;
const LONGEST_GLIDE = 450;

export const readingTime = (moments: number, milliseconds: number): number =>
  Math.max(milliseconds, Math.min(LONGEST, Math.max(SHORTEST, moments * PER_MOMENT)));

/** "slowed 66×", "in real time". */
export function speedWords(moments: number, milliseconds: number): string {
  const slowed = readingTime(moments, milliseconds) / Math.max(1, milliseconds);
  return slowed < 1.05 ? 'in real time' : `slowed ${slowed < 10 ? slowed.toFixed(1) : Math.round(slowed)}×`;
}

export class Playback {
  playing = true;
  #moments = 1;
  #duration = SHORTEST;
  /** In moments; whole and fraction. */
  #position = 0;

  load(moments: number, milliseconds: number): void {
    this.#moments = moments;
    this.#duration = readingTime(moments, milliseconds);
    this.#position = 0;
  }

  get moment(): number {
    return Math.min(this.#moments - 1, Math.floor(this.#position));
  }

  get atEnd(): boolean {
    return this.#position >= this.#moments;
  }

  /** Milliseconds to the end. */
  get remaining(): number {
    return (1 - this.#position / this.#moments) * this.#duration;
  }

  /** Milliseconds of a moment. */
  get pace(): number {
    return this.#duration / this.#moments;
  }

  /** Milliseconds until a moment is shown. */
  until(moment: number): number {
    return (moment - this.#position) * this.pace;
  }

  /** Milliseconds that a chunk may take from one shelf to another: fewer where much moves at once. */
  get glide(): number {
    return Math.min(LONGEST_GLIDE, Math.max(SHORTEST_GLIDE, this.pace * GLIDE_MOMENTS));
  }

  advance(milliseconds: number): void {
    if (this.playing)
      this.#position = Math.min(this.#moments, this.#position + (milliseconds / this.#duration) * this.#moments);
  }

  seek(moment: number): void {
    this.#position = Math.min(this.#moments - 1, Math.max(0, moment));
  }
}
