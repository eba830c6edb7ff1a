// New keys or values into a cache, for generation: a contiguous copy of some columns of x.

import shader from '../../shaders/cache-append/cache_append.wgsl?raw';
import { type Arrays, type Kernel, read, update } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

export interface CacheAppendProblem {
  batch: number;
  seq: number;
  width: number;
  /** Elements from one row of x to the next. */
  stride: number;
  /** The first column. */
  offset: number;
  /** Rows of the cache for each sequence; rows past it are dropped. */
  capacity: number;
}

/** x (batch * seq, stride), position (1) -> cache (batch, capacity, width), from row position on. */
export const cacheAppend: Kernel<CacheAppendProblem> = {
  name: 'cacheAppend',
  operands: ({ batch, seq, width, stride, offset, capacity }) => ({
    x: read(offset + (batch * seq - 1) * stride + width),
    position: read(1, 'u32'),
    cache: update(batch * capacity * width),
  }),
  affectsSpeed: { batch: true, seq: true, width: true, stride: false, offset: false, capacity: true },
  variants: perElem(
    shader,
    ({ width, stride, offset }) => lanesOf(width, stride, offset),
    ({ batch, seq, width }, lanes) => (batch * seq * width) / lanes,
    ({ batch, seq, width, stride, offset, capacity }, lanes) => ({
      batch,
      seq,
      width: width / lanes,
      stride: stride / lanes,
      offset: offset / lanes,
      capacity,
    }),
  ),
  flops: () => 0,
  reference(
    { batch, seq, width, stride, offset, capacity },
    { x, position, cache }: Arrays<'x' | 'position' | 'cache'>,
  ) {
    for (let b = 0; b < batch; b++) {
      for (let t = 0; t < seq && position[0]! + t < capacity; t++) {
        for (let c = 0; c < width; c++) {
          cache[(b * capacity + position[0]! + t) * width + c] = x[(b * seq + t) * stride + offset + c]!;
        }
      }
    }
  },
};
