// BERT's classifier in float64, written from the paper and Hugging Face's names alone, with no code of the library's: what a
// text's class is told with. For sequences without padding, one at a time.

export interface BertSizes {
  readonly hidden_size: number;
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
}

type Rows = number[][];
type Weight = (name: string) => readonly number[];

const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
const softmax = (values: readonly number[]) => {
  const most = Math.max(...values);
  const all = values.map((value) => Math.exp(value - most));
  const sum = all.reduce((a, b) => a + b, 0);
  return all.map((value) => value / sum);
};
const sums = (a: Rows, b: Rows): Rows => a.map((row, r) => row.map((value, i) => value + b[r]![i]!));

/** By the series, which converges everywhere and is exact enough to |x| = 5. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let sum = 0;
  for (let n = 0, term = x; n < 200; n++) {
    sum += term / (2 * n + 1);
    term *= (-x * x) / (n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}
const gelu = (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2));

/** Logits of the classes. */
export function logitsOf(sizes: BertSizes, w: Weight, ids: readonly number[], types: readonly number[]): number[] {
  const { hidden_size: C, num_attention_heads: heads, num_hidden_layers: layers } = sizes;
  const size = C / heads;
  const table = (name: string, row: number) => w(name).slice(row * C, (row + 1) * C);
  const dense = (x: Rows, name: string): Rows => {
    const [weight, bias] = [w(`${name}.weight`), w(`${name}.bias`)];
    return x.map((row) => bias.map((b, o) => b + dot(row, weight.slice(o * row.length, (o + 1) * row.length))));
  };
  const norm = (x: Rows, name: string): Rows => {
    const [gain, bias] = [w(`${name}.weight`), w(`${name}.bias`)];
    return x.map((row) => {
      const mean = row.reduce((a, b) => a + b, 0) / C;
      const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / C;
      return row.map((value, i) => ((value - mean) / Math.sqrt(variance + 1e-12)) * gain[i]! + bias[i]!);
    });
  };
  const at = 'bert.embeddings';
  let x: Rows = ids.map((id, t) => {
    const [word, place, type] = [
      table(`${at}.word_embeddings.weight`, id),
      table(`${at}.position_embeddings.weight`, t),
      table(`${at}.token_type_embeddings.weight`, types[t]!),
    ];
    return word.map((value, i) => value + place[i]! + type[i]!);
  });
  x = norm(x, `${at}.LayerNorm`);
  for (let i = 0; i < layers; i++) {
    const l = `bert.encoder.layer.${i}`;
    const [q, k, v] = (['query', 'key', 'value'] as const).map((name) => dense(x, `${l}.attention.self.${name}`)) as [
      Rows,
      Rows,
      Rows,
    ];
    const attended = x.map((_, t) => {
      const row: number[] = [];
      for (let h = 0; h < heads; h++) {
        const part = (of: readonly number[]) => of.slice(h * size, (h + 1) * size);
        const weights = softmax(k.map((key) => dot(part(q[t]!), part(key)) / Math.sqrt(size)));
        for (let c = 0; c < size; c++) row.push(weights.reduce((sum, weight, s) => sum + weight * part(v[s]!)[c]!, 0));
      }
      return row;
    });
    x = norm(sums(x, dense(attended, `${l}.attention.output.dense`)), `${l}.attention.output.LayerNorm`);
    const wide = dense(x, `${l}.intermediate.dense`).map((row) => row.map(gelu));
    x = norm(sums(x, dense(wide, `${l}.output.dense`)), `${l}.output.LayerNorm`);
  }
  const pooled = dense(x.slice(0, 1), 'bert.pooler.dense').map((row) => row.map(Math.tanh));
  return dense(pooled, 'classifier')[0]!;
}

/** -log of the share that the softmax of logits gives to a class. */
export const crossEntropy = (logits: readonly number[], label: number): number => -Math.log(softmax(logits)[label]!);
