// `OpenChunk`: a chunk that is being filled with parts of tensors, one after the other or read side by side, and set when another
// one follows. Where the bytes of a chunk lie is the caller's.
//
// Invariant: nothing is being read into it any more when it is set, or abandoned.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, KINDS } from '../../memory/layout/kinds.ts';
import { storedBytes } from '../../values/stored-elements.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** Whole chunks; one without a value leaves the bytes that it is read into as they are. */
export interface ChunkValues {
  get(chunk: number, bytes: Bytes): Promise<void>;
  set(chunk: number, bytes: Bytes): Promise<void>;
  /** Where to make a value that is then set, or given back: it holds anything. Absent, and undefined: there is no such place. */
  takeRoom?(chunk: number): Bytes | undefined;
  giveRoomBack?(bytes: Bytes): void;
}

/** Parts that are read at once: enough for threads that read while one widens. */
const AT_ONCE = 4;

export class OpenChunk {
  readonly #map: ChunkMap;
  readonly #given: ReadonlySet<string>;
  readonly #values: ChunkValues;
  readonly #inRooms: boolean;
  /** Where there is no room; used again. */
  #own: Bytes | undefined;
  /** The room of the open chunk, if it has one. */
  #room: Bytes | undefined;
  #chunk = -1;
  /** Under way, in their order. */
  #fills: Promise<void>[] = [];

  /** `given`: tensors that are brought whole. `inRooms`: no other chunk is filled meanwhile. */
  constructor(map: ChunkMap, given: ReadonlySet<string>, values: ChunkValues, inRooms: boolean) {
    this.#map = map;
    this.#given = given;
    this.#values = values;
    this.#inRooms = inRooms;
  }

  /** Of this chunk, which is open from now on. */
  async bytesOf(chunk: number): Promise<Bytes> {
    if (chunk !== this.#chunk) {
      await this.close();
      await this.#begin(chunk);
      this.#chunk = chunk;
    }
    return this.#bytes;
  }

  /** Begins to fill a part of the open chunk, when few others are under way. Errors: those of what was begun before. */
  async fill(begin: () => Promise<void>): Promise<void> {
    if (this.#fills.length === AT_ONCE) await this.#fills.shift();
    const fill = begin();
    // It is awaited later, or never where one before it fails.
    fill.catch(() => {});
    this.#fills.push(fill);
  }

  /** Sets the open chunk, if there is one. */
  async close(): Promise<void> {
    for (let fill = this.#fills.shift(); fill; fill = this.#fills.shift()) await fill;
    if (this.#chunk < 0) return;
    const [chunk, bytes] = [this.#chunk, this.#bytes];
    await this.#values.set(chunk, bytes);
    this.#chunk = -1;
    this.#room = undefined;
  }

  /** Drops the open chunk, if there is one. */
  async abandon(): Promise<void> {
    await Promise.allSettled(this.#fills);
    this.#fills = [];
    this.#chunk = -1;
    if (this.#room) this.#values.giveRoomBack?.(this.#room);
    this.#room = undefined;
  }

  get #bytes(): Bytes {
    this.#own ??= this.#room ? undefined : new Uint8Array(this.#map.chunkBytes);
    return this.#room ?? (this.#own as Bytes);
  }

  async #begin(chunk: number): Promise<void> {
    const held = heldIn(this.#map, chunk);
    const isWhole = held.every(({ name }) => this.#given.has(name));
    if (isWhole) {
      if (this.#inRooms) this.#room = this.#values.takeRoom?.(chunk);
      clearBeside(held, this.#bytes);
    } else {
      this.#bytes.fill(0);
      await this.#values.get(chunk, this.#bytes);
    }
  }
}

/** A part of a tensor in a chunk, in bytes. */
interface Held {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
}

/** From the first byte on. */
function heldIn(map: ChunkMap, chunk: number): Held[] {
  const { kind, first } = map.holding(chunk);
  const { element } = KINDS[kind];
  const held = [...map.layoutOf(kind).pieces].flatMap(([name, all]) =>
    all.flatMap((piece): Held[] => {
      if (first + piece.chunk !== chunk) return [];
      const begin = piece.offset * elementBytesOf(kind);
      return [{ name, begin, end: begin + storedBytes(element, piece.size) }];
    }),
  );
  return held.sort((a, b) => a.begin - b.begin);
}

/** Zeros wherever no tensor lies. */
function clearBeside(held: readonly Held[], bytes: Bytes): void {
  let at = 0;
  for (const { begin, end } of held) {
    bytes.fill(0, at, begin);
    at = end;
  }
  bytes.fill(0, at);
}
