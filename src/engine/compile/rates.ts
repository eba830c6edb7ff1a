// Rates of a device, as one value: what it computes and moves a second, by which plans that take the least time are told from
// others. Measured (observe/device-rates.ts), or typical of its kind. No result depends on them.

import { number, object, oneOf, optional, type Schema } from '../../util/json.ts';
import { realNumber } from '../../util/range.ts';

/** What time is reckoned with where a choice costs some. Nothing else depends on it. */
export interface Rates {
  /** Multiplications and additions a second. */
  readonly flops: number;
  /** Bytes a second from below to the GPU. */
  readonly upBytes: number;
  /** Bytes a second from the GPU down. */
  readonly downBytes: number;
  /** What a dispatch takes whatever it computes. */
  readonly launchSeconds: number;
  /** What it takes until the CPU knows that the GPU is done with something. @default none */
  readonly answerSeconds?: number;
  /** What a copy over the link takes whatever it moves. @default nothing */
  readonly copySeconds?: number;
  /** Bytes a second of the GPU's memory. @default so many that nothing waits for them */
  readonly memoryBytes?: number;
  /** Bytes a second of host memory, as AdamW there reads and writes it. @default HOST_BYTES */
  readonly hostBytes?: number;
  /** Of the disk below host memory. @default TYPICAL_DISK */
  readonly disk?: DiskRates;
  /** Whether copies and arithmetic take turns, or each way is beside the other and beside arithmetic. @default serial */
  readonly copies?: 'serial' | 'duplex';
}

/** Bytes a second that a disk reads, and that it writes. */
export interface DiskRates {
  readonly readBytesPerSecond: number;
  readonly writeBytesPerSecond: number;
}

/** Of a disk whose speed is not known: no run measures it before it trains. */
export const TYPICAL_DISK: DiskRates = { readBytesPerSecond: 2e9, writeBytesPerSecond: 1e9 };

/** What a link does, as it is measured. */
export type LinkRates = Pick<Rates, 'upBytes' | 'downBytes' | 'copies' | 'answerSeconds'>;

const GPU_RATES: Rates = {
  flops: 5e12,
  upBytes: 10e9,
  downBytes: 10e9,
  launchSeconds: 5e-6,
  answerSeconds: 2e-4,
  copySeconds: 1e-5,
};
const SOFTWARE_RATES: Rates = {
  flops: 8e9,
  upBytes: 4e9,
  downBytes: 4e9,
  launchSeconds: 1e-4,
  answerSeconds: 3e-4,
  copySeconds: 1e-4,
};

/** Rates of a laptop's GPU, or of a software adapter on two cores, about. */
export const typicalRates = (isSoftware: boolean): Rates => (isSoftware ? SOFTWARE_RATES : GPU_RATES);

/** Bytes a second of a host whose memory was not measured: two threads of a laptop reach about that. */
export const HOST_BYTES = 20e9;

/** Bytes a second over the link, of which half go each way. */
export const linkBytesOf = ({ upBytes, downBytes }: Rates): number => 2 / (1 / upBytes + 1 / downBytes);

const rate = number(realNumber(1, 1e24));

const linkFields = {
  upBytes: rate,
  downBytes: rate,
  answerSeconds: optional(number(realNumber(0, 1))),
  copies: optional(oneOf(['serial', 'duplex'])),
};

export const linkRatesSchema: Schema<LinkRates> = object(linkFields);

/** Rates from outside: of a cache, of a run's files. */
export const ratesSchema: Schema<Rates> = object({
  ...linkFields,
  flops: rate,
  launchSeconds: number(realNumber(0, 1)),
  copySeconds: optional(number(realNumber(0, 1))),
  memoryBytes: optional(rate),
  hostBytes: optional(rate),
  disk: optional(object({ readBytesPerSecond: rate, writeBytesPerSecond: rate })),
});
