// `SimulatedLink`: what is between the CPU, the GPU and the tiers below on the simulated clock: commands that are encoded and
// submitted, staging each way, and values on their way down, by the rules of run/link.ts and run/staging.ts. It knows no
// chunks: what a value is to the step is simulation.ts's affair.
//
// Invariant: a command has its place in time once it is submitted, behind all that it is said to be behind.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Fit } from '../compile/fitted.ts';
import { later, latest, Resource, type SimulatedTask, type Work, waitedFor } from './clock.ts';
import type { Machine } from './machine.ts';

/** A command on the GPU; it has a task once it is submitted. */
export interface Command {
  readonly work: 'compute' | 'up' | 'down' | 'network';
  readonly seconds: number;
  /** Nothing once it is submitted: what was waited for is of no use any more. */
  after: readonly (Command | undefined)[];
  task: SimulatedTask | undefined;
}

/** A value that goes down. */
export interface Leaving {
  readonly id: number;
  readonly bytes: number;
  readonly after: readonly (Command | undefined)[];
}

/** What comes down in one turn. */
interface Store {
  readonly ids: readonly number[];
  readonly bytes: readonly number[];
  readonly sequence: number | undefined;
  /** None once it is submitted. */
  behind: readonly Store[];
  readonly arrived: (() => void) | undefined;
  done: SimulatedTask | undefined;
}

/** `sequence`: stores of another one are behind it. `arrived`: called once it is submitted. */
export type SimulatedStoreOptions = Partial<Pick<Store, 'sequence' | 'arrived'>>;

const NOTHING: readonly never[] = [];

const nothing = (): Record<Work, number> => ({
  ...{ compute: 0, up: 0, down: 0, host: 0, network: 0, bubble: 0, diskRead: 0, diskWrite: 0 },
});

export class SimulatedLink {
  readonly #machine: Machine;
  readonly #staging: Fit['staging'];
  readonly #put: (id: number, behind: SimulatedTask, bytes: number) => SimulatedTask | undefined;
  readonly #queues: Readonly<Record<Command['work'], Resource>>;
  /** What comes from other ranks, beside what goes to them. */
  readonly #incoming = new Resource();
  /** What the CPU waited for last. */
  #now: SimulatedTask | undefined;
  #lastCompute: SimulatedTask | undefined;
  #unsent: Command[] = [];
  #unsentStores: Store[] = [];
  readonly #stores: Store[] = [];
  /** By number, of what changes below, and the last of all. */
  readonly #changes = new Map<number, SimulatedTask>();
  #lastChange: SimulatedTask | undefined;
  #storing = 0;
  #unsentDown = 0;
  /** Staging on the way up: what each free buffer is free behind, and those that are filled. */
  readonly #emptying: (SimulatedTask | undefined)[];
  #filled = 0;
  #waits = nothing();
  #compute = 0;
  #up = 0;
  #down = 0;

  /** `put` takes a value that has come down, behind a task. */
  constructor(
    machine: Machine,
    staging: Fit['staging'],
    put: (id: number, behind: SimulatedTask, bytes: number) => SimulatedTask | undefined,
  ) {
    this.#machine = machine;
    this.#staging = staging;
    this.#put = put;
    const shared = new Resource();
    const isSerial = machine.link.copies === 'serial';
    this.#queues = {
      compute: shared,
      up: isSerial ? shared : new Resource(),
      down: isSerial ? shared : new Resource(),
      network: new Resource(),
    };
    this.#emptying = Array.from({ length: staging.up }, () => undefined);
  }

  /** Seconds to the end of the last arithmetic, seconds of arithmetic, and bytes, since the beginning. */
  get totals(): { readonly end: number; readonly compute: number; readonly up: number; readonly down: number } {
    return { end: this.end, compute: this.#compute, up: this.#up, down: this.#down };
  }

  /** Seconds to the end of the arithmetic that was submitted last. */
  get end(): number {
    return this.#lastCompute?.end ?? 0;
  }

  /** Seconds that arithmetic stood still for since they were taken last. */
  takeWaits(): Readonly<Record<Work, number>> {
    const taken = this.#waits;
    this.#waits = nothing();
    return taken;
  }

  /** What the CPU waited for last. */
  get now(): SimulatedTask | undefined {
    return this.#now;
  }

  /** The CPU waits, while the GPU does what is encoded. */
  wait(task: SimulatedTask | undefined): void {
    if (task && task.end > (this.#now?.end ?? 0)) this.flush();
    this.#now = later(this.#now, task);
  }

  encode(work: Command['work'], seconds: number, after: readonly (Command | undefined)[]): Command {
    const command: Command = { work, seconds, after, task: undefined };
    this.#unsent.push(command);
    return command;
  }

  /** What the CPU itself does over the network both ways, behind all of these; it waits for it where it says so. */
  post(seconds: number, after: readonly (SimulatedTask | undefined)[] = []): SimulatedTask {
    const task = this.#queues.network.run('network', seconds, [this.#now, this.#incoming.last, ...after]);
    this.#incoming.run('network', 0, [task]);
    return task;
  }

  /** As `post`, one way, while the other may be busy. */
  postOneWay(way: 'out' | 'in', seconds: number, after: readonly (SimulatedTask | undefined)[] = []): SimulatedTask {
    const resource = way === 'in' ? this.#incoming : this.#queues.network;
    return resource.run('network', seconds, [this.#now, ...after]);
  }

  /** The arithmetic that was submitted last. */
  get lastCompute(): SimulatedTask | undefined {
    return this.#lastCompute;
  }

  flushIfDue(): void {
    const { up, down } = this.#staging;
    if (this.#filled >= Math.max(1, up >> 1) || this.#unsentDown >= Math.max(1, down >> 1)) this.flush();
  }

  /** Submits what is encoded: only now does it have its place in time. */
  flush(): void {
    const submitted = this.#now;
    let last: SimulatedTask | undefined;
    for (const command of this.#unsent) {
      const { work, seconds } = command;
      const before = this.#lastCompute;
      let behind = submitted;
      for (const other of command.after) behind = later(behind, other?.task);
      const task = this.#queues[work].run(work, seconds, [behind]);
      command.task = task;
      command.after = NOTHING;
      if (work !== 'network') last = later(last, task);
      if (work === 'compute') {
        this.#compute += seconds;
        if (task.start > (before?.end ?? 0)) waitedFor(task, before?.end ?? 0, this.#waits);
        this.#lastCompute = task;
      }
    }
    this.#unsent = [];
    const end = this.#answered(last);
    // A buffer is mapped again when all that was submitted with it is done.
    for (; this.#filled > 0; this.#filled--) this.#emptying.push(end);
    this.#unsentDown = 0;
    for (const store of this.#unsentStores) {
      const put = store.ids.map((id, i) => (end ? this.#put(id, end, at(store.bytes, i)) : undefined));
      const changes = store.ids.map((id) => this.#changes.get(id));
      store.done = latest([...put, ...changes, ...store.behind.map(({ done }) => done)]);
      store.behind = NOTHING;
      store.arrived?.();
    }
    this.#unsentStores = [];
  }

  #copySeconds(bytes: number, way: 'up' | 'down'): number {
    const { upBytesPerSecond, downBytesPerSecond, copySeconds = 0 } = this.#machine.link;
    return copySeconds + bytes / (way === 'up' ? upBytesPerSecond : downBytesPerSecond);
  }

  /** When the CPU knows of it. */
  #answered(done: SimulatedTask | undefined): SimulatedTask | undefined {
    const { answerSeconds = 0 } = this.#machine.link;
    if (!done || answerSeconds === 0) return done;
    return { work: done.work, start: done.end, end: done.end + answerSeconds, behind: done };
  }

  /** Once there is room in staging. */
  roomUp(): void {
    if (this.#filled === this.#staging.up) this.flush();
    this.wait(this.#emptying.shift());
  }

  /** Bytes that go up, for which there is room. */
  send(bytes: number, after: readonly (Command | undefined)[]): Command {
    this.#up += bytes;
    this.#filled++;
    return this.encode('up', this.#copySeconds(bytes, 'up'), after);
  }

  /** Bytes that the CPU reads on the GPU, and waits for. */
  read(bytes: number, after: readonly (Command | undefined)[]): Command {
    while (this.#storing === this.#staging.down) this.#awaitOldest();
    this.#down += bytes;
    const command = this.encode('down', this.#copySeconds(bytes, 'down'), after);
    this.flush();
    return command;
  }

  /** Values that can go down with nothing waited for. */
  get roomDown(): number {
    const now = this.#now?.end ?? 0;
    for (let [oldest] = this.#stores; oldest?.done && oldest.done.end <= now; [oldest] = this.#stores) {
      this.#stores.shift();
      this.#storing -= oldest.ids.length;
    }
    return this.#staging.down - this.#storing;
  }

  store(values: readonly Leaving[], { sequence, arrived }: SimulatedStoreOptions = {}): Command[] {
    while (this.#staging.down - this.#storing < values.length) this.#awaitOldest();
    this.#storing += values.length;
    const commands = values.map(({ bytes, after }) => {
      this.#down += bytes;
      return this.encode('down', this.#copySeconds(bytes, 'down'), after);
    });
    this.#unsentDown += values.length;
    const ids = values.map(({ id }) => id);
    const behind = this.#stores.filter(
      (older) =>
        older.ids.some((id) => ids.includes(id)) ||
        (sequence !== undefined && older.sequence !== undefined && older.sequence !== sequence),
    );
    const store: Store = { ids, bytes: values.map(({ bytes }) => bytes), sequence, behind, arrived, done: undefined };
    this.#stores.push(store);
    this.#unsentStores.push(store);
    return commands;
  }

  /** These values change below, in a task: they are on their way down until it ends. */
  changeBelow(ids: readonly number[], task: SimulatedTask): void {
    for (const id of ids) this.#changes.set(id, task);
    this.#lastChange = latest([this.#lastChange, task]);
  }

  isGoingDown(id: number): boolean {
    const store = this.#newestOf(id);
    const isLater = (task: SimulatedTask) => task.end > (this.#now?.end ?? 0);
    if (store && (!store.done || isLater(store.done))) return true;
    const change = this.#changes.get(id);
    return change !== undefined && isLater(change);
  }

  /** Behind this a value has arrived, if it is on its way down. */
  arrivalOf(id: number): SimulatedTask | undefined {
    const store = this.#newestOf(id);
    if (store && !store.done) this.flush();
    return latest([store?.done, this.#changes.get(id)]);
  }

  /** What is on its way down has arrived. */
  awaitArrival(id: number): void {
    this.wait(this.arrivalOf(id));
  }

  /** Behind this all has arrived that is on its way down, and all arithmetic is done that is encoded. */
  sent(): SimulatedTask | undefined {
    this.flush();
    return latest([...this.#stores.map(({ done }) => done), this.#lastChange, this.#lastCompute]);
  }

  #awaitOldest(): void {
    const oldest = this.#stores.shift();
    assert(oldest, 'staging is in use, but nothing is on its way down');
    this.flush();
    this.wait(oldest.done);
    this.#storing -= oldest.ids.length;
  }

  #newestOf(id: number): Store | undefined {
    return this.#stores.findLast(({ ids }) => ids.includes(id));
  }
}
