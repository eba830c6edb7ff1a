// Hardware files: machines as JSON, each figure with its source, in assets/hardware or the user's own. Reads them; what
// no vendor says (what kernels reach, what a dispatch costs) is assumed and named (machine.ts). Invariant: a figure
// without a source is refused, and so is one that no machine has, or that has another name.

import { HoldfastError, shortened } from '../../util/errors.ts';
import {
  check,
  isObject,
  line,
  namesTo,
  number,
  object,
  oneOf,
  optional,
  parseJSON,
  type Schema,
  text,
} from '../../util/json.ts';
import { type Range, realNumber } from '../../util/range.ts';
import { ASSUMED, type Machine, type NetworkLink } from './machine.ts';

const FILES = import.meta.glob<string>('../../../assets/hardware/*.json', {
  query: '?raw',
  import: 'default',
  eager: true,
});

/** The text of each file that comes along, by its name. */
export const HARDWARE: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(FILES).map(([path, file]) => [path.replace(/^.*\/|\.json$/g, ''), file]),
);

/** A figure, and where it is from. */
interface Figure {
  readonly value: number;
  readonly source: string;
}

const figure = (range: Range): Schema<Figure> => object({ value: number(range), source: text });

/** Bytes of a memory or a disk that there may be: of what is far outside, predictions overflow, or round to nothing. */
export const MACHINE_BYTES = realNumber(1e3, 1e18);
const bytes = figure(MACHINE_BYTES);
const bytesPerSecond = figure(realNumber(1e3, 1e18));
const flops = figure(realNumber(1e6, 1e21));
const seconds = figure(realNumber(1e-9, 1e3));
/** At most 1, which is said by itself. */
const part = figure(realNumber(1e-9, Number.MAX_VALUE));

const networkLink = object({ bytesPerSecond, latencySeconds: seconds });

const hardware = object({
  title: line,
  gpu: object({ flops, bytesPerSecond, bytes }),
  /** `bytesPerSecond`: of its memory, read and written; with it an optimizer on the host is predicted. */
  host: object({ bytes, bytesPerSecond: optional(bytesPerSecond) }),
  link: object({
    upBytesPerSecond: bytesPerSecond,
    downBytesPerSecond: bytesPerSecond,
    copies: oneOf(['serial', 'duplex']),
    /** Until the CPU knows that the GPU is done, measured. @default not reckoned with */
    answerSeconds: optional(seconds),
    /** What a copy takes whatever it moves, measured. @default not reckoned with */
    copySeconds: optional(seconds),
  }),
  /** Whether GPU and host share one memory. @default false */
  sharedMemory: optional(oneOf(['yes'])),
  disk: optional(object({ readBytesPerSecond: bytesPerSecond, writeBytesPerSecond: bytesPerSecond, bytes })),
  /** Between the GPUs of several ranks; `inside`: of one machine, whose host and disk they share. @default one rank */
  network: optional(
    object({ ranksPerMachine: figure(realNumber(1, 1e6)), inside: networkLink, between: optional(networkLink) }),
  ),
  /** What kernels reach of the arithmetic, measured. @default assumed */
  reached: optional(part),
  /** What single kernels, by their names, reach of what arithmetic and memory allow them, measured. @default as `reached` */
  reachedBy: optional(namesTo(part)),
  /** What AdamW on the host reaches of its memory's speed, measured. @default assumed */
  hostReached: optional(part),
  /** What a dispatch costs, measured. @default assumed */
  launchSeconds: optional(seconds),
});

/** What a hardware file says. */
type HardwareFile = typeof hardware extends Schema<infer File> ? File : never;

/** The first field that was not read of a section: one misspelt would be as if it were not there. Beside a figure there may be more. */
function unreadIn(given: unknown, read: unknown): string | undefined {
  if (!isObject(given) || !isObject(read) || 'value' in read) return undefined;
  for (const [field, inside] of Object.entries(given)) {
    if (!Object.hasOwn(read, field)) return field;
    const deeper = unreadIn(inside, read[field]);
    if (deeper !== undefined) return `${field}.${deeper}`;
  }
  return undefined;
}

/** The machine of a hardware file. Errors: HoldfastError naming the file and the field. */
export function parseHardware(json: string, name: string): Machine {
  const bytes = new TextEncoder().encode(json);
  const like = `a hardware file is like those that come along: ${hardwareNames()}; bench --share writes one`;
  const value = parseJSON(bytes, name, like);
  if (!isObject(value) || !['gpu', 'host', 'link'].some((section) => Object.hasOwn(value, section)))
    throw new HoldfastError(`${name}: has no figures of a machine; ${like}`);
  const file = check(hardware, value, name);
  const unread = unreadIn(value, file);
  if (unread) throw new HoldfastError(`${name}: ${shortened(unread)}: a hardware file has no such field; leave it out`);
  checkFigures(file, name);
  return machineOfFile(file);
}

/** What its schema does not say of figures: they have sources, and parts are at most 1. Errors: HoldfastError naming the file and the field. */
function checkFigures(file: HardwareFile, name: string): void {
  const { gpu, host, link, disk, network, reached, hostReached, reachedBy = {}, launchSeconds } = file;
  const figures: readonly (readonly [string, Figure])[] = [
    ...named('gpu', gpu),
    ...named('host', { bytes: host.bytes, ...(host.bytesPerSecond && { bytesPerSecond: host.bytesPerSecond }) }),
    ...named('link', { up: link.upBytesPerSecond, down: link.downBytesPerSecond }),
    ...named('link', {
      ...(link.answerSeconds && { answerSeconds: link.answerSeconds }),
      ...(link.copySeconds && { copySeconds: link.copySeconds }),
    }),
    ...named('disk', disk ?? {}),
    ...named('network', network ? { ranksPerMachine: network.ranksPerMachine } : {}),
    ...named('network.inside', network?.inside ?? {}),
    ...named('network.between', network?.between ?? {}),
    ...named('measured', {
      ...(reached && { reached }),
      ...(hostReached && { hostReached }),
      ...(launchSeconds && { launchSeconds }),
    }),
    ...named('reachedBy', reachedBy),
  ];
  for (const [field, { source }] of figures) {
    if (source.trim() === '') throw new HoldfastError(`${name}: ${field} has no source; say where the figure is from`);
  }
  const parts = { ...(reached && { reached }), ...(hostReached && { hostReached }) };
  for (const [field, { value }] of [...named('', parts), ...named('.reachedBy', reachedBy)]) {
    if (value > 1) throw new HoldfastError(`${name}: ${field.slice(1)} is ${value}; it must be a part, at most 1`);
  }
  if (network && !Number.isInteger(network.ranksPerMachine.value)) {
    throw new HoldfastError(
      `${name}: network.ranksPerMachine is ${network.ranksPerMachine.value}; it must be a whole number of GPUs`,
    );
  }
}

/** Its figures without their sources; what was not measured is assumed. */
function machineOfFile(file: HardwareFile): Machine {
  const { title, gpu, host, link, disk, network, sharedMemory } = file;
  const { reached, hostReached, reachedBy, launchSeconds } = file;
  return {
    title,
    peakFlops: gpu.flops.value,
    reached: reached?.value ?? ASSUMED.reached,
    ...(reachedBy && { reachedBy: mapped(reachedBy, ({ value }) => value) }),
    memoryBytesPerSecond: gpu.bytesPerSecond.value,
    launchSeconds: launchSeconds?.value ?? ASSUMED.launchSeconds,
    gpuBytes: gpu.bytes.value,
    hostBytes: host.bytes.value,
    sharedMemory: sharedMemory === 'yes',
    ...(host.bytesPerSecond && {
      hostMemory: {
        bytesPerSecond: host.bytesPerSecond.value,
        reached: hostReached?.value ?? ASSUMED.hostReached,
      },
    }),
    link: {
      upBytesPerSecond: link.upBytesPerSecond.value,
      downBytesPerSecond: link.downBytesPerSecond.value,
      copies: link.copies,
      ...(link.answerSeconds && { answerSeconds: link.answerSeconds.value }),
      ...(link.copySeconds && { copySeconds: link.copySeconds.value }),
    },
    ...(disk && {
      disk: {
        readBytesPerSecond: disk.readBytesPerSecond.value,
        writeBytesPerSecond: disk.writeBytesPerSecond.value,
        bytes: disk.bytes.value,
      },
    }),
    ...(network && {
      network: {
        ranksPerMachine: network.ranksPerMachine.value,
        inside: linkOf(network.inside),
        ...(network.between && { between: linkOf(network.between) }),
        exchange: 'host',
      },
    }),
  };
}

const linkOf = ({ bytesPerSecond, latencySeconds }: Readonly<Record<keyof NetworkLink, Figure>>): NetworkLink => ({
  bytesPerSecond: bytesPerSecond.value,
  latencySeconds: latencySeconds.value,
});

/** A measured machine as a hardware file; `source` says how all its figures were measured. It is of one rank. */
export function hardwareFile(machine: Machine, source: string): string {
  const { title, peakFlops, reached, reachedBy, memoryBytesPerSecond, launchSeconds, gpuBytes, hostBytes } = machine;
  const { hostMemory } = machine;
  const { copies, ...link } = machine.link;
  const figureOf = (value: number): Figure => ({ value, source });
  const file = {
    title,
    gpu: mapped({ flops: peakFlops, bytesPerSecond: memoryBytesPerSecond, bytes: gpuBytes }, figureOf),
    host: mapped({ bytes: hostBytes, ...(hostMemory && { bytesPerSecond: hostMemory.bytesPerSecond }) }, figureOf),
    link: { ...mapped(link, figureOf), copies },
    ...(machine.sharedMemory && { sharedMemory: 'yes' }),
    ...(machine.disk && { disk: mapped({ ...machine.disk }, figureOf) }),
    ...mapped({ reached, launchSeconds, ...(hostMemory && { hostReached: hostMemory.reached }) }, figureOf),
    ...(reachedBy && { reachedBy: mapped(reachedBy, figureOf) }),
  };
  return `${JSON.stringify(file, null, 2)}\n`;
}

const mapped = <V, W>(values: Readonly<Record<string, V>>, change: (value: V) => W): Record<string, W> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));

/** One that comes along; undefined where there is none of that name. */
export function knownMachine(name: string): Machine | undefined {
  const file = Object.hasOwn(HARDWARE, name) ? HARDWARE[name] : undefined;
  return file === undefined ? undefined : parseHardware(file, name);
}

/** The names of the machines that come along, for messages. */
export const hardwareNames = (): string => Object.keys(HARDWARE).sort().join(', ');

const named = (part: string, figures: Readonly<Record<string, Figure>>): [string, Figure][] =>
  Object.entries(figures).map(([field, found]) => [`${part}.${field}`, found]);
