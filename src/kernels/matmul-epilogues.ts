// The epilogues of a matrix product: of each the WGSL that finishes an element, the operands beside A, B and C, and the same in
// float64.

import logitAsItIs from '../../shaders/cross-entropy/logit_as_it_is.wgsl?raw';
import logitBias from '../../shaders/cross-entropy/logit_bias.wgsl?raw';
import lossGradient from '../../shaders/cross-entropy/loss_gradient.wgsl?raw';
import epilogueActivationGradient from '../../shaders/matmul/epilogue_activation_gradient.wgsl?raw';
import epilogueBias from '../../shaders/matmul/epilogue_bias.wgsl?raw';
import epilogueBiasActivation from '../../shaders/matmul/epilogue_bias_activation.wgsl?raw';
import epilogueBiasResidual from '../../shaders/matmul/epilogue_bias_residual.wgsl?raw';
import epilogueCrossEntropy from '../../shaders/matmul/epilogue_cross_entropy.wgsl?raw';
import epilogueNone from '../../shaders/matmul/epilogue_none.wgsl?raw';
import epilogueResidual from '../../shaders/matmul/epilogue_residual.wgsl?raw';
import epilogueScale from '../../shaders/matmul/epilogue_scale.wgsl?raw';
import epilogueSoftcap from '../../shaders/matmul/epilogue_softcap.wgsl?raw';
import tanhMath from '../../shaders/shared/tanh_math.wgsl?raw';
import { ACTIVATION_NAMES, ACTIVATIONS } from './activations.ts';
import { type Arrays, type Operand, read, startingAt, update, write } from './kernel.ts';
import { type Epilogue, epiloguesOf, geometry, type MatmulProblem } from './matmul-problem.ts';

/** An element of the product: its sum, where it lies in C, and its row and column. */
interface Place {
  readonly sum: number;
  readonly at: number;
  readonly m: number;
  readonly n: number;
}

/** What epilogues read beside the product. */
export type FinishData = Arrays<'bias' | 'residual' | 'preactivation' | 'lse' | 'targets' | 'gradientScale'>;

interface Finish {
  readonly text: string;
  /** In the order in which the WGSL declares them. @default none */
  operands?(p: MatmulProblem): Record<string, Operand>;
  /** What C gets, in float64. */
  value(place: Place, data: FinishData, p: MatmulProblem): number;
}

const sizeOfC = (p: MatmulProblem): number => geometry(p).c.size;

const biasOf = ({ biasOffset = 0, N }: MatmulProblem) => ({
  bias: startingAt(biasOffset, read(biasOffset + N)),
});
const biasAt = ({ n }: Place, { bias }: FinishData, { biasOffset = 0 }: MatmulProblem): number => bias[biasOffset + n]!;

/** Of a product that makes logits: the gradient of the loss by them. `logit`: the one that a sum is. */
const crossEntropy = (text: string, logit: Finish): Finish => ({
  text: epilogueCrossEntropy + lossGradient + text,
  operands: (p) => {
    const rows = (p.firstRow ?? 0) + p.M;
    const ofLoss = { lse: read(2 * rows), targets: read(rows, 'i32'), gradientScale: read(1) };
    return { ...ofLoss, ...logit.operands?.(p) };
  },
  value: (place, data, p) => {
    const { firstRow = 0, firstLabel = 0, ignoreIndex } = p;
    const row = firstRow + place.m;
    const label = data.targets[row]!;
    if (label === ignoreIndex) return 0;
    const shifted = logit.value(place, data, p) - data.lse[2 * row]! - data.lse[2 * row + 1]!;
    return (Math.exp(shifted) - Number(label === firstLabel + place.n)) * data.gradientScale[0]!;
  },
});

const none: Finish = { text: epilogueNone, value: ({ sum }) => sum };

const bias: Finish = {
  text: epilogueBias,
  operands: biasOf,
  value: (place, data, p) => place.sum + biasAt(place, data, p),
};

const FINISHES: ReadonlyMap<Epilogue, Finish> = new Map<Epilogue, Finish>([
  ['none', none],
  ['scale', { text: epilogueScale, value: ({ sum }, _, { scale = 1 }) => scale * sum }],
  [
    'softcap',
    { text: epilogueSoftcap + tanhMath, value: ({ sum }, _, { scale = 1 }) => scale * Math.tanh(sum / scale) },
  ],
  ['bias', bias],
  [
    'residual',
    {
      text: epilogueResidual,
      operands: (p) => ({ residual: read(sizeOfC(p)) }),
      value: ({ sum, at }, { residual }) => residual[at]! + sum,
    },
  ],
  [
    'biasResidual',
    {
      text: epilogueBiasResidual,
      operands: (p) => ({ ...biasOf(p), residual: read(sizeOfC(p)) }),
      value: (place, data, p) => data.residual[place.at]! + bias.value(place, data, p),
    },
  ],
  ['crossEntropy', crossEntropy(logitAsItIs, none)],
  ['biasCrossEntropy', crossEntropy(logitBias, bias)],
  ...ACTIVATION_NAMES.flatMap((name): [Epilogue, Finish][] => {
    const { text, value, slope } = ACTIVATIONS[name];
    const { forward, gradient } = epiloguesOf(name);
    return [
      [
        forward,
        {
          text: epilogueBiasActivation + text,
          operands: (p) => ({ ...biasOf(p), preactivation: (p.partial ? update : write)(sizeOfC(p)) }),
          value: (place, data, p) => {
            data.preactivation[place.at] = bias.value(place, data, p);
            return value(data.preactivation[place.at]!);
          },
        },
      ],
      [
        gradient,
        {
          text: epilogueActivationGradient + text,
          operands: (p) => ({ preactivation: read(sizeOfC(p)) }),
          value: ({ sum, at }, { preactivation }) => sum * slope(preactivation[at]!),
        },
      ],
    ];
  }),
]);

export const finishOf = ({ epilogue = 'none' }: MatmulProblem): Finish => FINISHES.get(epilogue) as Finish;
