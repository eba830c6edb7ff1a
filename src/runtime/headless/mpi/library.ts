// The MPI library of the machine (foreign.ts): the few calls that move messages without blocking, in the two ABIs that
// there are, MPICH's (handles are numbers) and Open MPI's (handles are addresses). Never a dependency: it is looked for
// under a launcher alone, and which one it is shows in its symbols.

import process from 'node:process';
import { HoldfastError } from '../../../util/errors.ts';
import { type ForeignFunction, type ForeignLibrary, openForeign } from './foreign.ts';

/** A message under way: memory that MPI has written its handle to. */
export type MpiRequest = Uint8Array<ArrayBuffer>;

export interface MpiLibrary {
  /** For messages and reports: the first line of what it says of itself. */
  readonly name: string;
  readonly rank: number;
  readonly size: number;
  /** Both begin a message; the bytes stay where they are, unchanged by others, until `isDone`. */
  send(bytes: Uint8Array<ArrayBuffer>, to: number, tag: number): MpiRequest;
  receive(into: Uint8Array<ArrayBuffer>, from: number, tag: number): MpiRequest;
  /** Moves messages on. Once it has been true the request is no more. */
  isDone(request: MpiRequest): boolean;
  /** Ends all ranks. */
  abort(status: number): void;
  /** Waits, blocking, for the other ranks to call it, too. */
  finalize(): void;
}

/** Debian's MPICH; MPICH elsewhere and Intel's MPI; Open MPI. */
const MPICH = ['libmpich.so.12', 'libmpi.so.12', 'libmpi.12.dylib', 'msmpi.dll'];
const OPEN_MPI = ['libmpi.so.40', 'libmpi.40.dylib'];

const FUNNELED = 1;

/** Of UCX, under MPICH and Open MPI, where the user has not set them. */
const UCX = {
  // It would take the signals by which V8 notices accesses out of bounds.
  UCX_ERROR_SIGNALS: '',
  // To see what memory is given back it patches brk, mmap and others, and tries them: sbrk(page), then sbrk(-page). Where
  // something is mapped right behind the heap the first fails, and the second gives back its last page, which is in use. V8
  // maps its code near the heap: one process in about 50 crashed.
  UCX_MEM_EVENTS: 'no',
};

/** The library, begun. Errors: HoldfastError where there is none. */
export async function beginMpi(isOpenMpi: boolean): Promise<MpiLibrary> {
  for (const [name, value] of Object.entries(UCX)) process.env[name] ??= value;
  const names = isOpenMpi ? [...OPEN_MPI, ...MPICH] : [...MPICH, ...OPEN_MPI];
  const library = await openForeign(names);
  if (library) return begin(library);
  throw new HoldfastError(
    `several ranks: no MPI library is found (${names.join(', ')}); install MPICH or Open MPI, or start without mpiexec`,
  );
}

interface Abi {
  /** C's type of a handle. */
  readonly handle: 'int' | 'address';
  readonly world: number | bigint;
  readonly byte: number | bigint;
  readonly ignoredStatus: bigint;
}

function abiOf(library: ForeignLibrary): Abi {
  const [world, byte] = ['ompi_mpi_comm_world', 'ompi_mpi_byte'].map((symbol) => library.addressOf(symbol));
  if (world !== undefined && byte !== undefined) return { handle: 'address', world, byte, ignoredStatus: 0n };
  return { handle: 'int', world: 0x44000000, byte: 0x4c00010d, ignoredStatus: 1n };
}

function begin(library: ForeignLibrary): MpiLibrary {
  const { handle, world, byte, ignoredStatus } = abiOf(library);
  const ofMessages = ['memory', 'int', handle, 'int', 'int', handle, 'memory'] as const;
  const isend = library.func('MPI_Isend', ofMessages);
  const irecv = library.func('MPI_Irecv', ofMessages);
  const test = library.func('MPI_Test', ['memory', 'memory', 'address']);
  const abort = library.func('MPI_Abort', [handle, 'int']);
  const finalize = library.func('MPI_Finalize', []);
  const word = new Int32Array(new ArrayBuffer(4));
  const read = (name: 'MPI_Comm_rank' | 'MPI_Comm_size'): number => {
    library.func(name, [handle, 'memory'])(world, word);
    return word[0] ?? 0;
  };
  library.func('MPI_Init_thread', ['address', 'address', 'int', 'memory'])(null, null, FUNNELED, word);
  const text = new Uint8Array(new ArrayBuffer(8192));
  library.func('MPI_Get_library_version', ['memory', 'memory'])(text, word);
  const version = new TextDecoder().decode(text.subarray(0, word[0] ?? 0));
  const start = (call: ForeignFunction, bytes: Uint8Array<ArrayBuffer>, other: number, tag: number): MpiRequest => {
    const request = new Uint8Array(new ArrayBuffer(8));
    call(bytes, bytes.length, byte, other, tag, world, request);
    return request;
  };
  return {
    name: (version.split('\n')[0] ?? '').replace(/\s+/g, ' ').trim(),
    rank: read('MPI_Comm_rank'),
    size: read('MPI_Comm_size'),
    send: (bytes, to, tag) => start(isend, bytes, to, tag),
    receive: (into, from, tag) => start(irecv, into, from, tag),
    isDone(request) {
      test(request, word, ignoredStatus);
      return word[0] !== 0;
    },
    abort: (status) => void abort(world, status),
    finalize: () => void finalize(),
  };
}
