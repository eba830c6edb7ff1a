// Every field of a config.json is used, or known to change nothing, or refused by name: the files as they are published
// load, and what is in none of them does not.

import { describe, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { dropoutIn, parseConfig } from '../../src/formats/config.ts';
import { FAMILIES, FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { published, QUICK, REVIEWS } from '../cli/published-bert.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

/** As they are published. */
const PUBLISHED = {
  gpt2: {
    activation_function: 'gelu_new',
    architectures: ['GPT2LMHeadModel'],
    attn_pdrop: 0.1,
    bos_token_id: 50256,
    embd_pdrop: 0.1,
    eos_token_id: 50256,
    initializer_range: 0.02,
    layer_norm_epsilon: 1e-5,
    model_type: 'gpt2',
    n_ctx: 1024,
    n_embd: 768,
    n_head: 12,
    n_layer: 12,
    n_positions: 1024,
    resid_pdrop: 0.1,
    summary_activation: null,
    summary_first_dropout: 0.1,
    summary_proj_to_labels: true,
    summary_type: 'cls_index',
    summary_use_proj: true,
    task_specific_params: { 'text-generation': { do_sample: true, max_length: 50 } },
    vocab_size: 50257,
  },
  'SmolLM2-135M': {
    architectures: ['LlamaForCausalLM'],
    attention_bias: false,
    attention_dropout: 0.0,
    bos_token_id: 0,
    eos_token_id: 0,
    hidden_act: 'silu',
    hidden_size: 576,
    initializer_range: 0.041666666666666664,
    intermediate_size: 1536,
    is_llama_config: true,
    max_position_embeddings: 8192,
    model_type: 'llama',
    num_attention_heads: 9,
    num_hidden_layers: 30,
    num_key_value_heads: 3,
    pretraining_tp: 1,
    rms_norm_eps: 1e-5,
    rope_interleaved: false,
    rope_scaling: null,
    rope_theta: 100000,
    tie_word_embeddings: true,
    torch_dtype: 'bfloat16',
    transformers_version: '4.40.1',
    use_cache: true,
    vocab_size: 49152,
  },
};

const tiny = { gpt2: { n_embd: 4, n_head: 2 }, llama: { hidden_size: 8, num_attention_heads: 2 } };

test.each(Object.entries(PUBLISHED))('%s as it is published', (_, fields) => {
  expect(parseConfig(fields, 'config.json')).toMatchObject({ model_type: fields.model_type });
});

describe.each(FAMILY_NAMES)('%s', (family) => {
  const sizes: object = Object.entries(tiny).find(([name]) => name === family)?.[1] ?? {};
  const parse = (more: object) => parseConfig({ model_type: family, ...sizes, ...more }, 'config.json');

  test('each field of its list changes nothing, whatever its value', () => {
    const plain = parse({});
    for (const field of FAMILIES[family].harmless.filter((name) => !name.includes('.'))) {
      for (const value of [7, 'a', true, { a: 1 }]) expect(parse({ [field]: value }), field).toEqual(plain);
    }
  });

  test.each([
    ['residual_scale', 0.5, 'residual_scale is 0.5; this field is not known here'],
    ['new_attention', false, 'new_attention is false; this field is not known here'],
    ['auto_map', { AutoModel: 'model.Own' }, 'auto_map is an object; this field is not known here'],
    ['two\nlines', 1, 'two lines is 1; this field is not known here'],
    ['constructor', 1, 'constructor is 1; this field is not known here'],
    ['x'.repeat(5000), 1, `${'x'.repeat(200)}... is 1; this field is not known here`],
    ['pruned_heads', { 0: [1] }, 'pruned_heads.0 is a list of 1; this field is not known here'],
    ['is_encoder_decoder', true, 'is_encoder_decoder is true; supported: false, null'],
  ])('refuses %.30s', (field, value, message) => {
    expect(() => parse({ [field]: value })).toThrow(HoldfastError);
    expect(() => parse({ [field]: value })).toThrow(`config.json: ${message}`);
  });

  test('takes a field that is null: it has no value', () => {
    expect(parse({ residual_scale: null, pruned_heads: {} })).toEqual(parse({}));
  });
});

test('fields inside an object are fields too', () => {
  const parse = (rope: object) => parseConfig({ model_type: 'llama', rope_parameters: rope }, 'config.json');
  expect(parse({ rope_type: 'default', beta_fast: null })).toEqual(parse({}));
  expect(() => parse({ rope_type: 'default', beta_fast: 32 })).toThrow(
    'config.json: rope_parameters.beta_fast is 32; this field is not known here',
  );
});

describe('rates of dropout, which training here does not have', () => {
  test('are told of where they are above 0', () => {
    expect(dropoutIn(PUBLISHED.gpt2)).toEqual(['attn_pdrop 0.1', 'embd_pdrop 0.1', 'resid_pdrop 0.1']);
    expect(dropoutIn(PUBLISHED['SmolLM2-135M'])).toEqual([]);
    expect(dropoutIn({ attention_dropout: 0.25, hidden_dropout: 0, classifier_dropout: null })).toEqual([
      'attention_dropout 0.25',
    ]);
  });

  const files = new MemoryFiles({
    ...published('BertForSequenceClassification').files,
    'r.jsonl': REVIEWS,
    'published/config.json': JSON.stringify(PUBLISHED.gpt2),
    'smol/config.json': JSON.stringify(PUBLISHED['SmolLM2-135M']),
  });
  /** What is said before a device is asked for. */
  async function begun(...args: string[]): Promise<string> {
    let out = '';
    const write = (text: string) => {
      out += text;
    };
    const terminal = { interactive: false, columns: 80, write, warn: write };
    const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
    await expect(run(memoryHost(files, { args, terminal, gpuSources }))).rejects.toThrow('a GPU was asked for');
    return out;
  }

  test('by train and by finetune, in a line, before they begin', async () => {
    expect(await begun('train', '--model', 'published', '--data', 'synthetic', '--out', 'a')).toBe(
      'dropout: none; the model’s config.json has attn_pdrop 0.1, embd_pdrop 0.1, resid_pdrop 0.1\n',
    );
    expect(await begun('finetune', 'm', '--data', 'r.jsonl', '--out', 'b', ...QUICK)).toContain(
      'dropout: none; the model’s config.json has hidden_dropout_prob 0.1, attention_probs_dropout_prob 0.1\n',
    );
    expect(await begun('train', '--model', 'smol', '--data', 'synthetic', '--out', 'c')).toBe('');
  });
});
