// A small Llama as models are published: config.json, BF16 shards with an index, a byte-level BPE as tokenizer.json, its
// chat template and its generation_config.json; and an adapter for it in PEFT's layout. Written by hand, with random weights.

import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { Random } from '../../src/util/random.ts';
import { trained } from '../data/tokenizers.ts';
import { fileOf, floats, type Stored, shardedFolder } from '../formats/raw-tensors.ts';

/** The files of a folder, by their names. */
export type Folder = Readonly<Record<string, Uint8Array>>;

export const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  ...{ vocab_size: 320, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, max_position_embeddings: 64 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, hidden_act: 'silu', rms_norm_eps: 1e-5, rope_theta: 10000 },
  ...{ tie_word_embeddings: true, attention_bias: false, mlp_bias: false, bos_token_id: 0, eos_token_id: 0 },
  torch_dtype: 'bfloat16',
  use_cache: true,
};

const CHATML =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

export const bytesOf = (value: unknown): Uint8Array =>
  new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value, undefined, 2));

/** Rounded to BF16 by cutting off: any values will do. */
function bf16(shape: readonly number[], values: Float32Array): Stored {
  const words = new Uint16Array(values.buffer);
  return { dtype: 'BF16', shape, bytes: new Uint8Array(words.filter((_, i) => i % 2 === 1).buffer) };
}

const normal = (random: Random, shape: readonly number[], scale: number) =>
  Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => scale * random.normal());

/** The model's folder. `text`: what its tokens are made of. */
export async function publishedModel(text: string, changes: Readonly<Record<string, unknown>> = {}): Promise<Folder> {
  const config = { ...CONFIG, ...changes };
  const random = new Random(7, 'published');
  const tensors = makeModel(parseConfig(config, 'published')).parameters.map(({ name, shape }) => {
    const values = shape.length === 1 ? new Float32Array(shape[0] ?? 0).fill(1) : normal(random, shape, 0.08);
    return [name, bf16(shape, values)] as const;
  });
  const half = tensors.length >> 1;
  const shards = shardedFolder('m', {
    'model-00001-of-00002.safetensors': new Map(tensors.slice(0, half)),
    'model-00002-of-00002.safetensors': new Map(tensors.slice(half)),
  });
  const tokenizer = await trained(text, 300);
  const special = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const marks = ['<|im_start|>', '<|im_end|>'].map((content, i) => ({ id: 310 + i, content, ...special }));
  tokenizer.added_tokens.push(...marks);
  const files = {
    'config.json': config,
    'generation_config.json': { bos_token_id: 0, eos_token_id: [0, 311] },
    'tokenizer.json': tokenizer,
    'tokenizer_config.json': {
      ...{ bos_token: '<|endoftext|>', eos_token: '<|im_end|>', chat_template: CHATML },
      tokenizer_class: 'PreTrainedTokenizerFast',
    },
    'README.md': '# A small Llama',
  };
  const weights = Object.entries(shards).map(([path, content]) => [path.slice('m/'.length), content] as const);
  return Object.fromEntries(
    [...weights, ...Object.entries(files)].map(([name, content]) => [
      name,
      content instanceof Uint8Array ? content : bytesOf(content),
    ]),
  );
}

/** An adapter of its query and value projections, in a folder of its own. */
export function publishedAdapter(rank = 2): Folder {
  const random = new Random(8, 'adapter');
  const tensors = new Map<string, Stored>();
  for (let layer = 0; layer < CONFIG.num_hidden_layers; layer++) {
    for (const [module, outputs] of [['q_proj', 32] as const, ['v_proj', 16] as const]) {
      const name = `base_model.model.model.layers.${layer}.self_attn.${module}`;
      for (const [which, shape] of [['A', [rank, 32]] as const, ['B', [outputs, rank]] as const])
        tensors.set(`${name}.lora_${which}.weight`, floats(shape, normal(random, shape, 0.5)));
    }
  }
  return {
    'adapter_config.json': bytesOf({
      ...{ peft_type: 'LORA', r: rank, lora_alpha: 4, target_modules: ['q_proj', 'v_proj'], lora_dropout: 0 },
      ...{ bias: 'none', base_model_name_or_path: 'someone/tiny-llama', task_type: 'CAUSAL_LM', inference_mode: true },
    }),
    'adapter_model.safetensors': fileOf(tensors),
  };
}

/** Conversations to learn from, one a line. */
export const CHATS = Array.from({ length: 60 }, (_, i) => {
  const animal = ['cat', 'dog', 'owl', 'bee', 'fox', 'cow'][i % 6] ?? '';
  const sound = ['meow', 'woof', 'hoot', 'buzz', 'yip', 'moo'][i % 6] ?? '';
  return JSON.stringify({
    messages: [
      { role: 'user', content: `what says the ${animal}?` },
      { role: 'assistant', content: `the ${animal} says ${sound}.` },
    ],
  });
}).join('\n');
