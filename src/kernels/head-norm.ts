// RMSNorm over each head of packed rows, as RoPE in place: columns beside the heads stay as they are. All heads share one
// weight. Not the norm of a whole row (rmsnorm.ts), whose input outlives it: here the normed values are kept instead.

import backwardShader from '../../shaders/head-norm/backward.wgsl?raw';
import forwardShader from '../../shaders/head-norm/forward.wgsl?raw';
import parameterGrad from '../../shaders/head-norm/parameter_grad.wgsl?raw';
import { type Arrays, ceilDiv, type Kernel, type RowCut, read, update, write } from './kernel.ts';
import { ROW_BLOCK, unitOfPartials } from './norm-gradients.ts';
import { type Lanes, lanesOf, perElem, perRow } from './variants.ts';

/** Where the heads are that are normed. */
export interface HeadRows {
  /** Heads of all tokens together: what is normed by itself. */
  rows: number;
  /** Heads of one token. */
  heads: number;
  /** Elements of a head. */
  width: number;
  /** Elements from one token to the next. */
  stride: number;
  /** The column of the first head. */
  offset: number;
}

export interface HeadNormBackwardProblem extends HeadRows {
  /** Added to the weight. @default 0 */
  gainOffset?: number;
}

export interface HeadNormProblem extends HeadNormBackwardProblem {
  eps: number;
}

const packedSize = ({ rows, heads, width, stride, offset }: HeadRows) =>
  offset + (rows / heads - 1) * stride + heads * width;

/** Where an element of a row lies among the packed ones. */
const baseOf = ({ heads, width, stride, offset }: HeadRows, row: number) =>
  Math.floor(row / heads) * stride + offset + (row % heads) * width;

const lanes = ({ width, stride, offset }: HeadRows): Lanes => lanesOf(width, stride, offset);

const widthOf = ({ width }: HeadRows): number => width;

const inElem = ({ rows, heads, width, stride, offset }: HeadRows, lanes: Lanes) => ({
  ...{ rows, heads, width: width / lanes, stride: stride / lanes, offset: offset / lanes },
});

const affectsSpeed = { rows: true, heads: true, width: true, stride: false, offset: false } as const;

/** `packed`: the operand with whole tokens. `single`: those with one element a head. */
const cutByTokens =
  (packed: string, single: readonly string[]) =>
  <P extends HeadRows>(p: P, rows: number): RowCut<P> | undefined =>
    p.rows === rows * p.heads && p.offset + p.heads * p.width <= p.stride
      ? {
          unit: 1,
          strides: {
            [packed]: p.stride,
            normal: p.heads * p.width,
            ...Object.fromEntries(single.map((name) => [name, p.heads])),
          },
          part: (_, count) => ({ ...p, rows: count * p.heads }),
        }
      : undefined;

/** weight (width) -> x (rows / heads, stride), heads normed in place; normal (rows, width), rstd (rows). */
export const headNorm: Kernel<HeadNormProblem> = {
  name: 'headNorm',
  operands: (p) => ({
    x: update(packedSize(p)),
    weight: read(p.width),
    normal: write(p.rows * p.width),
    rstd: write(p.rows),
  }),
  affectsSpeed: { ...affectsSpeed, eps: false, gainOffset: false },
  variants: perRow<HeadNormProblem>(forwardShader, widthOf, lanes, (p, lanes) => ({
    ...inElem(p, lanes),
    eps: p.eps,
    gain: p.gainOffset ?? 0,
  })),
  rows: cutByTokens('x', ['rstd']),
  flops: ({ rows, width }) => rows * width * 4,
  reference(p, { x, weight, normal, rstd }: Arrays<'x' | 'weight' | 'normal' | 'rstd'>) {
    const { rows, width, eps, gainOffset = 0 } = p;
    for (let r = 0; r < rows; r++) {
      const head = x.subarray(baseOf(p, r), baseOf(p, r) + width);
      const scale = 1 / Math.sqrt(head.reduce((a, b) => a + b * b, 0) / width + eps);
      for (const [c, value] of head.entries()) {
        normal[r * width + c] = value * scale;
        head[c] = value * scale * (weight[c]! + gainOffset);
      }
      rstd[r] = scale;
    }
  },
};

/** normal (rows, width), weight (width), rstd (rows) -> dx, which holds the gradient of the output and becomes the input's. */
export const headNormBackward: Kernel<HeadNormBackwardProblem> = {
  name: 'headNormBackward',
  operands: (p) => ({
    normal: read(p.rows * p.width),
    weight: read(p.width),
    rstd: read(p.rows),
    dx: update(packedSize(p)),
  }),
  affectsSpeed: { ...affectsSpeed, gainOffset: false },
  variants: perRow<HeadNormBackwardProblem>(backwardShader, widthOf, lanes, (p, lanes) => ({
    ...inElem(p, lanes),
    gain: p.gainOffset ?? 0,
  })),
  rows: cutByTokens('dx', ['rstd']),
  flops: ({ rows, width }) => rows * width * 7,
  reference(p, { normal, weight, rstd, dx }: Arrays<'normal' | 'weight' | 'rstd' | 'dx'>) {
    const { rows, width, gainOffset = 0 } = p;
    for (let r = 0; r < rows; r++) {
      const head = dx.subarray(baseOf(p, r), baseOf(p, r) + width);
      const n = normal.subarray(r * width, (r + 1) * width);
      const g = head.map((d, c) => d * (weight[c]! + gainOffset));
      const along = g.reduce((sum, value, c) => sum + value * n[c]!, 0) / width;
      for (const [c, value] of g.entries()) head[c] = rstd[r]! * (value - n[c]! * along);
    }
  },
};

/** dy (rows / heads, stride), normal (rows, width) -> partials (ceil(rows / ROW_BLOCK), width). */
export const headNormParameterGrad: Kernel<HeadRows> = {
  name: 'headNormParameterGrad',
  operands: (p) => ({
    dy: read(packedSize(p)),
    normal: read(p.rows * p.width),
    partials: write(ceilDiv(p.rows, ROW_BLOCK) * p.width),
  }),
  affectsSpeed,
  variants: perElem(
    parameterGrad,
    lanes,
    ({ rows, width }, lanes) => (ceilDiv(rows, ROW_BLOCK) * width) / lanes,
    inElem,
    { ROW_BLOCK },
  ),
  rows(p, rows) {
    const cut = cutByTokens('dy', [])(p, rows);
    const partials = (p.heads * p.width) / ROW_BLOCK;
    return cut && { ...cut, unit: unitOfPartials(p.width, p.heads), strides: { ...cut.strides, partials } };
  },
  flops: ({ rows, width }) => rows * width * 2,
  reference(p, { dy, normal, partials }: Arrays<'dy' | 'normal' | 'partials'>) {
    const { rows, width } = p;
    partials.fill(0);
    for (let r = 0; r < rows; r++) {
      const at = Math.floor(r / ROW_BLOCK) * width;
      for (let c = 0; c < width; c++) partials[at + c]! += dy[baseOf(p, r) + c]! * normal[r * width + c]!;
    }
  },
};
