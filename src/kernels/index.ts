// Every kernel, in one list: what the tests walk, so that none is without a row of problems and an error bound.

import { adamw } from './adamw.ts';
import { add, fill } from './add.ts';
import { attention } from './attention.ts';
import { attentionBackwardKV, attentionBackwardQ, attentionDelta } from './attention-backward.ts';
import { cacheAppend } from './cache-append.ts';
import { columnSum } from './column-sum.ts';
import { copyRows } from './copy-rows.ts';
import { crossEntropyBackward, crossEntropyHits, crossEntropyLoss, crossEntropyTile } from './cross-entropy.ts';
import { dropout } from './dropout.ts';
import { embedding, embeddingBackward, positionBackward, positionEmbedding } from './embedding.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from './gated.ts';
import { geluBackward, geluErfBackward } from './gelu.ts';
import { headNorm, headNormBackward, headNormParameterGrad } from './head-norm.ts';
import type { Kernel } from './kernel.ts';
import { layernorm, layernormBackward, layernormParameterGrad } from './layernorm.ts';
import { matmul } from './matmul.ts';
import { patches } from './patches.ts';
import { rmsnorm, rmsnormBackward, rmsnormParameterGrad } from './rmsnorm.ts';
import { rope } from './rope.ts';
import { recordNorm, stepControl } from './step-control.ts';
import { sumSquares } from './sum-squares.ts';
import { tanh, tanhBackward } from './tanh.ts';

// biome-ignore lint/suspicious/noExplicitAny: each kernel has a problem type of its own.
export const kernels: readonly Kernel<any>[] = [
  layernorm,
  layernormBackward,
  layernormParameterGrad,
  columnSum,
  rmsnorm,
  rmsnormBackward,
  rmsnormParameterGrad,
  headNorm,
  headNormBackward,
  headNormParameterGrad,
  geluBackward,
  geluErfBackward,
  tanh,
  tanhBackward,
  swiglu,
  swigluBackward,
  geglu,
  gegluBackward,
  add,
  fill,
  dropout,
  rope,
  embedding,
  positionEmbedding,
  embeddingBackward,
  positionBackward,
  matmul,
  attention,
  attentionDelta,
  attentionBackwardQ,
  attentionBackwardKV,
  crossEntropyTile,
  crossEntropyLoss,
  crossEntropyHits,
  crossEntropyBackward,
  sumSquares,
  stepControl,
  recordNorm,
  adamw,
  cacheAppend,
  copyRows,
  patches,
];
