// What every library here trains: one GPT, one set of first weights, one list of batches, one clock. A library
// is a function that makes `step(ids, targets) -> Promise<loss>`; steps may be started before the last one
// has answered, and every library gets the same number in flight.

/** The peers' shape; GPT-2 blocks (pre-norm, tanh GELU, MLP of 4 C), head tied to the embedding, f32. */
export const SHAPE = { layers: 2, width: 64, heads: 4, vocabulary: 65, batch: 4, seq: 64 };
/** Adam without decay and without clipping. */
export const ADAM = { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };
export const LAYERNORM_EPSILON = 1e-5;

const BATCHES = 32;
const WARM_UP_STEPS = 3;
const IN_FLIGHT = 3;
/** Losses of the first steps, by which one sees that all train alike. */
export const COMPARED_LOSSES = 8;

/** mulberry32: uniform in [0, 1). */
function uniformFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Name (Hugging Face's) -> { shape, values }; projections are (in, out). */
export function firstWeights() {
  const { layers, width: C, vocabulary: V, seq: T } = SHAPE;
  const uniform = uniformFrom(1);
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const weights = {};
  const add = (name, shape, value) => {
    weights[name] = { shape, values: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, value) };
  };
  const matrix = (name, shape) => add(name, shape, () => 0.02 * normal());
  const norm = (name) => {
    add(`${name}.weight`, [C], () => 1);
    add(`${name}.bias`, [C], () => 0);
  };
  const linear = (name, from, to) => {
    matrix(`${name}.weight`, [from, to]);
    add(`${name}.bias`, [to], () => 0);
  };
  matrix('wte.weight', [V, C]);
  matrix('wpe.weight', [T, C]);
  for (let i = 0; i < layers; i++) {
    norm(`h.${i}.ln_1`);
    linear(`h.${i}.attn.c_attn`, C, 3 * C);
    linear(`h.${i}.attn.c_proj`, C, C);
    norm(`h.${i}.ln_2`);
    linear(`h.${i}.mlp.c_fc`, C, 4 * C);
    linear(`h.${i}.mlp.c_proj`, 4 * C, C);
  }
  norm('ln_f');
  return weights;
}

/** Text that can be learnt: each token is followed by its one successor four times in five. */
export function batches() {
  const { vocabulary, batch, seq } = SHAPE;
  const uniform = uniformFrom(2);
  const any = () => Math.floor(uniform() * vocabulary);
  return Array.from({ length: BATCHES }, () => {
    const ids = new Int32Array(batch * seq);
    const targets = new Int32Array(batch * seq);
    for (let row = 0; row < batch; row++) {
      let token = any();
      for (let t = 0; t < seq; t++) {
        ids[row * seq + t] = token;
        token = uniform() < 0.8 ? (token * 7 + 3) % vocabulary : any();
        targets[row * seq + t] = token;
      }
    }
    return { ids, targets };
  });
}

/**
 * WebGPU as every library finds it: its globals, and the adapter by Holdfast's own rules as navigator.gpu, with indices clamped as they are
 * by default: without that TensorFlow.js's losses are no numbers on SwiftShader. Returns its name.
 */
export async function provideNavigator(host, adapter) {
  Object.assign(globalThis, (await import('webgpu')).globals);
  const sources = await host.gpuSources();
  const wanted = adapter.toLowerCase();
  const source =
    wanted === 'auto'
      ? sources[0]
      : sources.find((s) => (wanted === 'software' ? s.embedded : s.name.toLowerCase().includes(wanted)));
  if (!source) throw new Error(`no adapter matches "${adapter}"; there are: ${sources.map((s) => s.name).join(', ')}`);
  const gpu = await source.open({ foreign: true });
  const value = { gpu, userAgent: 'Node', hardwareConcurrency: 2 };
  Object.defineProperty(globalThis, 'navigator', { value, configurable: true });
  return (await gpu.requestAdapter()).info.description;
}

/** Opens a library, trains for `seconds`, and prints one JSON object, processor time by step in it. `open` returns the adapter's name and `step`. */
export async function report(seconds, open) {
  const list = batches();
  let next = 0;
  const opened = performance.now();
  const { adapter, step } = await open();
  const start = () => {
    const { ids, targets } = list[next++ % BATCHES];
    return step(ids, targets);
  };
  const losses = [await start()];
  const firstStepMilliseconds = performance.now() - opened;
  while (losses.length < WARM_UP_STEPS) losses.push(await start());

  const underWay = [];
  const begin = performance.now();
  const before = process.cpuUsage();
  let steps = 0;
  do {
    underWay.push(start());
    if (underWay.length === IN_FLIGHT) losses.push(await underWay.shift());
    steps++;
  } while (performance.now() - begin < seconds * 1000 || steps + WARM_UP_STEPS < COMPARED_LOSSES);
  losses.push(...(await Promise.all(underWay)));
  const elapsed = performance.now() - begin;
  const { user, system } = process.cpuUsage(before);
  const tokensPerSecond = (steps * SHAPE.batch * SHAPE.seq * 1000) / elapsed;
  const result = {
    adapter,
    firstStepMilliseconds,
    tokensPerSecond,
    processorMilliseconds: (user + system) / 1000 / steps,
    steps,
    losses: losses.slice(0, COMPARED_LOSSES),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
}
