// `Playback`: a playlist of pictures as films at reading speed, played, paused or scrubbed; when one has been seen to
// its end, the newest that has come meanwhile follows. Pure arithmetic; the clock is the caller's.

import type { StepPicture } from '../../src/browser/index.ts';

/** Milliseconds that a step takes to read: so many a moment, within bounds; one that took longer plays as it was. */
const PER_MOMENT = 22;
const SHORTEST = 4000;
const LONGEST = 14000;
/** At the end of a film, for the last cells to arrive. */
const CURTAIN = 700;
/** A chunk takes so many moments from one shelf to another: less time where much moves at once. */
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

/** What of a picture counts here. */
type Reel = Pick<StepPicture, 'run' | 'budget' | 'milliseconds'> & { history: { operators: { length: number } } };

export class Playback<Picture extends Reel> {
  playing = true;
  #picture: Picture | undefined;
  #next: Picture | undefined;
  #moments = 1;
  #duration = SHORTEST;
  /** In moments, whole and fraction, and milliseconds behind the last one. */
  #position = 0;
  #behind = 0;

  get picture(): Picture | undefined {
    return this.#picture;
  }

  /** The newest picture: it follows, or begins at once where it is of another run or under another budget. */
  offer(picture: Picture): 'at once' | 'later' {
    this.#next = picture;
    return picture.run === this.#picture?.run && picture.budget === this.#picture.budget ? 'later' : 'at once';
  }

  /** The newest picture begins. False: there is none but the one that is shown. */
  begin(): boolean {
    if (!this.#next) return false;
    this.#picture = this.#next;
    this.#next = undefined;
    this.#moments = this.#picture.history.operators.length;
    this.#duration = readingTime(this.#moments, this.#picture.milliseconds);
    this.#position = 0;
    this.#behind = 0;
    return true;
  }

  clear(): void {
    this.#picture = undefined;
    this.#next = undefined;
    this.playing = true;
  }

  get moment(): number {
    return Math.min(this.#moments - 1, Math.floor(this.#position));
  }

  get atEnd(): boolean {
    return this.#position >= this.#moments;
  }

  /** The film has been seen to its end, and another follows. */
  get isOver(): boolean {
    return this.playing && this.#next !== undefined && this.#behind >= CURTAIN;
  }

  /** Time changes something: it plays, and has not come to an end behind which nothing follows. */
  get goesOn(): boolean {
    return this.playing && this.#picture !== undefined && (!this.atEnd || this.#next !== undefined);
  }

  /** Another picture would be looked at soon; recording it takes two steps at most, the one under way and the next. */
  get wantsNext(): boolean {
    if (this.#next || !this.playing) return false;
    return !this.#picture || this.until(this.#moments) <= 2 * this.#picture.milliseconds;
  }

  /** Milliseconds of a moment. */
  get pace(): number {
    return this.#duration / this.#moments;
  }

  /** Milliseconds until a moment is shown. */
  until(moment: number): number {
    return (moment - this.#position) * this.pace;
  }

  /** Milliseconds that a chunk takes from one shelf to another. */
  get glide(): number {
    return Math.min(LONGEST_GLIDE, Math.max(SHORTEST_GLIDE, this.pace * GLIDE_MOMENTS));
  }

  advance(milliseconds: number): void {
    if (!this.playing || !this.#picture) return;
    const to = this.#position + milliseconds / this.pace;
    this.#behind += Math.max(0, to - Math.max(this.#moments, this.#position)) * this.pace;
    this.#position = Math.min(this.#moments, to);
  }

  seek(moment: number): void {
    this.#position = Math.min(this.#moments - 1, Math.max(0, moment));
    this.#behind = 0;
  }
}
