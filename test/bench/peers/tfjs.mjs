// TensorFlow.js on its WebGPU backend: variables, `optimizer.minimize` in a tidy, matmuls with the bias fused.

import * as tf from '@tensorflow/tfjs';
import { headlessHost } from '../../../dist/headless.js';
import { ADAM, firstWeights, LAYERNORM_EPSILON, provideNavigator, report, SHAPE } from './task.mjs';

const [adapter, seconds] = process.argv.slice(2);
const { layers, width: C, heads, vocabulary: V, batch: B, seq: T } = SHAPE;

/** x (B T, C) */
function layernorm(p, name, x) {
  const { mean, variance } = tf.moments(x, -1, true);
  const normed = x.sub(mean).mul(variance.add(LAYERNORM_EPSILON).rsqrt());
  return normed.mul(p[`${name}.weight`]).add(p[`${name}.bias`]);
}

const linear = (p, name, x) => tf.fused.matMul({ a: x, b: p[`${name}.weight`], bias: p[`${name}.bias`] });

function gelu(x) {
  const inner = x
    .mul(x)
    .mul(0.044715)
    .add(1)
    .mul(x)
    .mul(Math.sqrt(2 / Math.PI));
  return x.mul(0.5).mul(inner.tanh().add(1));
}

function attention(p, name, x, mask) {
  const [q, k, v] = linear(p, `${name}.c_attn`, x)
    .split(3, 1)
    .map((a) => a.reshape([B, T, heads, C / heads]).transpose([0, 2, 1, 3])); // (B, NH, T, HS)
  const scores = q
    .matMul(k, false, true)
    .mul(1 / Math.sqrt(C / heads))
    .add(mask);
  const y = scores
    .softmax()
    .matMul(v)
    .transpose([0, 2, 1, 3])
    .reshape([B * T, C]);
  return linear(p, `${name}.c_proj`, y);
}

/** ids, targets (B T) -> mean loss */
function lossOf(p, ids, targets, mask) {
  const wte = p['wte.weight'];
  let x = tf.oneHot(ids, V).toFloat().matMul(wte); // (B T, C)
  x = x
    .reshape([B, T, C])
    .add(p['wpe.weight'])
    .reshape([B * T, C]);
  for (let i = 0; i < layers; i++) {
    x = x.add(attention(p, `h.${i}.attn`, layernorm(p, `h.${i}.ln_1`, x), mask));
    const wide = gelu(linear(p, `h.${i}.mlp.c_fc`, layernorm(p, `h.${i}.ln_2`, x))); // (B T, 4C)
    x = x.add(linear(p, `h.${i}.mlp.c_proj`, wide));
  }
  const logits = layernorm(p, 'ln_f', x).matMul(wte, false, true); // (B T, V)
  return tf.losses.softmaxCrossEntropy(tf.oneHot(targets, V), logits);
}

const adapterName = await provideNavigator(headlessHost(), adapter);
await import('@tensorflow/tfjs-backend-webgpu'); // registers itself where it finds navigator.gpu
await report(Number(seconds), async () => {
  await tf.setBackend('webgpu');
  await tf.ready();
  const params = Object.fromEntries(
    Object.entries(firstWeights()).map(([name, { shape, values }]) => [
      name,
      tf.variable(tf.tensor(values, shape), true, name),
    ]),
  );
  const above = Float32Array.from({ length: T * T }, (_, i) => (i % T > Math.floor(i / T) ? -1e9 : 0));
  const mask = tf.tensor(above, [T, T]);
  const { learningRate, beta1, beta2, epsilon } = ADAM;
  const optimizer = tf.train.adam(learningRate, beta1, beta2, epsilon);
  const step = async (ids, targets) => {
    const loss = tf.tidy(() => {
      const [x, y] = [tf.tensor1d(ids, 'int32'), tf.tensor1d(targets, 'int32')];
      return optimizer.minimize(() => lossOf(params, x, y, mask), true);
    });
    const [value] = await loss.data();
    loss.dispose();
    return value;
  };
  return { adapter: adapterName, step };
});
