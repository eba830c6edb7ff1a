// Hardware files: machines as JSON, each figure with its source, in assets/hardware or the user's own. Reads them; what
// no vendor says (what kernels reach, what a dispatch costs) is assumed and named (machine.ts). Invariant: a figure
// without a source is refused.

import { HoldfastError } from '../../util/errors.ts';
import { check, number, object, oneOf, optional, parseJSON, type Schema, text } from '../../util/json.ts';
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

const figure: Schema<Figure> = object({
  value: number({ whole: false, least: Number.MIN_VALUE, most: Number.MAX_VALUE }),
  source: text,
});

const networkLink = object({ bytesPerSecond: figure, latencySeconds: figure });

const hardware = object({
  title: text,
  gpu: object({ flops: figure, bytesPerSecond: figure, bytes: figure }),
  host: object({ bytes: figure }),
  link: object({
    upBytesPerSecond: figure,
    downBytesPerSecond: figure,
    copies: oneOf(['serial', 'duplex']),
  }),
  /** Whether GPU and host share one memory. @default false */
  sharedMemory: optional(oneOf(['yes'])),
  disk: optional(object({ readBytesPerSecond: figure, writeBytesPerSecond: figure, bytes: figure })),
  /** Between the GPUs of several ranks; `inside`: of one machine, whose host and disk they share. @default one rank */
  network: optional(object({ ranksPerMachine: figure, inside: networkLink, between: optional(networkLink) })),
  /** What kernels reach of the arithmetic, measured. @default assumed */
  reached: optional(figure),
  /** What a dispatch costs, measured. @default assumed */
  launchSeconds: optional(figure),
});

/** The machine of a hardware file. Errors: HoldfastError naming the file and the field. */
export function machineOf(json: string, name: string): Machine {
  const bytes = new TextEncoder().encode(json);
  const value = parseJSON(bytes, name, `a hardware file is like those that come along: ${hardwareNames()}`);
  const { title, gpu, host, link, disk, network, sharedMemory, reached, launchSeconds } = check(hardware, value, name);
  const figures: readonly (readonly [string, Figure])[] = [
    ...named('gpu', gpu),
    ...named('host', host),
    ...named('link', { up: link.upBytesPerSecond, down: link.downBytesPerSecond }),
    ...named('disk', disk ?? {}),
    ...named('network', network ? { ranksPerMachine: network.ranksPerMachine } : {}),
    ...named('network.inside', network?.inside ?? {}),
    ...named('network.between', network?.between ?? {}),
    ...named('measured', { ...(reached && { reached }), ...(launchSeconds && { launchSeconds }) }),
  ];
  for (const [field, { source }] of figures) {
    if (source.trim() === '') throw new HoldfastError(`${name}: ${field} has no source; say where the figure is from`);
  }
  if (reached && reached.value > 1) {
    throw new HoldfastError(`${name}: reached is ${reached.value}; it must be a part of the arithmetic, at most 1`);
  }
  if (network && !Number.isInteger(network.ranksPerMachine.value)) {
    throw new HoldfastError(
      `${name}: network.ranksPerMachine is ${network.ranksPerMachine.value}; it must be a whole number of GPUs`,
    );
  }
  return {
    title,
    peakFlops: gpu.flops.value,
    reached: reached?.value ?? ASSUMED.reached,
    memoryBytesPerSecond: gpu.bytesPerSecond.value,
    launchSeconds: launchSeconds?.value ?? ASSUMED.launchSeconds,
    gpuBytes: gpu.bytes.value,
    hostBytes: host.bytes.value,
    sharedMemory: sharedMemory === 'yes',
    link: {
      upBytesPerSecond: link.upBytesPerSecond.value,
      downBytesPerSecond: link.downBytesPerSecond.value,
      copies: link.copies,
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

/** One that comes along; undefined where there is none of that name. */
export function knownMachine(name: string): Machine | undefined {
  const file = Object.hasOwn(HARDWARE, name) ? HARDWARE[name] : undefined;
  return file === undefined ? undefined : machineOf(file, name);
}

/** Of those that come along, for messages. */
export const hardwareNames = (): string => Object.keys(HARDWARE).sort().join(', ');

const named = (part: string, figures: Readonly<Record<string, Figure>>): [string, Figure][] =>
  Object.entries(figures).map(([field, found]) => [`${part}.${field}`, found]);
