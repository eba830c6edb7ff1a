// C = op(A) op(B), continued from C or not, finished by an epilogue. One strided problem serves NN, NT and
// TN, column slices of packed tensors and row tiles of large weights. The sum over k is in increasing order
// with one accumulator per element in every variant, so that splitting k over calls changes no bit, nor does splitting M or N; but
// in subgroup matrices, whose order is the adapter's own: they serve products that are never split over k.

import blockShader from '../../shaders/matmul/block.wgsl?raw';
import load1 from '../../shaders/matmul/load_1.wgsl?raw';
import load4 from '../../shaders/matmul/load_4.wgsl?raw';
import problemShader from '../../shaders/matmul/problem.wgsl?raw';
import quadsShader from '../../shaders/matmul/quads.wgsl?raw';
import rowsShader from '../../shaders/matmul/rows.wgsl?raw';
import store1 from '../../shaders/matmul/store_1.wgsl?raw';
import store4 from '../../shaders/matmul/store_4.wgsl?raw';
import subgroupMatrixShader from '../../shaders/matmul/subgroup_matrix.wgsl?raw';
import subgroupMatrixParts from '../../shaders/matmul/subgroup_matrix_parts.wgsl?raw';
import subgroupMatrixSmall from '../../shaders/matmul/subgroup_matrix_small.wgsl?raw';
import subgroupMatrixUnits from '../../shaders/matmul/subgroup_matrix_units.wgsl?raw';
import subgroupsFixed from '../../shaders/matmul/subgroups_fixed.wgsl?raw';
import subgroupsSized from '../../shaders/matmul/subgroups_sized.wgsl?raw';
import totalsLanes from '../../shaders/matmul/totals_lanes.wgsl?raw';
import totalsNone from '../../shaders/matmul/totals_none.wgsl?raw';
import totalsPanels from '../../shaders/matmul/totals_panels.wgsl?raw';
import { assert } from '../util/errors.ts';
import {
  type Arrays,
  ceilDiv,
  type Dispatch,
  hasQuads,
  type Kernel,
  linearGrid,
  type Operand,
  read,
  startingAt,
  update,
  type Variant,
  write,
} from './kernel.ts';
import { type FinishData, finishOf } from './matmul-epilogues.ts';
import { cutByRows, geometry, type MatmulProblem, partOfK, partOfM, partOfN } from './matmul-problem.ts';
import { hasFewTiles, suitsTiles, TILE_SHAPES, type TileShape, tileText } from './matmul-tiles.ts';

/** C. */
function product({ accumulate, partial }: MatmulProblem, size: number): Operand {
  if (accumulate) return update(size);
  return partial ? { ...update(size), replaces: true } : write(size);
}

function totalsOperand({ M, N, totalsOf, accumulateTotals, totalsOffset }: MatmulProblem): Operand {
  const size = (totalsOffset ?? 0) + (totalsOf === 'a' ? M : N);
  if (accumulateTotals) return startingAt(totalsOffset ?? 0, update(size));
  return totalsOffset === undefined ? write(size) : startingAt(totalsOffset, { ...update(size), replaces: true });
}

function params(p: MatmulProblem) {
  const { a, b, c } = geometry(p);
  const [a_m, a_k] = p.layout === 'TN' ? [1, a.stride] : [a.stride, 1];
  const [b_k, b_n] = p.layout === 'NT' ? [1, b.stride] : [b.stride, 1];
  return {
    M: p.M,
    N: p.N,
    K: p.K,
    a_m,
    a_k,
    b_k,
    b_n,
    c_m: c.stride,
    a0: p.aOffset ?? 0,
    b0: p.bOffset ?? 0,
    c0: p.cOffset ?? 0,
    bias0: p.biasOffset ?? 0,
    accumulate: p.accumulate ? 1 : 0,
    scale: p.scale ?? 1,
    block: p.stepsPerBlock ?? 0,
    accumulate_totals: p.accumulateTotals ? 1 : 0,
    totals0: p.totalsOffset ?? 0,
    first_row: p.firstRow ?? 0,
    first_label: p.firstLabel ?? 0,
    ignore_index: p.ignoreIndex ?? -1,
  };
}

/** Loads of four floats at a time where A and B allow it (see matmul/load_4.wgsl), else of one: the same bits. */
const loadsFor = (p: MatmulProblem): string => (isInFours(p) ? load4 : load1);

function isInFours(p: MatmulProblem): boolean {
  const { a, b } = geometry(p);
  const counts = [p.K, p.aOffset ?? 0, p.bOffset ?? 0, a.stride, b.stride, a.size, b.size];
  return counts.every((count) => count % 4 === 0);
}

/** C four floats at a time where it allows it (see matmul/store_4.wgsl), else one: the same bits. */
function storesFor(p: MatmulProblem): string {
  const counts = [p.N, p.cOffset ?? 0, p.biasOffset ?? 0, geometry(p).c.stride];
  return counts.every((count) => count % 4 === 0) ? store4 : store1;
}

/** One workgroup for each tile of C. The text behind `main` gives it its loads, its start, its epilogue and what it makes beside C. */
function tiles(
  main: string,
  loads: string,
  p: MatmulProblem,
  tile: { rows: number; columns: number },
  constants: Dispatch['constants'] = {},
  totals = totalsLanes,
): Dispatch {
  const along = { A_ALONG_M: p.layout === 'TN' ? 1 : 0, B_ALONG_K: p.layout === 'NT' ? 1 : 0 };
  const side = p.totalsOf && { TOTALS_OF_A: p.totalsOf === 'a' ? 1 : 0 };
  return {
    shader: main + loads + problemShader + storesFor(p) + finishOf(p).text + (side ? totals : totalsNone),
    constants: { ...constants, ...along, ...side },
    params: params(p),
    workgroups: linearGrid(ceilDiv(p.M, tile.rows) * ceilDiv(p.N, tile.columns)),
  };
}

/** 'rows' serves up to so many rows at a time. */
const FEW = 4;

/** Lanes in a workgroup of 'rows', four columns each. */
const LANES = 32;

/** Multiply-adds past which 'block' is not tried: a GPU would take long over it, and Windows resets one that does. */
const LARGEST_BLOCK_TRIAL = 2 ** 31;

/** One row of the table of tiles. */
const tiled = (shape: TileShape): Variant<MatmulProblem> => ({
  name: shape.name,
  ...(shape.halves && { readsOnly: shape.halves }),
  supports: (p, { software }) => !software && suitsTiles(p, shape),
  dispatch(p) {
    const { text, constants } = tileText(shape);
    return tiles(text, loadsFor(p), p, shape, constants, totalsPanels);
  },
});

/**
 * 128 invocations and 15,360 or 8,192 bytes. Where B is a weight stored transposed, which is cut by its rows: columns of C. `side`:
 * of a tile; below that of the largest, where those would be few.
 */
const subgroupMatrix = (name: string, main: string, side: 64 | 32): Variant<MatmulProblem> => ({
  name,
  readsOnly: { b: 'f16' },
  supports: (p, { subgroupMatrices }) =>
    subgroupMatrices !== undefined && p.layout === 'NT' && p.M > FEW && isInFours(p) && (side === 64 || hasFewTiles(p)),
  // Tiles cut at both edges, of more than a panel.
  provenOn: { problem: { layout: 'NT', M: 68, N: 76, K: 84 }, reach: { a: 2 ** 12, b: 8 } },
  dispatch(p, { subgroupMatrices }) {
    const entry = subgroupMatrices === 'sized' ? subgroupsSized : subgroupsFixed;
    const parts = subgroupMatrixParts + subgroupMatrixUnits + entry;
    return tiles(main + parts, load4, p, { rows: side, columns: side });
  },
});

export const matmul: Kernel<MatmulProblem> = {
  name: 'matmul',
  operands(p) {
    const { a, b, c } = geometry(p);
    const operands: Record<string, Operand> = {
      a: startingAt(p.aOffset ?? 0, read(a.size)),
      b: startingAt(p.bOffset ?? 0, read(b.size)),
      c: startingAt(p.cOffset ?? 0, product(p, c.size)),
      ...finishOf(p).operands?.(p),
    };
    if (p.totalsOf) operands['totals'] = totalsOperand(p);
    return operands;
  },
  affectsSpeed: {
    layout: true,
    M: true,
    N: true,
    K: true,
    aStride: false,
    bStride: false,
    cStride: false,
    aOffset: false,
    bOffset: false,
    cOffset: false,
    biasOffset: false,
    accumulate: false,
    partial: false,
    epilogue: false,
    scale: false,
    firstRow: false,
    firstLabel: false,
    ignoreIndex: false,
    totalsOf: false,
    stepsPerBlock: false,
    accumulateTotals: false,
    totalsOffset: false,
  },
  variants: [
    {
      name: 'rows',
      supports: ({ M }) => M <= FEW,
      dispatch(p) {
        const loads = p.layout === 'TN' ? load1 : loadsFor(p);
        const constants = { LANES, ROWS: Math.min(p.M, FEW) };
        return tiles(rowsShader, loads, p, { rows: FEW, columns: 4 * LANES }, constants);
      },
    },
    {
      name: 'quads',
      supports: ({ M }, traits) => M > FEW && hasQuads(traits),
      compilesSlowly: true,
      dispatch(p, { subgroupSize }) {
        const QUADS = Math.max(1, subgroupSize / 4);
        const SPLIT = QUADS === 1 && isInFours(p) ? 1 : 0;
        return tiles(quadsShader, loadsFor(p), p, { rows: 16, columns: 16 * QUADS }, { QUADS, SPLIT });
      },
    },
    ...TILE_SHAPES.map(tiled),
    {
      // No barriers, no subgroup operations: for software adapters that report no subgroups (Deno's), and to be tried elsewhere.
      name: 'block',
      supports: ({ M, N, K }, { software }) => M > FEW && (software || M * N * K <= LARGEST_BLOCK_TRIAL),
      dispatch: (p) => tiles(blockShader, load1, p, { rows: 16, columns: 32 }),
    },
    subgroupMatrix('subgroupMatrix', subgroupMatrixShader, 64),
    subgroupMatrix('subgroupMatrixSmall', subgroupMatrixSmall, 32),
  ],
  rows: cutByRows,
  tile(p, operand, tile) {
    if (operand === 'c') return partOfM(p, tile);
    assert(operand === 'b', `matmul takes no tiled ${operand}`);
    return p.layout === 'NT' ? partOfN(p, tile) : partOfK(p, tile);
  },
  cutsBlocks: ({ layout, M }) => (layout === 'TN' ? undefined : M),
  flops: ({ M, N, K, totalsOf }) => 2 * M * N * K + (totalsOf ? (totalsOf === 'a' ? M : N) * K : 0),
  reference(p, data: Arrays<'a' | 'b' | 'c' | 'totals'> & FinishData) {
    const { a, b, c, totals } = data;
    const s = params(p);
    const { totalsOf } = p;
    const finish = finishOf(p);
    for (let i = 0; totalsOf && i < (totalsOf === 'a' ? p.M : p.N); i++) {
      let sum = p.accumulateTotals ? totals[s.totals0 + i]! : 0;
      for (let k = 0; k < p.K; k++)
        sum += totalsOf === 'a' ? a[s.a0 + i * s.a_m + k * s.a_k]! : b[s.b0 + k * s.b_k + i * s.b_n]!;
      totals[s.totals0 + i] = sum;
    }
    for (let m = 0; m < p.M; m++) {
      for (let n = 0; n < p.N; n++) {
        const at = s.c0 + m * s.c_m + n;
        let sum = p.accumulate ? c[at]! : 0;
        for (let k = 0; k < p.K; k++) sum += a[s.a0 + m * s.a_m + k * s.a_k]! * b[s.b0 + k * s.b_k + n * s.b_n]!;
        c[at] = finish.value({ sum, at, m, n }, data, p);
      }
    }
  },
};
