// A benchmark of AdamW on the host, one thread of it: parameters a second beside the same loads and stores without its
// arithmetic, in turns.

import { instantiate, PAGE_BYTES } from '../../kernels/wasm-heap.ts';
import { elementBytesOf } from '../../memory/layout/kinds.ts';
import { median } from '../../util/median.ts';
import { digits, percentage } from './text.ts';

/** Of a kind: as a model's, past the caches that cores share, which reach hundreds of megabytes. */
const ELEMENTS = 2 ** 24;
const ROUNDS = 9;
const KINDS = 4;
/** As the module takes them: the step's, of no run. */
const SCALARS = [1, 1e-4, 0.1, 0.05, 1e-8, 0.1, 1, 0.5, 0.5, 0, 0, 0, 0] as const;

export interface HostAdamWFigure {
  readonly parametersPerSecond: number;
  readonly trafficPerSecond: number;
  /** Of the speed of the traffic alone: the median of the pairs. */
  readonly ofTraffic: number;
}

export function measureHostAdamW(): HostAdamWFigure {
  const bytes = ELEMENTS * elementBytesOf('parameter');
  const pages = (KINDS * bytes) / PAGE_BYTES;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const exports = instantiate(memory);
  // Neither zeros nor subnormals, with which a processor computes at other speeds.
  new Float32Array(memory.buffer).fill(1e-3);
  const [parameter = 0, ...others] = Array.from({ length: KINDS }, (_, kind) => kind * bytes);
  // Nothing lies beside parameters in f32.
  const places = [parameter, 0, ...others];
  const time = (update: boolean): number => {
    const start = performance.now();
    if (update) exports.adamw(0, ...places, ...places.slice(0, -1), ELEMENTS, ...SCALARS);
    else exports.traffic(...places, ELEMENTS);
    return (performance.now() - start) / 1000;
  };
  time(false);
  const rounds = Array.from({ length: ROUNDS }, () => ({
    traffic: time(false),
    update: time(true),
  }));
  return {
    parametersPerSecond: ELEMENTS / median(rounds.map(({ update }) => update)),
    trafficPerSecond: ELEMENTS / median(rounds.map(({ traffic }) => traffic)),
    ofTraffic: median(rounds.map(({ traffic, update }) => traffic / update)),
  };
}

export function hostText({ parametersPerSecond, trafficPerSecond, ofTraffic }: HostAdamWFigure): string {
  const [update, traffic] = [parametersPerSecond, trafficPerSecond].map((rate) => digits(rate / 1e6));
  return `AdamW on the host, one thread: ${update} million parameters/s, ${percentage(ofTraffic)} of the same traffic without arithmetic, ${traffic} million/s\n`;
}
