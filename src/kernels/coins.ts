// Floats moved up or down by the throw of a coin: as far as rounding may move them, with nothing rounded. Replays in float32
// find by it how far a narrow width may take their results (parity/narrow.ts).

import shader from '../../shaders/coins/coins.wgsl?raw';
import words from '../../shaders/shared/splitmix32.wgsl?raw';
import { splitmix32 } from '../util/random.ts';
import { type Arrays, type Kernel, read, write } from './kernel.ts';
import { perItem } from './variants.ts';

export interface CoinsProblem {
  size: number;
  /** A word; with another one other coins are thrown. */
  stream: number;
  /** A value moves by so much of itself, */
  share: number;
  /** and by so much at least, other than 0. */
  least: number;
}

/** x (size) -> y (size). Which way a value goes follows from the stream, from where it lies and from its bits. */
export const throwCoins: Kernel<CoinsProblem> = {
  name: 'throwCoins',
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true, stream: false, share: false, least: false },
  variants: perItem(
    shader + words,
    ({ size }) => size,
    ({ size, stream, share, least }) => ({ size, stream, share, least }),
  ),
  flops: ({ size }) => 16 * size,
  reference({ size, stream, share, least }, { x, y }: Arrays<'x' | 'y'>) {
    const bits = new Uint32Array(Float32Array.from(x).buffer);
    for (let i = 0; i < size; i++) {
      const off = x[i] === 0 ? 0 : Math.max(share * Math.abs(x[i]!), least);
      const word = splitmix32(splitmix32(stream ^ i) ^ bits[i]!);
      y[i] = x[i]! + ((word & 1) === 1 ? off : -off);
    }
  },
};
