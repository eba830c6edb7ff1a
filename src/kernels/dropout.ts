// Dropout: each element goes with a probability, and what stays is scaled so that the mean stays. Forward and backward
// are one kernel, on x and on dy: which elements go follows from the key, which is data, and from where they lie.
//
// Invariants: no state: the same key, stream and size drop the same elements in a pass that is repeated or made again. Of columns of
// something, those go that go of the whole.

import shader from '../../shaders/dropout/dropout.wgsl?raw';
import inPlaceShader from '../../shaders/dropout/in_place.wgsl?raw';
import stays from '../../shaders/dropout/stays.wgsl?raw';
import words from '../../shaders/shared/splitmix32.wgsl?raw';
import { splitmix32 } from '../util/random.ts';
import { type Arrays, type Kernel, read, update, write } from './kernel.ts';
import { perItem } from './variants.ts';

export interface DropoutInPlaceProblem {
  size: number;
  /** The probability that an element goes, below 1. */
  rate: number;
  /** Of what draws with the same key: a number of its own each. */
  stream: number;
  /** Columns of x, of which a row has more, and the first of them. @default x is whole */
  part?: { columns: number; whole: number; first: number } | undefined;
}

export interface DropoutProblem extends DropoutInPlaceProblem {
  /** Adds to y. */
  accumulate: boolean;
}

/** Words of a key. */
export const KEY_WORDS = 2;

/** Words from here on stay. */
const thresholdOf = (rate: number): number => Math.floor(rate * 2 ** 32);

/** Where the rows of x lie in what is dropped of. */
const partOf = ({ size, part }: DropoutInPlaceProblem) => part ?? { columns: size, whole: size, first: 0 };

const paramsOf = (problem: DropoutInPlaceProblem) => {
  const { size, rate, stream } = problem;
  return { size, stream, threshold: thresholdOf(rate), scale: 1 / (1 - rate), ...partOf(problem) };
};

/** What is left of x[i], by the index. */
function keptOf(problem: DropoutInPlaceProblem, { x, key }: Arrays<'x' | 'key'>): (i: number) => number {
  const { rate, stream } = problem;
  const { columns, whole, first } = partOf(problem);
  const start = splitmix32(key[0]! ^ stream);
  const threshold = thresholdOf(rate);
  return (i) => {
    const at = Math.floor(i / columns) * whole + first + (i % columns);
    const word = splitmix32(splitmix32(start ^ at) ^ key[1]!);
    return word >= threshold ? x[i]! / (1 - rate) : 0;
  };
}

/** x (size), key (2) u32 -> y (size). */
export const dropout: Kernel<DropoutProblem> = {
  name: 'dropout',
  operands: ({ size, accumulate }) => ({
    x: read(size),
    key: read(KEY_WORDS, 'u32'),
    y: accumulate ? update(size) : write(size),
  }),
  affectsSpeed: { size: true, rate: false, stream: false, accumulate: false, part: false },
  variants: perItem(
    shader + stays + words,
    ({ size }) => size,
    (problem) => ({ ...paramsOf(problem), accumulate: Number(problem.accumulate) }),
  ),
  flops: ({ size }) => 16 * size,
  reference(problem, { x, key, y }: Arrays<'x' | 'key' | 'y'>) {
    const kept = keptOf(problem, { x, key });
    for (let i = 0; i < problem.size; i++) y[i] = problem.accumulate ? y[i]! + kept(i) : kept(i);
  },
};

/** key (2) u32 -> x (size), of which some elements go. */
export const dropoutInPlace: Kernel<DropoutInPlaceProblem> = {
  name: 'dropoutInPlace',
  operands: ({ size }) => ({ key: read(KEY_WORDS, 'u32'), x: update(size) }),
  affectsSpeed: { size: true, rate: false, stream: false, part: false },
  variants: perItem(inPlaceShader + stays + words, ({ size }) => size, paramsOf),
  flops: ({ size }) => 16 * size,
  reference(problem, { x, key }: Arrays<'x' | 'key'>) {
    const kept = keptOf(problem, { x, key });
    for (let i = 0; i < problem.size; i++) x[i] = kept(i);
  },
};
