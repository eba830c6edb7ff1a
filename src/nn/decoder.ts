// Llama and its descendants, by Hugging Face's names ("model." in front of all but the head). Weights of projections are
// stored (out, in). Pre-norm blocks of RMSNorm, rotary positions, grouped-query attention and a gated MLP:
// x += attn(norm(x)); x += mlp(norm(x)). What differs between families is in their designs (formats/families).

import type { ModelConfig } from '../formats/config.ts';
import type { DecoderConfig, DecoderDesign, LayerAttention } from '../formats/families/decoder.ts';
import { shapeOf } from '../formats/families/index.ts';
import { gated } from '../graph/operators/activation.ts';
import { add } from '../graph/operators/add.ts';
import { attention, rope } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { linear, packedLinear } from '../graph/operators/linear.ts';
import { headNorm, rmsnorm } from '../graph/operators/norm.ts';
import { makeConstant, type Tensor } from '../graph/program.ts';
import { ropeTable } from '../kernels/rope.ts';
import { at } from '../util/at.ts';
import { packedDocuments, tokenIds } from './inputs.ts';
import type { Initial, Model, Parameter } from './model.ts';
import { languageModel } from './objective.ts';

export function decoder(config: Extract<ModelConfig, DecoderConfig>, design: DecoderDesign): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S, heads, kvHeads, headSize } = shape;
  const { intermediate_size: inner, rms_norm_eps: eps } = config;
  const { qkvBiases = false, headNorms = false, outputNorms = false, activation = 'silu', softcap } = design;
  const stored = 'out,in';
  const norms = { eps, gainOffset: design.gainsFromOne ? 1 : 0 };
  // With a norm behind attention too, this one has the name that is another's in Llama.
  const mlpNorm = outputNorms ? 'pre_feedforward_layernorm' : 'post_attention_layernorm';

  const normal: Initial = { normal: config.initializer_range };
  const residual: Initial = { normal: config.initializer_range / Math.sqrt(2 * layers) };
  const zeros: Initial = { constant: 0 };
  const gains: Initial = { constant: 1 - norms.gainOffset };

  const parameters: Parameter[] = [{ name: 'model.embed_tokens.weight', shape: [V, C], initial: normal }];
  for (let i = 0; i < layers; i++) {
    const l = `model.layers.${i}`;
    const norm = (name: string, width = C) =>
      parameters.push({ name: `${l}.${name}.weight`, shape: [width], initial: gains });
    norm('input_layernorm');
    for (const [name, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
      const width = count * headSize;
      parameters.push({ name: `${l}.self_attn.${name}_proj.weight`, shape: [width, C], initial: normal });
      if (qkvBiases) parameters.push({ name: `${l}.self_attn.${name}_proj.bias`, shape: [width], initial: zeros });
    }
    if (headNorms) for (const name of ['q_norm', 'k_norm']) norm(`self_attn.${name}`, headSize);
    parameters.push({ name: `${l}.self_attn.o_proj.weight`, shape: [C, heads * headSize], initial: residual });
    if (outputNorms) norm('post_attention_layernorm');
    norm(mlpNorm);
    parameters.push(
      { name: `${l}.mlp.gate_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.up_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.down_proj.weight`, shape: [C, inner], initial: residual },
    );
    if (outputNorms) norm('post_feedforward_layernorm');
  }
  parameters.push({ name: 'model.norm.weight', shape: [C], initial: gains });
  if (!config.tie_word_embeddings) parameters.push({ name: 'lm_head.weight', shape: [V, C], initial: normal });

  const tables = new RopeTables(headSize);

  return {
    config,
    parameters,
    shape,
    objective: languageModel,
    // Of positions, rope sees only differences: those of a row serve each document in it.
    inputs: (seq, packed = false) => [...tokenIds(V, seq), ...(packed ? packedDocuments(seq) : [])],
    forward(g, inputs, w, { caches, observe } = {}) {
      const tokens = inputs.tokens('ids');
      // Without caches, rows begin at position 0.
      const longest = caches ? Math.max(...caches.flat().map(({ capacity }) => capacity)) : tokens.seq;
      const positions = Math.min(S, longest);
      const norm = (x: Tensor, name: string) => rmsnorm(g, x, w(`${name}.weight`), norms);
      let x = embedding(g, tokens, w('model.embed_tokens.weight'), { scale: design.embeddingScale }); // (B, T, C)
      /** x + y W, or x + norm(y W). */
      const toStream = (y: Tensor, weight: string, outputNorm: string): Tensor => {
        if (!outputNorms) return linear(g, y, w(`${weight}.weight`), { stored, residual: x });
        return add(g, x, norm(linear(g, y, w(`${weight}.weight`), { stored }), outputNorm), weight);
      };
      observe?.('embed', x);
      for (let i = 0; i < layers; i++) {
        const l = `model.layers.${i}`;
        const { window, rope: rotation } = design.attention(i);
        const table = tables.of(rotation, positions);
        g.block(l, () => {
          const attended = norm(x, `${l}.input_layernorm`);
          const projections = ['q', 'k', 'v'].map((name) => ({
            weight: w(`${l}.self_attn.${name}_proj.weight`),
            bias: qkvBiases ? w(`${l}.self_attn.${name}_proj.bias`) : undefined,
          }));
          const qkv = packedLinear(g, attended, projections, stored, `${l}.self_attn.qkv`); // (B, T, (NH + 2 NKV) HS)
          const [heads = 0, kvHeads = 0] = projections.map(({ weight }) => at(weight.shape, 0) / headSize);
          const here = { heads, kvHeads, headSize };
          if (headNorms) {
            headNorm(g, qkv, w(`${l}.self_attn.q_norm.weight`), { heads, offset: 0 }, norms);
            headNorm(g, qkv, w(`${l}.self_attn.k_norm.weight`), { heads: kvHeads, offset: heads * headSize }, norms);
          }
          rope(g, qkv, tokens, table, here);
          // One as long as the context hides nothing.
          const mask = inputs.seen(window !== undefined && window < S ? window : undefined);
          const options = { caches: caches?.[i], mask, scale: design.attentionScale } as const;
          const y = attention(g, qkv, tokens, here, `${l}.self_attn`, options); // (B, T, NH HS)
          x = toStream(y, `${l}.self_attn.o_proj`, `${l}.post_attention_layernorm`);

          const normed = norm(x, `${l}.${mlpNorm}`);
          const gate = linear(g, normed, w(`${l}.mlp.gate_proj.weight`), { stored }); // (B, T, inner)
          const up = linear(g, normed, w(`${l}.mlp.up_proj.weight`), { stored });
          x = toStream(
            gated(g, activation, gate, up, `${l}.mlp`),
            `${l}.mlp.down_proj`,
            `${l}.post_feedforward_layernorm`,
          );
        });
        observe?.(`layers.${i}`, x);
      }
      const hidden = norm(x, 'model.norm'); // (B, T, C)
      observe?.('norm', hidden);
      const head = w(config.tie_word_embeddings ? 'model.embed_tokens.weight' : 'lm_head.weight');
      return { hidden, head: { weight: head, softcap } };
    },
  };
}

/** The tables of a model's rotations: one for all layers that turn alike, in all programs of as many positions. */
class RopeTables {
  readonly #headSize: number;
  /** By rotation, then by positions. */
  readonly #known = new Map<string, Map<number, Tensor>>();

  constructor(headSize: number) {
    this.#headSize = headSize;
  }

  /** (positions, HS). */
  of({ theta, scaling }: LayerAttention['rope'], positions: number): Tensor {
    const key = JSON.stringify({ theta, scaling });
    const ofRotation = this.#known.get(key) ?? new Map<number, Tensor>();
    this.#known.set(key, ofRotation);
    const known = ofRotation.get(positions);
    if (known) return known;
    const number = [...this.#known.keys()].indexOf(key) + 1;
    const name = `rope table${number === 1 ? '' : ` ${number}`} of ${positions} positions`;
    const made = makeConstant(name, [positions, this.#headSize], 'f32', () =>
      ropeTable(positions, this.#headSize, theta, scaling),
    );
    ofRotation.set(positions, made);
    return made;
  }
}
