// C = op(A) op(B), continued from C or not, finished by an epilogue. One strided problem serves NN, NT and
// TN, column slices of packed tensors and row tiles of large weights. The sum over k is in increasing order
// with one accumulator per element in every variant: splitting k over calls changes no bit, nor does splitting M or N.

import blockShader from '../../shaders/matmul/block.wgsl?raw';
import epilogueActivationGradient from '../../shaders/matmul/epilogue_activation_gradient.wgsl?raw';
import epilogueBias from '../../shaders/matmul/epilogue_bias.wgsl?raw';
import epilogueBiasActivation from '../../shaders/matmul/epilogue_bias_activation.wgsl?raw';
import epilogueBiasResidual from '../../shaders/matmul/epilogue_bias_residual.wgsl?raw';
import epilogueNone from '../../shaders/matmul/epilogue_none.wgsl?raw';
import epilogueResidual from '../../shaders/matmul/epilogue_residual.wgsl?raw';
import epilogueScale from '../../shaders/matmul/epilogue_scale.wgsl?raw';
import epilogueSoftcap from '../../shaders/matmul/epilogue_softcap.wgsl?raw';
import load1 from '../../shaders/matmul/load_1.wgsl?raw';
import load4 from '../../shaders/matmul/load_4.wgsl?raw';
import problemShader from '../../shaders/matmul/problem.wgsl?raw';
import quadsShader from '../../shaders/matmul/quads.wgsl?raw';
import rowsShader from '../../shaders/matmul/rows.wgsl?raw';
import tiledShader from '../../shaders/matmul/tiled.wgsl?raw';
import tiledSmallShader from '../../shaders/matmul/tiled_small.wgsl?raw';
import tanhMath from '../../shaders/shared/tanh_math.wgsl?raw';
import { assert } from '../util/errors.ts';
import { ACTIVATION_NAMES, ACTIVATIONS, type ActivationName } from './activations.ts';
import {
  type Arrays,
  ceilDiv,
  type Dispatch,
  hasQuads,
  type Kernel,
  linearGrid,
  type Operand,
  type RowCut,
  read,
  startingAt,
  type Tile,
  update,
  write,
} from './kernel.ts';

export type Layout = 'NN' | 'NT' | 'TN';

/**
 * What happens to each element of the product s. With `residual`: bias is added first, then the residual.
 * `residual` and `preactivation` lie as C does: same offset, same stride.
 */
export type Epilogue =
  | 'none' // c = s
  | 'scale' // c = scale * s
  | 'softcap' // c = scale * tanh(s / scale)
  | 'bias' // c = s + bias
  | 'residual' // c = residual + s
  | 'biasResidual' // c = residual + (s + bias)
  | `bias${Capitalize<ActivationName>}` // preactivation = s + bias, c = activation(preactivation)
  | `${ActivationName}Gradient`; // c = s * activation'(preactivation)

/** The epilogues that have an activation in them. */
export const epiloguesOf = (name: ActivationName) => ({
  /** `biasGelu`, ... */
  forward: `bias${name[0]!.toUpperCase()}${name.slice(1)}` as `bias${Capitalize<ActivationName>}`,
  gradient: `${name}Gradient` as const,
});

const ACTIVATED = new Map(ACTIVATION_NAMES.map((name) => [epiloguesOf(name).forward as Epilogue, ACTIVATIONS[name]]));
const SLOPED = new Map(ACTIVATION_NAMES.map((name) => [epiloguesOf(name).gradient as Epilogue, ACTIVATIONS[name]]));

/** NN: A (M, K), B (K, N). NT: A (M, K), B (N, K). TN: A (K, M), B (K, N). C (M, N). */
export interface MatmulProblem {
  layout: Layout;
  M: number;
  N: number;
  K: number;
  /** Elements between rows of A, B and C as they are stored. @default the row's length */
  aStride?: number;
  bStride?: number;
  cStride?: number;
  /** Elements before the first of A, B and C. @default 0 */
  aOffset?: number;
  bOffset?: number;
  cOffset?: number;
  /** Elements of bias before the first. @default 0 */
  biasOffset?: number;
  /** Adds the product to C. @default false */
  accumulate?: boolean;
  /** C is a part of a larger tensor whose other elements stay. @default false */
  partial?: boolean;
  /** @default 'none' */
  epilogue?: Epilogue;
  /** For the epilogues 'scale' and 'softcap'. @default 1 */
  scale?: number;
}

const epilogues: ReadonlyMap<Epilogue, string> = new Map([
  ...([
    ['none', epilogueNone],
    ['scale', epilogueScale],
    ['softcap', epilogueSoftcap + tanhMath],
    ['bias', epilogueBias],
    ['residual', epilogueResidual],
    ['biasResidual', epilogueBiasResidual],
  ] as const),
  ...[...ACTIVATED].map(([name, { text }]) => [name, epilogueBiasActivation + text] as const),
  ...[...SLOPED].map(([name, { text }]) => [name, epilogueActivationGradient + text] as const),
]);

/** Rows and columns of A and B as stored, with strides and offsets filled in. */
function geometry(p: MatmulProblem) {
  const [aRows, aColumns] = p.layout === 'TN' ? [p.K, p.M] : [p.M, p.K];
  const [bRows, bColumns] = p.layout === 'NT' ? [p.N, p.K] : [p.K, p.N];
  const aStride = p.aStride ?? aColumns;
  const bStride = p.bStride ?? bColumns;
  const cStride = p.cStride ?? p.N;
  return {
    a: { size: (p.aOffset ?? 0) + (aRows - 1) * aStride + aColumns, stride: aStride },
    b: { size: (p.bOffset ?? 0) + (bRows - 1) * bStride + bColumns, stride: bStride },
    c: { size: (p.cOffset ?? 0) + (p.M - 1) * cStride + p.N, stride: cStride },
  };
}

/** C. */
function product({ accumulate, partial }: MatmulProblem, size: number): Operand {
  if (accumulate) return update(size);
  return partial ? { ...update(size), replaces: true } : write(size);
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
  };
}

/** Loads of four floats at a time where A and B allow it (see matmul/load_4.wgsl), else of one: the same bits. */
function loadsFor(p: MatmulProblem): string {
  const { a, b } = geometry(p);
  const counts = [p.K, p.aOffset ?? 0, p.bOffset ?? 0, a.stride, b.stride, a.size, b.size];
  return counts.every((count) => count % 4 === 0) ? load4 : load1;
}

/** One workgroup for each tile of C. The text behind `main` gives it its loads, its start and its epilogue. */
function tiles(
  main: string,
  loads: string,
  p: MatmulProblem,
  tile: { rows: number; columns: number },
  constants: Dispatch['constants'] = {},
): Dispatch {
  return {
    shader: main + loads + problemShader + epilogues.get(p.epilogue ?? 'none')!,
    constants: { ...constants, A_ALONG_M: p.layout === 'TN' ? 1 : 0, B_ALONG_K: p.layout === 'NT' ? 1 : 0 },
    params: params(p),
    workgroups: linearGrid(ceilDiv(p.M, tile.rows) * ceilDiv(p.N, tile.columns)),
  };
}

/** The rows of a stored matrix (`offset` elements into its tensor) that a tile holds: from, count, new offset. */
function rowsIn(tile: Tile, rows: number, stride: number, offset: number) {
  assert(tile.first % stride === 0 && tile.size % stride === 0, 'a tile of a matmul operand is whole rows');
  const before = tile.first / stride - Math.floor(offset / stride);
  const from = Math.max(0, before);
  const count = Math.min(rows, before + tile.size / stride) - from;
  return { from, count, offset: offset + from * stride - tile.first };
}

/** The steps of k that go with these rows of B. The last part finishes the sums, the others leave them in C. */
function partOfK(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { a, b } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.K, b.stride, p.bOffset ?? 0);
  if (count <= 0) return undefined;
  const part: MatmulProblem = {
    ...p,
    K: count,
    aStride: a.stride,
    aOffset: (p.aOffset ?? 0) + from * (p.layout === 'TN' ? a.stride : 1),
    bOffset: offset,
    accumulate: from > 0 || (p.accumulate ?? false),
  };
  return from + count < p.K ? { ...part, epilogue: 'none' } : part;
}

/** The columns of C that go with these rows of a B stored transposed. */
function partOfN(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { b, c } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.N, b.stride, p.bOffset ?? 0);
  if (count <= 0) return undefined;
  return {
    ...p,
    N: count,
    bOffset: offset,
    cStride: c.stride,
    cOffset: (p.cOffset ?? 0) + from,
    biasOffset: (p.biasOffset ?? 0) + from,
    partial: count < p.N || (p.partial ?? false),
  };
}

/** These rows of C, and those of A that go with them. */
function partOfM(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { epilogue = 'none' } = p;
  assert(epilogue === 'none' || epilogue === 'scale' || epilogue === 'bias', `${epilogue} finishes no tile of C`);
  const { a, c } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.M, c.stride, p.cOffset ?? 0);
  if (count <= 0) return undefined;
  const aOffset = (p.aOffset ?? 0) + from * (p.layout === 'TN' ? 1 : a.stride);
  return { ...p, M: count, aStride: a.stride, aOffset, cOffset: offset };
}

/** 'rows' serves up to so many rows at a time. */
const FEW = 4;

/** Lanes in a workgroup of 'rows', four columns each. */
const LANES = 32;

/** So few tiles of 64 x 64 leave a large GPU idle: smaller ones are tried, too. Each compute unit runs several at once. */
const FEW_TILES = 512;

/** Multiply-adds past which 'block' is not tried: a GPU would take long over it, and Windows resets one that does. */
const LARGEST_BLOCK_TRIAL = 2 ** 31;

export const matmul: Kernel<MatmulProblem> = {
  name: 'matmul',
  operands(p) {
    const { a, b, c } = geometry(p);
    const operands: Record<string, Operand> = {
      a: startingAt(p.aOffset ?? 0, read(a.size)),
      b: startingAt(p.bOffset ?? 0, read(b.size)),
      c: startingAt(p.cOffset ?? 0, product(p, c.size)),
    };
    const epilogue = p.epilogue ?? 'none';
    const isActivated = ACTIVATED.has(epilogue);
    if (epilogue === 'bias' || epilogue === 'biasResidual' || isActivated) {
      operands['bias'] = startingAt(p.biasOffset ?? 0, read((p.biasOffset ?? 0) + p.N));
    }
    if (epilogue === 'residual' || epilogue === 'biasResidual') operands['residual'] = read(c.size);
    if (isActivated) operands['preactivation'] = p.partial ? update(c.size) : write(c.size);
    if (SLOPED.has(epilogue)) operands['preactivation'] = read(c.size);
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
        return tiles(quadsShader, loadsFor(p), p, { rows: 16, columns: 16 * QUADS }, { QUADS });
      },
    },
    {
      // 64 invocations and 8,704 bytes of workgroup memory: within the limits that WebGPU guarantees.
      name: 'tiled',
      supports: (_, { software }) => !software,
      dispatch: (p) => tiles(tiledShader, loadsFor(p), p, { rows: 64, columns: 64 }),
    },
    {
      // 64 invocations and 9,216 bytes.
      name: 'tiledSmall',
      supports: ({ M, N }, { software }) => !software && ceilDiv(M, 64) * ceilDiv(N, 64) < FEW_TILES,
      dispatch: (p) => tiles(tiledSmallShader, loadsFor(p), p, { rows: 32, columns: 32 }),
    },
    {
      // No barriers, no subgroup operations: for software adapters that report no subgroups (Deno's), and to be tried elsewhere.
      name: 'block',
      supports: ({ M, N, K }, { software }) => M > FEW && (software || M * N * K <= LARGEST_BLOCK_TRIAL),
      dispatch: (p) => tiles(blockShader, load1, p, { rows: 16, columns: 32 }),
    },
  ],
  rows(p, rows): RowCut<MatmulProblem> | undefined {
    const { a, b, c } = geometry(p);
    const { aOffset = 0, bOffset = 0, cOffset = 0, epilogue = 'none' } = p;
    if (p.layout !== 'TN') {
      if (p.M !== rows || aOffset + p.K > a.stride || cOffset + p.N > c.stride) return undefined;
      const strides = { a: a.stride, c: c.stride, residual: c.stride, preactivation: c.stride };
      return { unit: 1, strides, part: (_, count) => ({ ...p, M: count }) };
    }
    // A sum over rows, which each part continues.
    if (p.K !== rows || epilogue !== 'none' || aOffset + p.M > a.stride || bOffset + p.N > b.stride) return undefined;
    const part = (first: number, count: number) => ({ ...p, K: count, ...(first > 0 && { accumulate: true }) });
    return { unit: 1, strides: { a: a.stride, b: b.stride }, part };
  },
  tile(p, operand, tile) {
    if (operand === 'c') return partOfM(p, tile);
    assert(operand === 'b', `matmul takes no tiled ${operand}`);
    return p.layout === 'NT' ? partOfN(p, tile) : partOfK(p, tile);
  },
  cutsBlocks: ({ layout, M }) => (layout === 'TN' ? undefined : M),
  flops: ({ M, N, K }) => 2 * M * N * K,
  reference(
    p,
    { a, b, c, bias, residual, preactivation }: Arrays<'a' | 'b' | 'c' | 'bias' | 'residual' | 'preactivation'>,
  ) {
    const s = params(p);
    const { epilogue = 'none' } = p;
    const [activated, sloped] = [ACTIVATED.get(epilogue), SLOPED.get(epilogue)];
    for (let m = 0; m < p.M; m++) {
      for (let n = 0; n < p.N; n++) {
        const at = s.c0 + m * s.c_m + n;
        let sum = p.accumulate ? c[at]! : 0;
        for (let k = 0; k < p.K; k++) sum += a[s.a0 + m * s.a_m + k * s.a_k]! * b[s.b0 + k * s.b_k + n * s.b_n]!;
        switch (epilogue) {
          case 'none':
            c[at] = sum;
            break;
          case 'scale':
            c[at] = s.scale * sum;
            break;
          case 'softcap':
            c[at] = s.scale * Math.tanh(sum / s.scale);
            break;
          case 'bias':
            c[at] = sum + bias[s.bias0 + n]!;
            break;
          case 'residual':
            c[at] = residual[at]! + sum;
            break;
          case 'biasResidual':
            c[at] = residual[at]! + sum + bias[s.bias0 + n]!;
            break;
          default:
            if (activated) {
              preactivation[at] = sum + bias[s.bias0 + n]!;
              c[at] = activated.value(preactivation[at]);
            } else if (sloped) c[at] = sum * sloped.slope(preactivation[at]!);
        }
      }
    }
  },
};
