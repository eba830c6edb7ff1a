// NF4, the four bits of QLoRA (Dettmers et al. 2023) as bitsandbytes stores them: blocks of 64, each a float32 scale, its
// largest size, and 64 indices of 16 levels, two to a byte, the first in the upper half; a value is their product. Here the
// scale lies before its block; files have the scales apart (checkpoint/bitsandbytes.ts).
//
// Invariant: a product is rounded once, to float32, and is never subnormal, which some GPUs flush; what was widened is
// narrowed to the same values again.

import { at } from '../util/at.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** Values in a block, and its bytes: the scale, then the indices. */
export const NF4_BLOCK = { elements: 64, bytes: 36 } as const;

/** The levels: quantiles of a normal distribution, 0 and both ends among them. */
export const NF4_LEVELS: readonly number[] = [
  -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
];

/** What is above one of these is of the next level: bitsandbytes' own, half way between two. */
const LIMITS = [
  -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
  -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
  0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
];

/** Below it a product might be subnormal. */
const LEAST_SCALE = 2 ** -120;

/** The scale that a block of so large values has: one that is too small makes it a block of zeros. */
export const nf4Scale = (largest: number): number => (Math.abs(largest) < LEAST_SCALE ? 0 : largest);

/** The level of a value of -1 to 1. */
function levelOf(value: number): number {
  let level = value > at(LIMITS, 7) ? 8 : 0;
  if (value > at(LIMITS, level + 3)) level += 4;
  if (value > at(LIMITS, level + 1)) level += 2;
  return value > at(LIMITS, level) ? level + 1 : level;
}

/** The levels of all values from one multiple of 1 / GRID to the next; -1 where a limit lies between them. */
const GRID = 2 ** 12;
const LEVELS_OF_GRID = Int8Array.from({ length: 2 * GRID + 2 }, (_, i) => {
  const [first, last] = [levelOf((i - GRID) / GRID), levelOf((i + 1 - GRID) / GRID)];
  return first === last ? first : -1;
});

/** As bitsandbytes has it: each value times the inverse of its block's largest size. Whole blocks. */
export function narrowNF4(floats: Floats): Bytes {
  const { elements, bytes: blockBytes } = NF4_BLOCK;
  const blocks = floats.length / elements;
  const bytes = new Uint8Array(blocks * blockBytes);
  const scales = new Float32Array(bytes.buffer);
  for (let block = 0; block < blocks; block++) {
    const end = (block + 1) * elements;
    let largest = 0;
    for (let i = block * elements; i < end; i++) largest = Math.max(largest, Math.abs(floats[i] ?? 0));
    const scale = nf4Scale(largest);
    scales[(block * blockBytes) / 4] = scale;
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    let into = block * blockBytes + 4;
    for (let i = block * elements; i < end; i += 2)
      bytes[into++] = (indexOf((floats[i] ?? 0) * inverse) << 4) | indexOf((floats[i + 1] ?? 0) * inverse);
  }
  return bytes;
}

/** Of a value of -1 to 1, which a rounding may exceed. */
function indexOf(value: number): number {
  const found = LEVELS_OF_GRID[Math.trunc((value + 1) * GRID)] ?? -1;
  return found >= 0 ? found : levelOf(Math.fround(value));
}

/** The scales of whole blocks. */
export function scalesOfNF4({ buffer, byteOffset, byteLength }: Bytes): Floats {
  const view = new DataView(buffer, byteOffset, byteLength);
  const scales = new Float32Array(Math.floor(byteLength / NF4_BLOCK.bytes));
  for (const block of scales.keys()) scales[block] = view.getFloat32(block * NF4_BLOCK.bytes, true);
  return scales;
}

/** The values of whole blocks, in `into` if it is given; what is behind them is left out. */
export function widenNF4(bytes: Bytes, into?: Floats): Floats {
  const { elements, bytes: blockBytes } = NF4_BLOCK;
  const scales = scalesOfNF4(bytes);
  const floats = into ?? new Float32Array(scales.length * elements);
  const products = new Float32Array(NF4_LEVELS.length);
  for (const [block, scale] of scales.entries()) {
    for (const [level, value] of NF4_LEVELS.entries()) products[level] = value * scale;
    const from = block * blockBytes + 4;
    for (let i = 0, into = block * elements; i < elements / 2; i++) {
      const pair = bytes[from + i] ?? 0;
      floats[into++] = products[pair >> 4] ?? 0;
      floats[into++] = products[pair & 15] ?? 0;
    }
  }
  return floats;
}
