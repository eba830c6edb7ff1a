// The host port: what the library needs of the place it runs in, GPUs to choose from, files, a terminal. One interface,
// implemented once per place: headless.ts for Node and Deno, browser.ts. Nothing above names a runtime.

import { HoldfastError } from '../util/errors.ts';

/** Files and folders of the place. Errors of all: HoldfastError naming the path. */
export interface Files {
  /**
   * The whole file. `most`: bytes that a pipe may bring, whose size is not known before; see `readWhole`. Errors: HoldfastError
   * naming the path when it is missing or unreadable, and, with `fix`, where there are more.
   */
  read(path: string, most?: number, fix?: string): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * These bytes of the file: in a buffer of their own, or, where the place can, at the beginning of `into`, which has room for
   * them. Errors: as `read`, and when the file ends before them.
   */
  readRange(
    path: string,
    offset: number,
    bytes: number,
    into?: Uint8Array<ArrayBuffer>,
  ): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * Writes beside the target, flushes, then renames: the path holds the old bytes or the new, never a mix. Which of them
   * after a loss of power, `syncFolder` decides. Links stay, and what they lead to is written. Errors: HoldfastError, at once,
   * where a folder, a pipe or a device lies there.
   */
  writeAtomic(path: string, bytes: Uint8Array | string): Promise<void>;
  /** As `writeAtomic`, of bytes that come in pieces: until `commit` the path has what it had, or nothing. */
  writeStream(path: string): Promise<WriteStream>;
  /** Undefined when nothing is there. Links are followed. */
  stat(path: string): Promise<FileStat | undefined>;
  /** Names in a folder, sorted. */
  list(folder: string): Promise<string[]>;
  /** With those above it that are missing. Their names survive a loss of power. */
  makeFolder(path: string): Promise<void>;
  /**
   * The names in a folder, as they are now, survive a loss of power; without, each that was made, moved or removed
   * since may or may not. Does nothing where the place has no such thing.
   */
  syncFolder(path: string): Promise<void>;
  /** Moves a folder or file; on one file system this is atomic. A folder takes the place of an empty one, and of nothing else. */
  rename(from: string, to: string): Promise<void>;
  /**
   * A new folder beside `path`, with those above it that are missing, and with a name that nothing else has: what becomes
   * `path` by `rename` once it is whole.
   */
  makePartial(path: string): Promise<string>;
  /** Removes from a folder what writers that are gone have left there: of `writeStream` and, where that can be told, of `makePartial`. */
  removePartials(folder: string): Promise<void>;
  /** Removes a file or a folder with all in it; silent when nothing is there. */
  remove(path: string): Promise<void>;
  /** Opens a file for reading. Errors: as `read`. */
  open(path: string): Promise<OpenFile>;
  /** What may still be written into a folder that is there, in bytes. Absent where the place does not say. */
  freeBytes?(folder: string): Promise<number>;
  /** The checksum of bytes that come in pieces, by the fastest way of the place. */
  sha256(): Promise<Sha256>;
  /** A path from the root, which stays what it is where the program goes to another folder. Absent where there is no other. */
  absolute?(path: string): string;
}

export interface FileStat {
  /** 'other': a device, a socket, a link that leads back to itself. */
  readonly kind: 'file' | 'folder' | 'pipe' | 'other';
  readonly bytes: number;
  /** Equal for two paths that lead to one file or folder; absent where there are no links. */
  readonly id?: string;
}

/** A folder that is this process's alone. */
export interface FolderClaim {
  readonly folder: string;
  /**
   * Takes it again where it was moved away or removed since, and makes it anew then: false where it is another folder than before.
   * Absent where that cannot be. Errors: as of taking it.
   */
  hold?(): Promise<boolean>;
  /** Gives it back, and removes what was made to take it: the folder, too, if nothing was put in it. */
  release(): Promise<void>;
}

/** The error of a folder that another process has, which is not known to be gone. */
export class FolderHeld extends HoldfastError {}

/** As much of it as reading a model takes. Without `open`, reading a range is as cheap as it can be. */
export type FolderReader = Pick<Files, 'read' | 'readRange' | 'stat' | 'list' | 'sha256'> &
  Partial<Pick<Files, 'open'>>;

/** As much of a host as looking into data takes. */
export interface ReadingHost {
  readonly files: FolderReader & Pick<Files, 'open'>;
}

/** A file that stays readable until it is closed, also where it is moved or removed; in a browser, until it is removed. */
export interface OpenFile {
  /** Its size when it was opened. */
  readonly bytes: number;
  /** As `Files.readRange`. */
  readRange(offset: number, bytes: number, into?: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>>;
  /** Nothing is read after it. */
  close(): Promise<void>;
}

/** A SHA-256 in the making. */
export interface Sha256 {
  /** The bytes may be used again at once. */
  update(bytes: Uint8Array): void;
  /** Ends it: 64 digits in lower case. */
  hex(): string;
}

/** A file that is being written. It ends with one `commit` or one `abort`; after an error only `abort` is left. */
export interface WriteStream {
  /** Appends. The bytes may be used again once the promise resolves. */
  write(bytes: Uint8Array): Promise<void>;
  /** Flushes and renames. */
  commit(): Promise<void>;
  /** Removes what was written. Never fails: it follows the error that matters. */
  abort(): Promise<void>;
}

/** A file that is written in several goes: what an earlier one wrote is there still. It ends with `commit` or `close`. */
export interface ResumedFile {
  /** Bytes that were there when it was opened. */
  readonly written: number;
  /** Appends. */
  write(bytes: Uint8Array): Promise<void>;
  /** Drops what was written. */
  restart(): Promise<void>;
  /** Flushes, and puts it at its path. */
  commit(): Promise<void>;
  /** Leaves it, to be gone on with. */
  close(): Promise<void>;
}

/**
 * A file of fixed size, read and written at offsets: the slow tier below host memory. Any number of reads and
 * writes may be under way at once, no two writes to one place; a read of a place that is being written brings
 * anything. Both say how many bytes they moved, which may be fewer than asked, and throw what the system throws
 * (with its `code` or `name`). Until they resolve, bytes to write must not change, and bytes to read into not be used.
 */
export interface BlockFile {
  /** For messages. */
  readonly path: string;
  /** Its size, which is fixed. */
  readonly bytes: number;
  /** Fills `into` from the offset on; resolves to the bytes that were read. */
  read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number>;
  /** Writes `from` at the offset; resolves to the bytes that were written. */
  write(offset: number, from: Uint8Array<ArrayBuffer>): Promise<number>;
  /** Closes and removes the file. */
  remove(): Promise<void>;
}

/** One way to reach adapters: the system's drivers, or the software adapter that arrives with the package. */
export interface GPUSource {
  /** For messages: "system", "embedded SwiftShader", "llvmpipe (lvp_icd.json)". */
  readonly name: string;
  /** Whether it is the software adapter that arrives with the package. */
  readonly embedded: boolean;
  /** Its entry to WebGPU. Errors: HoldfastError saying what is missing. */
  open(options?: GPUSourceOptions): Promise<GPU>;
}

/** What a source of WebGPU is opened for. */
export interface GPUSourceOptions {
  /** Shaders that are not this project's run there, too: SwiftShader in Node then has each index compared with its array's length. @default false */
  readonly foreign?: boolean;
}

/** The exit status of a process whose output is not all there. */
export const UNWRITTEN = 1;

/** Where lines are shown. */
export interface Terminal {
  /** Whether a person looks at it: else lines stay plain. */
  readonly interactive: boolean;
  /** Its width in characters. */
  readonly columns: number;
  /** To standard output, as it is; to a terminal, without control characters but those of a progress display. */
  write(text: string): void;
  /** To standard error, as `write` does. */
  warn(text: string): void;
  /** Whether standard output cannot be written to any more, which was said. */
  readonly isLost?: boolean;
}

/**
 * Messages between the processes of one job, its ranks. What one rank sends another over a channel arrives in order; what
 * goes over different channels does not wait for each other.
 */
export interface Messages {
  /** Of this process, from 0. */
  readonly rank: number;
  /** Ranks of the job. With 1 nothing can be sent, and no library was looked for. */
  readonly size: number;
  /** What moves them, for messages: "MPICH Version: 4.0.2". */
  readonly library: string;
  /** What the system calls this process, where it is killed without a word. @default it has no name */
  readonly process?: ProcessName;
  /** Resolves when the bytes may be used again. */
  send(to: number, channel: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /** Fills `into`: the sender's message is as long. Its bytes are not to be used before. */
  receive(from: number, channel: number, into: Uint8Array<ArrayBuffer>): Promise<void>;
}

/** A process, by its number on a machine. */
export interface ProcessName {
  readonly pid: number;
  readonly machine: string;
}

/** What a thread may run: the file of that name in workers/. */
export type ThreadWorker = 'optimizer' | 'tokenizing';

/** A thread that runs one of them. */
export interface Thread {
  /** What is sent is copied, but for shared memory, which is shared. */
  post(message: unknown): void;
  /** Whether the process must not end while it works. */
  keepAlive(busy: boolean): void;
  /** Ends it, whatever it is at. */
  end(): Promise<void>;
}

/** What a thread has to say. */
export interface ThreadEvents {
  /** It sends something. */
  message(message: unknown): void;
  /** It cannot go on, or has ended. */
  failed(error: unknown): void;
}

/** Threads of the place. */
export interface Threads {
  /** As many as can run at once. */
  readonly count: number;
  /** Starts one. */
  start(worker: ThreadWorker, events: ThreadEvents): Promise<Thread>;
}

/** Copies all bytes of `from` to the beginning of `to`, as `to.set(from)` does; they lie in different memory. */
export type CopyBytes = (to: Uint8Array, from: Uint8Array) => void;

/** What the place knows of the Hugging Face hub. */
export interface HubAccess {
  /** The address of the hub or of a mirror, as it was given. @default the hub's own */
  readonly endpoint?: string;
  /** The access token of the person's account there, if there is one. It is asked for when the hub is. */
  token(): Promise<string | undefined>;
}

/** All that the library needs of the place it runs in. */
export interface Host {
  /** For reports: the runtime's name and version. */
  readonly name: string;
  /** Of this package. Absent in a page. */
  version?(): Promise<string>;
  /** Of the command line, without the program. */
  readonly args: readonly string[];
  /** Its files. */
  readonly files: Files;
  /** Its standard output and standard error. */
  readonly terminal: Terminal;
  /** Sources in the order of preference. In Deno a process has the one that is opened first, and the others fail. */
  gpuSources(): Promise<GPUSource[]>;
  /** The default corpus as it came with the package: gzip, or as it is. Errors: HoldfastError where it is missing. */
  exampleText(): Promise<Uint8Array<ArrayBuffer>>;
  /** A folder for what may be lost: kernel choices, unpacked libraries. */
  readonly cacheFolder: string;
  /** Of the whole machine, in bytes. Absent where the place does not say. */
  readonly memoryBytes?: number;
  /**
   * A file of `bytes` bytes in that folder, of this process alone; the folder is made if it is missing. Files that
   * processes which no longer live have left there are removed. Errors: HoldfastError when it cannot be made, or
   * the disk has less free space.
   */
  openBlockFile(folder: string, bytes: number): Promise<BlockFile>;
  /**
   * Keeps other processes from a folder that is to be written to; it is made if it is missing. Absent where the host has
   * locks of its own (a page). Errors: FolderHeld naming the process that has it; HoldfastError where it cannot be written to.
   */
  claimFolder?(folder: string): Promise<FolderClaim>;
  /** As `claimFolder`, of a new folder in `parent`: its name is `prefix` and the number after the highest there. */
  claimNextFolder?(parent: string, prefix: string): Promise<FolderClaim>;
  /** A file at a path that is written in several goes. Absent where none is kept. Errors: as `Files`. */
  resumeFile?(path: string): Promise<ResumedFile>;
  /** Threads, which share memory where the place lets them. Absent where there are none. */
  readonly threads?: Threads;
  /** Starts what copies to the buffers of a GPU, and from them. Undefined, or absent, where nothing is quicker than `to.set(from)`. */
  startCopying?(): Promise<CopyBytes | undefined>;
  /** Absent in a page, where a person gives what it takes. */
  readonly hub?: HubAccess;
  /** All bytes of standard input, until its end. Errors: HoldfastError with `fix` where there are more than `most`. */
  readStandardInput(most?: number, fix?: string): Promise<Uint8Array<ArrayBuffer>>;
  /** Lines of standard input as they come, until its end or an interrupt; on a terminal asked for with `prompt`. Absent in a page. */
  readLines?(prompt: string): AsyncIterable<string>;
  /**
   * The other processes that were started together with this one; undefined where there are none. From then on a process
   * that exits with another status than 0 ends them all. Absent in a page. Errors: HoldfastError where what they would
   * talk through is missing.
   */
  joinRanks?(): Promise<Messages | undefined>;
  /** Calls back on the first interrupt or when the terminal is closed; a second interrupt ends the process at once. */
  onInterrupt(callback: () => void): void;
  /** Ends the process. */
  exit(status: number): void;
}

/** Joins with '/', which every runtime accepts on every system. */
export function join(...parts: string[]): string {
  return parts
    .filter((part) => part !== '')
    .join('/')
    .replace(/([^:])\/{2,}/g, '$1/');
}

/** The folder that a path is in; '.' for a name alone. */
export const folderOf = (path: string): string => path.replace(/[^/\\]*$/, '').replace(/(?<=.)[/\\]$/, '') || '.';
