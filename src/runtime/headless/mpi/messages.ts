// Messages between ranks over MPI. Every call begins something and returns; what is under way is polled between turns of
// the event loop, with naps, so that software adapters on the same cores go on computing. No call blocks: a process can
// always exit, and an error is always reported.
//
// Invariant: what is handed to MPI stays reachable, and its bytes unchanged, until MPI is done with it.

import os from 'node:os';
import process from 'node:process';
import { setImmediate } from 'node:timers';
import { HoldfastError } from '../../../util/errors.ts';
import type { Messages } from '../../host.ts';
import { launchOf } from './launcher.ts';
import { beginMpi, type MpiLibrary, type MpiRequest } from './library.ts';

/** MPI counts bytes in 31 bits. */
const LONGEST = 2 ** 30;
/** Looks at what is under way before the first nap. */
const LOOKS = 8;
/** The length of a nap between two looks. A dispatch on a software adapter takes longer. */
const NAP_MS = 0.05;
/** For the launcher to read a rank's last words. */
const HEARD_MS = 200;

interface UnderWay {
  readonly request: MpiRequest;
  /** Here so that it is not collected. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly done: () => void;
}

let joined: { readonly library: MpiLibrary; readonly messages: MpiMessages } | undefined;

const NO_MESSAGES = () => Promise.reject(new Error('internal: there is no other rank'));
/** Of a launcher that started one process: no MPI is needed. */
const LONE: Messages = { rank: 0, size: 1, library: 'none', send: NO_MESSAGES, receive: NO_MESSAGES };

/** The ranks of the job that this process is a part of; undefined where no launcher started it. Errors: HoldfastError. */
export async function joinRanks(): Promise<Messages | undefined> {
  if (joined) return joined.messages;
  const launch = launchOf();
  if (!launch) return undefined;
  if (launch.size === 1) return LONE;
  const library = await beginMpi(launch.isOpenMpi);
  if (launch.size !== undefined && library.size !== launch.size) {
    throw new HoldfastError(
      `one of ${launch.size} ranks: ${library.name} knows of ${library.size}; start them with the mpiexec of the same MPI`,
    );
  }
  if (library.size === 1) {
    library.finalize();
    return LONE;
  }
  const messages = new MpiMessages(library);
  joined = { library, messages };
  return messages;
}

/** Before the process ends: the other ranks end with it if something went wrong, and with their own end otherwise. */
export function leaveRanks(status: number): void {
  if (!joined) return;
  const { library } = joined;
  joined = undefined;
  if (status === 0) library.finalize();
  else {
    // The launcher drops what it has not read yet of any rank when one aborts.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, HEARD_MS);
    library.abort(status);
  }
}

/** `Messages` over a loaded MPI library. */
class MpiMessages implements Messages {
  readonly process = { pid: process.pid, machine: os.hostname() };
  readonly #library: MpiLibrary;
  #underWay: UnderWay[] = [];
  #looks = 0;
  #isLooking = false;
  readonly #never = new Int32Array(new SharedArrayBuffer(4));

  constructor(library: MpiLibrary) {
    this.#library = library;
  }

  get rank(): number {
    return this.#library.rank;
  }
  get size(): number {
    return this.#library.size;
  }
  get library(): string {
    return this.#library.name;
  }

  send(to: number, channel: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    return this.#begin(bytes, (piece) => this.#library.send(piece, to, channel));
  }

  receive(from: number, channel: number, into: Uint8Array<ArrayBuffer>): Promise<void> {
    return this.#begin(into, (piece) => this.#library.receive(piece, from, channel));
  }

  async #begin(bytes: Uint8Array<ArrayBuffer>, start: (piece: Uint8Array<ArrayBuffer>) => MpiRequest): Promise<void> {
    const pieces: Promise<void>[] = [];
    for (let first = 0; first === 0 || first < bytes.length; first += LONGEST) {
      const piece = bytes.subarray(first, first + LONGEST);
      const request = start(piece);
      if (this.#library.isDone(request)) continue;
      pieces.push(
        new Promise((done) => {
          this.#underWay.push({ request, bytes: piece, done });
        }),
      );
    }
    this.#looks = 0;
    if (pieces.length > 0 && !this.#isLooking) {
      this.#isLooking = true;
      setImmediate(this.#look);
    }
    await Promise.all(pieces);
  }

  readonly #look = (): void => {
    const before = this.#underWay;
    this.#underWay = before.filter(({ request, done }) => {
      const isDone = this.#library.isDone(request);
      if (isDone) done();
      return !isDone;
    });
    if (this.#underWay.length < before.length) this.#looks = 0;
    this.#isLooking = this.#underWay.length > 0;
    if (!this.#isLooking) return;
    if (this.#looks++ > LOOKS) Atomics.wait(this.#never, 0, 0, NAP_MS);
    setImmediate(this.#look);
  };
}
