// A benchmark of AdamW on the host whose values lie on disk: they are read, updated and written as a training step has it, in the
// threads and the tiers of a run, beside the same reads and writes of such a file with nothing in between, in turns.

import { UPDATES_AT_ONCE } from '../../engine/run/host-optimizer.ts';
import { HostThreads } from '../../engine/run/host-threads.ts';
import { HostAdamW, type HostExtent, type HostScalars } from '../../kernels/host-adamw.ts';
import { HYPER, STATE } from '../../kernels/step-control.ts';
import { BLOCK } from '../../kernels/sum-squares.ts';
import { WasmHeap } from '../../kernels/wasm-heap.ts';
import { elementBytesOf } from '../../memory/layout/kinds.ts';
import { Backing } from '../../memory/tiers/backing.ts';
import { LARGEST_PUT } from '../../memory/tiers/tier-limits.ts';
import type { BlockFile, Host } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { finishing, HoldfastError, oneLine } from '../../util/errors.ts';
import { median } from '../../util/median.ts';
import { digits, percentage } from './text.ts';

/** Chunks of each kind, and their bytes: of a model of 17 million parameters. */
const INDICES = 32;
const CHUNK_BYTES = 2 ** 21;
const KINDS = 4;
/** Chunks that are read ahead of an update. A run, which has other values to read as well, reads fewer ahead. */
const AHEAD = 8;
/** Reads, or writes, of such a file at once beside it. */
const LANES = 4;
/** Chunks in host memory: what is under way, and a few more. */
const SLOTS = KINDS * UPDATES_AT_ONCE + AHEAD + 12;
const ROUNDS = 5;

export interface DiskStatesFigure {
  /** Read and written, of a step over all values. */
  readonly bytes: number;
  readonly bytesPerSecond: number;
  readonly diskBytesPerSecond: number;
  /** Of the speed of the reads and writes alone: the median of the pairs. */
  readonly ofDisk: number;
}

/** The figure, or undefined where there is no room for what it is measured by, which is said: the others stand. */
export async function diskStatesIn(host: Host, folder: string): Promise<DiskStatesFigure | undefined> {
  try {
    return await measureDiskStates(host, folder);
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    host.terminal.warn(`the disk was not measured: ${oneLine(error.message)}\n`);
    return undefined;
  }
}

/** `folder`: where the disk tier would be. Errors: HoldfastError where there is no room. */
export async function measureDiskStates(host: Host, folder: string): Promise<DiskStatesFigure> {
  const chunks = KINDS * INDICES;
  // As a run has them.
  const blocks = chunks + LARGEST_PUT;
  const disk = await host.openBlockFile(folder, blocks * CHUNK_BYTES);
  const file = await host.openBlockFile(folder, disk.bytes).catch(async (error: unknown) => {
    await disk.remove();
    throw error;
  });
  const heap = WasmHeap.make();
  const backing = new Backing({
    ...{ chunks, chunkBytes: CHUNK_BYTES, hostLimit: SLOTS * CHUNK_BYTES, disk, updates: KINDS },
    allocate: heap && ((bytes) => heap.allocate(bytes)),
  });
  const updater = heap && host.threads ? new HostThreads(host.threads, heap) : new HostAdamW(heap);
  const end = async () => {
    if (updater instanceof HostThreads) await updater.end();
    await backing.close();
    await file.remove();
  };
  return finishing(async () => {
    const value = new Uint8Array(new Float32Array(CHUNK_BYTES / elementBytesOf('parameter')).fill(1e-3).buffer);
    for (let chunk = 0; chunk < chunks; chunk++) await backing.putAll([{ chunk, bytes: value }]);
    const step = () => updateAll(backing, updater);
    await step();
    const rounds: { readonly moved: number; readonly updated: number; readonly alone: number }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const { diskReadBytes, diskWriteBytes } = backing.ledger;
      const updated = await secondsOf(step);
      const { diskReadBytes: read, diskWriteBytes: written } = backing.ledger;
      const [reads, writes] = [read - diskReadBytes, written - diskWriteBytes];
      const alone = await secondsOf(() => moveAll(file, reads, writes));
      rounds.push({ moved: reads + writes, updated, alone });
    }
    return {
      bytes: median(rounds.map(({ moved }) => moved)),
      bytesPerSecond: median(rounds.map(({ moved, updated }) => moved / updated)),
      diskBytesPerSecond: median(rounds.map(({ moved, alone }) => moved / alone)),
      ofDisk: median(rounds.map(({ updated, alone }) => alone / updated)),
    };
  }, end);
}

const EXTENT: HostExtent = { size: CHUNK_BYTES / elementBytesOf('parameter'), firstBlock: 0 };

async function updateAll(backing: Backing, updater: HostThreads | HostAdamW): Promise<void> {
  const state = new Float32Array(STATE.size).fill(1);
  state[STATE.skip] = 0;
  const decayMask = new Uint32Array(EXTENT.size / BLOCK / 32);
  const scalars: HostScalars = { hyper: new Float32Array(HYPER.size).fill(1e-3), state, decayMask };
  let first = 0;
  // Chunks of an index are side by side: what comes next is needed next.
  backing.setOrder((chunk) => (chunk - KINDS * first + KINDS * INDICES) % (KINDS * INDICES));
  const underWay: Promise<void>[] = [];
  for (let index = 0; index < INDICES; index++) {
    await underWay[index - UPDATES_AT_ONCE];
    first = index;
    const chunks = Array.from({ length: KINDS }, (_, kind) => ({ chunk: KINDS * index + kind, kept: kind === 0 }));
    underWay.push(
      backing.update(chunks, (bytes) => {
        const [gradient, parameter, moment1, moment2] = [0, 1, 2, 3].map((kind) => at(bytes, kind)) as [
          Uint8Array,
          Uint8Array,
          Uint8Array,
          Uint8Array,
        ];
        return updater.update({ gradient, parameter, moment1, moment2 }, EXTENT, scalars);
      }),
    );
    for (let ahead = 0; ahead < AHEAD; ahead++) backing.prefetch((KINDS * (index + 1) + ahead) % (KINDS * INDICES));
  }
  await Promise.all(underWay);
}

/** So many bytes read and written. */
async function moveAll(file: BlockFile, reads: number, writes: number): Promise<void> {
  const places = Math.floor(file.bytes / CHUNK_BYTES);
  const all = async (
    bytes: number,
    first: number,
    move: (offset: number, buffer: Uint8Array<ArrayBuffer>) => unknown,
  ) => {
    const count = Math.round(bytes / CHUNK_BYTES);
    const lane = async (from: number) => {
      const buffer = new Uint8Array(CHUNK_BYTES);
      for (let n = from; n < count; n += LANES) await move(((first + n) % places) * CHUNK_BYTES, buffer);
    };
    await Promise.all(Array.from({ length: LANES }, (_, from) => lane(from)));
  };
  await Promise.all([
    all(reads, 0, (offset, into) => file.read(offset, into)),
    all(writes, places >> 1, (offset, from) => file.write(offset, from)),
  ]);
}

async function secondsOf(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

export const diskStatesText = ({ bytesPerSecond, diskBytesPerSecond, ofDisk }: DiskStatesFigure): string =>
  `AdamW on the host with its values on disk: ${digits(bytesPerSecond / 1e6)} MB/s read and written, ${percentage(ofDisk)} of the same through the system's cache with nothing in between, ${digits(diskBytesPerSecond / 1e6)} MB/s\n`;
