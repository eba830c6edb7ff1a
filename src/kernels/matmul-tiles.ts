// The tiled variants of a matrix product on GPUs: a small table of workgroup shapes, each made of the same WGSL, and which of them are
// worth a trial for a problem. All add a sum up in the same order.

import panelFloats from '../../shaders/matmul/panel_floats.wgsl?raw';
import panelHalves from '../../shaders/matmul/panel_halves.wgsl?raw';
import panelLoop from '../../shaders/matmul/panel_loop.wgsl?raw';
import panelUnrolled from '../../shaders/matmul/panel_unrolled.wgsl?raw';
import rowsFloats from '../../shaders/matmul/rows_floats.wgsl?raw';
import rowsHalves from '../../shaders/matmul/rows_halves.wgsl?raw';
import sums4x4 from '../../shaders/matmul/sums_4x4.wgsl?raw';
import sums4x8 from '../../shaders/matmul/sums_4x8.wgsl?raw';
import sums8x8 from '../../shaders/matmul/sums_8x8.wgsl?raw';
import tileBlocks from '../../shaders/matmul/tile_blocks.wgsl?raw';
import tiledShader from '../../shaders/matmul/tiled.wgsl?raw';
import { ceilDiv, type StoredOperands } from './kernel.ts';
import type { MatmulProblem } from './matmul-problem.ts';

/** Of problems by the tiles of 64 x 64 that they have: `all`, or where these would be few, or where they are many. */
type Suits = 'all' | 'few' | 'many';

/** A workgroup's tile of C, and how its lanes go about it. */
export interface TileShape {
  /** The variant's. */
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  /** What a lane has of it in registers. */
  readonly block: readonly [rows: number, columns: number];
  /** Steps of k that lie in workgroup memory at a time. */
  readonly depth: 16 | 32;
  /** Whether the steps of a panel are written out. */
  readonly unrolled: boolean;
  readonly suits: Suits;
  /** Operands that stay in halves in workgroup memory, where they are stored so. */
  readonly halves?: StoredOperands;
}

const SQUARE = { rows: 64, columns: 64, block: [8, 8], depth: 16, suits: 'all' } as const;
const B_HALVES = { ...SQUARE, halves: { b: 'f16' } } as const;
const ALL_HALVES = { ...SQUARE, halves: { a: 'f16', b: 'f16' } } as const;

/** At most four are tried for a problem of floats. Bfloat16 takes more to widen than panels of it save. */
export const TILE_SHAPES: readonly TileShape[] = [
  { name: 'tiled', ...SQUARE, unrolled: false },
  { name: 'tiledUnrolled', ...SQUARE, unrolled: true },
  { name: 'tiled128x64', rows: 128, columns: 64, block: [8, 8], depth: 16, unrolled: true, suits: 'many' },
  { name: 'tiled64x128', rows: 64, columns: 128, block: [8, 8], depth: 16, unrolled: true, suits: 'many' },
  { name: 'tiled32x64', rows: 32, columns: 64, block: [4, 8], depth: 16, unrolled: true, suits: 'few' },
  { name: 'tiledSmall', rows: 32, columns: 32, block: [4, 4], depth: 32, unrolled: false, suits: 'few' },
  { name: 'tiledHalves', ...B_HALVES, unrolled: false },
  { name: 'tiledHalvesUnrolled', ...B_HALVES, unrolled: true },
  { name: 'tiledAllHalves', ...ALL_HALVES, unrolled: false },
  { name: 'tiledAllHalvesUnrolled', ...ALL_HALVES, unrolled: true },
];

/** So few tiles of 64 x 64 leave a large GPU idle: smaller ones are tried, too. Each compute unit runs several at once. */
const FEW_TILES = 512;
export const hasFewTiles = ({ M, N }: MatmulProblem): boolean => ceilDiv(M, 64) * ceilDiv(N, 64) < FEW_TILES;

export const suitsTiles = (p: MatmulProblem, { suits }: TileShape): boolean =>
  suits === 'all' || hasFewTiles(p) === (suits === 'few');

const SUMS: Readonly<Record<string, string>> = { '8x8': sums8x8, '4x8': sums4x8, '4x4': sums4x4 };

/** The text of a shape, and the constants in front of it. */
export function tileText({ rows, columns, block, depth, unrolled, halves = {} }: TileShape) {
  const panels = (halves['a'] ? rowsHalves : rowsFloats) + (halves['b'] ? panelHalves : panelFloats);
  const [down, across] = block;
  return {
    text: tiledShader + SUMS[block.join('x')] + (unrolled ? panelUnrolled : panelLoop) + panels + tileBlocks,
    constants: { TILE_ROWS: rows, TILE_COLUMNS: columns, LANES: (rows / down) * (columns / across), DEPTH: depth },
  };
}
