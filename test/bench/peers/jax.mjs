// jax-js: the whole step (loss, gradients, Adam) in one jit, so that it fuses what it can. Its optimizers
// (@jax-js/optax) are not on npm's registry everywhere and run outside of jit; Adam here is the same formula.
// In jax-js every use of an array consumes it: `.ref` keeps it for another.

import { defaultDevice, init, jit, nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax';
import { headlessHost } from '../../../dist/headless.js';
import { ADAM, firstWeights, LAYERNORM_EPSILON, provideNavigator, report, SHAPE } from './task.mjs';

// jax-js uses iterator helpers, which Node has from 22 on.
const iterators = Object.getPrototypeOf(Object.getPrototypeOf([].values()));
iterators.map ??= function* (f) {
  for (const item of this) yield f(item);
};
iterators.filter ??= function* (f) {
  for (const item of this) if (f(item)) yield item;
};

const [adapter, seconds] = process.argv.slice(2);
const { layers, width: C, heads, vocabulary: V, batch: B, seq: T } = SHAPE;

const layernorm = (p, name, x) =>
  nn.standardize(x, -1, { epsilon: LAYERNORM_EPSILON }).mul(p[`${name}.weight`]).add(p[`${name}.bias`]);
const linear = (p, name, x) => np.dot(x, p[`${name}.weight`]).add(p[`${name}.bias`]);

function attention(p, name, x) {
  const [q, k, v] = np.split(linear(p, `${name}.c_attn`, x), 3, -1).map((a) => a.reshape([B, T, heads, C / heads]));
  const y = nn.dotProductAttention(q, k, v, { isCausal: true });
  return linear(p, `${name}.c_proj`, y.reshape([B, T, C]));
}

/** ids, targets (B, T) -> mean loss */
function lossOf(p, ids, targets) {
  const wte = p['wte.weight'];
  let x = np.dot(nn.oneHot(ids, V), wte.ref).add(p['wpe.weight']); // (B, T, C)
  for (let i = 0; i < layers; i++) {
    x = x.ref.add(attention(p, `h.${i}.attn`, layernorm(p, `h.${i}.ln_1`, x)));
    const wide = nn.gelu(linear(p, `h.${i}.mlp.c_fc`, layernorm(p, `h.${i}.ln_2`, x.ref))); // (B, T, 4C)
    x = x.add(linear(p, `h.${i}.mlp.c_proj`, wide));
  }
  const logits = np.dot(layernorm(p, 'ln_f', x), wte.transpose()); // (B, T, V)
  return nn
    .logSoftmax(logits)
    .mul(nn.oneHot(targets, V))
    .sum()
    .mul(-1 / (B * T));
}

const { learningRate, beta1, beta2, epsilon } = ADAM;

/** correction1, correction2: 1 / (1 - beta^t). */
const update = jit((params, moment1, moment2, correction1, correction2, ids, targets) => {
  const [loss, gradient] = valueAndGrad(lossOf)(tree.ref(params), ids, targets);
  const m = tree.map((a, g) => a.mul(beta1).add(g.mul(1 - beta1)), moment1, tree.ref(gradient));
  const v = tree.map((a, g) => a.mul(beta2).add(g.ref.mul(g).mul(1 - beta2)), moment2, gradient);
  const updated = tree.map(
    (p, a, b) => {
      const size = np.sqrt(b.mul(correction2.ref)).add(epsilon);
      return p.sub(a.mul(correction1.ref).mul(learningRate).div(size));
    },
    params,
    tree.ref(m),
    tree.ref(v),
  );
  correction1.dispose();
  correction2.dispose();
  return [updated, m, v, loss];
});

const adapterName = await provideNavigator(headlessHost(), adapter);
await report(Number(seconds), async () => {
  await init('webgpu');
  defaultDevice('webgpu');
  const weights = Object.entries(firstWeights());
  let params = Object.fromEntries(weights.map(([name, { shape, values }]) => [name, np.array(values).reshape(shape)]));
  let m = Object.fromEntries(weights.map(([name, { shape }]) => [name, np.zeros(shape)]));
  let v = Object.fromEntries(weights.map(([name, { shape }]) => [name, np.zeros(shape)]));
  let t = 0;
  const step = (ids, targets) => {
    t++;
    const corrections = [1 / (1 - beta1 ** t), 1 / (1 - beta2 ** t)].map((c) =>
      np.array(new Float32Array([c])).reshape([]),
    );
    const batch = [ids, targets].map((list) => np.array(list).reshape([B, T]));
    let loss;
    [params, m, v, loss] = update(params, m, v, ...corrections, ...batch);
    return loss.jsAsync();
  };
  return { adapter: adapterName, step };
});
