// What llama.cpp computes from a GGUF file: its graphs of the architectures that are written here, in float64, plainly. It knows
// the file alone: names, metadata and the order of rows are what it goes by. After llama.cpp's src/models and ggml's operators.

import type { ReadGGUF } from './reader.ts';

type Row = number[];

/** Logits of each position. */
export function logitsOf(file: ReadGGUF, ids: readonly number[]): Row[] {
  const architecture = file.metadata['general.architecture'] as string;
  return architecture === 'gpt2' ? gpt2(file, ids) : decoder(file, architecture, ids);
}

class Reader {
  readonly #file: ReadGGUF;
  readonly #prefix: string;
  constructor(file: ReadGGUF, prefix: string) {
    this.#file = file;
    this.#prefix = prefix;
  }
  key(name: string): number | undefined {
    return this.#file.metadata[`${this.#prefix}.${name}`] as number | undefined;
  }
  size(name: string): number {
    const value = this.key(name);
    if (value === undefined) throw new Error(`key not found: ${this.#prefix}.${name}`);
    return value;
  }
  has(name: string): boolean {
    return this.#file.tensors.has(name);
  }
  vector(name: string): Row {
    const tensor = this.#file.tensors.get(name);
    if (!tensor) throw new Error(`missing tensor ${name}`);
    return [...tensor.values];
  }
  row(name: string, i: number): Row {
    const { dims, values } = this.#matrix(name);
    return [...values.subarray(i * dims[0], (i + 1) * dims[0])];
  }
  /** ggml_mul_mat, and a bias if there is one. */
  linear(name: string, x: Row): Row {
    const { dims, values } = this.#matrix(`${name}.weight`);
    if (dims[0] !== x.length) throw new Error(`${name} has rows of ${dims[0]}, not ${x.length}`);
    const bias = this.has(`${name}.bias`) ? this.vector(`${name}.bias`) : [];
    return Array.from({ length: dims[1] }, (_, i) =>
      x.reduce((sum, value, j) => sum + value * (values[i * dims[0] + j] ?? 0), bias[i] ?? 0),
    );
  }
  #matrix(name: string): { dims: [number, number]; values: Float64Array } {
    const tensor = this.#file.tensors.get(name);
    if (tensor?.dims.length !== 2) throw new Error(`missing matrix ${name}`);
    return { dims: tensor.dims as [number, number], values: tensor.values };
  }
}

const add = (a: Row, b: Row): Row => a.map((value, i) => value + (b[i] ?? 0));
const gelu = (x: number): number => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const silu = (x: number): number => x / (1 + Math.exp(-x));
const mean = (x: Row): number => x.reduce((a, b) => a + b, 0) / x.length;

function rms(x: Row, gains: Row, eps: number): Row {
  const scale = 1 / Math.sqrt(mean(x.map((value) => value * value)) + eps);
  return x.map((value, i) => value * scale * (gains[i] ?? 0));
}

const headsOf = (x: Row, size: number): Row[] =>
  Array.from({ length: x.length / size }, (_, h) => x.slice(h * size, (h + 1) * size));

/** One query's heads over the keys and values that it sees. */
function attend(q: Row[], keys: Row[][], values: Row[][], scale: number, sees: (at: number) => boolean): Row {
  return q.flatMap((head, h) => {
    const group = Math.floor(h / (q.length / (keys[0]?.length ?? 1)));
    const scores = keys.map((heads, at) =>
      sees(at)
        ? scale * head.reduce((sum, value, i) => sum + value * (heads[group]?.[i] ?? 0), 0)
        : Number.NEGATIVE_INFINITY,
    );
    const most = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - most));
    const total = weights.reduce((a, b) => a + b, 0);
    return head.map((_, i) =>
      values.reduce((sum, v, at) => sum + ((weights[at] ?? 0) / total) * (v[group]?.[i] ?? 0), 0),
    );
  });
}

function gpt2(file: ReadGGUF, ids: readonly number[]): Row[] {
  const read = new Reader(file, 'gpt2');
  const eps = read.size('attention.layer_norm_epsilon');
  const size = read.size('embedding_length') / read.size('attention.head_count');
  const norm = (name: string, x: Row): Row => {
    const middle = mean(x);
    const variance = mean(x.map((value) => (value - middle) ** 2));
    const [gains, bias] = [read.vector(`${name}.weight`), read.vector(`${name}.bias`)];
    return x.map((value, i) => ((value - middle) / Math.sqrt(variance + eps)) * (gains[i] ?? 0) + (bias[i] ?? 0));
  };
  let xs = ids.map((id, t) => add(read.row('token_embd.weight', id), read.row('position_embd.weight', t)));
  for (let block = 0; block < read.size('block_count'); block++) {
    const at = `blk.${block}`;
    const qkv = xs.map((x) => read.linear(`${at}.attn_qkv`, norm(`${at}.attn_norm`, x)));
    const third = (i: number) =>
      qkv.map((row) => headsOf(row.slice((i * row.length) / 3, ((i + 1) * row.length) / 3), size));
    const [q, k, v] = [third(0), third(1), third(2)];
    xs = xs.map((x, t) => {
      const seen = attend(q[t] ?? [], k, v, 1 / Math.sqrt(size), (other) => other <= t);
      const y = add(x, read.linear(`${at}.attn_output`, seen));
      const inner = read.linear(`${at}.ffn_up`, norm(`${at}.ffn_norm`, y)).map(gelu);
      return add(y, read.linear(`${at}.ffn_down`, inner));
    });
  }
  const head = read.has('output.weight') ? 'output' : 'token_embd';
  return xs.map((x) => read.linear(head, norm('output_norm', x)));
}

function decoder(file: ReadGGUF, architecture: string, ids: readonly number[]): Row[] {
  const read = new Reader(file, architecture);
  const isGemma = architecture === 'gemma3';
  const eps = read.size('attention.layer_norm_rms_epsilon');
  const size = read.size('attention.key_length');
  const norm = (name: string, x: Row): Row => rms(x, read.vector(`${name}.weight`), eps);
  const period = read.key('attention.sliding_window_pattern') ?? 0;
  const window = read.key('attention.sliding_window') ?? Number.POSITIVE_INFINITY;
  const factors = read.has('rope_freqs.weight') ? read.vector('rope_freqs.weight') : [];
  const scaling =
    file.metadata[`${architecture}.rope.scaling.type`] === 'linear' ? read.size('rope.scaling.factor') : 1;
  const scale = 1 / Math.sqrt(size);
  let xs = ids.map((id) =>
    read.row('token_embd.weight', id).map((x) => x * (isGemma ? Math.sqrt(read.size('embedding_length')) : 1)),
  );
  for (let block = 0; block < read.size('block_count'); block++) {
    const at = `blk.${block}`;
    const isWindowed = isGemma && block % period < period - 1;
    const base = isWindowed ? (read.key('rope.freq_base_swa') ?? 10000) : read.size('rope.freq_base');
    // Llama's pairs are neighbours (GGML_ROPE_TYPE_NORM), those of the others lie half a head apart (GGML_ROPE_TYPE_NEOX).
    const rotated = (head: Row, t: number): Row => {
      const made = [...head];
      for (let i = 0; i < size / 2; i++) {
        const [a, b] = architecture === 'llama' ? [2 * i, 2 * i + 1] : [i, i + size / 2];
        const angle = (t * base ** ((-2 * i) / size)) / (factors[i] ?? 1) / (isWindowed ? 1 : scaling);
        const [x, y] = [head[a] ?? 0, head[b] ?? 0];
        made[a] = x * Math.cos(angle) - y * Math.sin(angle);
        made[b] = x * Math.sin(angle) + y * Math.cos(angle);
      }
      return made;
    };
    const normed = xs.map((x) => norm(`${at}.attn_norm`, x));
    const heads = (name: string): Row[][] => normed.map((x) => headsOf(read.linear(`${at}.${name}`, x), size));
    const positioned = (name: string): Row[][] =>
      heads(name).map((all, t) =>
        all.map((head) => rotated(read.has(`${at}.${name}_norm.weight`) ? norm(`${at}.${name}_norm`, head) : head, t)),
      );
    const [q, k, v] = [positioned('attn_q'), positioned('attn_k'), heads('attn_v')];
    xs = xs.map((x, t) => {
      const seen = attend(q[t] ?? [], k, v, scale, (other) => other <= t && (!isWindowed || t - other < window));
      const attention = read.linear(`${at}.attn_output`, seen);
      const y = add(x, isGemma ? norm(`${at}.post_attention_norm`, attention) : attention);
      const z = norm(`${at}.ffn_norm`, y);
      const [gate, up] = [read.linear(`${at}.ffn_gate`, z), read.linear(`${at}.ffn_up`, z)];
      const inner = gate.map((g, i) => (isGemma ? gelu(g) : silu(g)) * (up[i] ?? 0));
      const mlp = read.linear(`${at}.ffn_down`, inner);
      return add(y, isGemma ? norm(`${at}.post_ffw_norm`, mlp) : mlp);
    });
  }
  const head = read.has('output.weight') ? 'output' : 'token_embd';
  const softcap = read.key('final_logit_softcapping');
  return xs
    .map((x) => read.linear(head, norm('output_norm', x)))
    .map((row) => (softcap === undefined ? row : row.map((z) => softcap * Math.tanh(z / softcap))));
}
