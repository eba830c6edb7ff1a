// Every field of a config.json is used, or known to change nothing, or refused by name: the files as they are published
// load, and what is in none of them does not.

import { describe, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { dropoutIn, parseConfig } from '../../src/formats/config.ts';
import { FAMILIES, FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { published, QUICK, REVIEWS } from '../cli/published-bert.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { PUBLISHED, type PublishedConfig, WHOLE_DUMP } from './published-configs.ts';

const tiny = { gpt2: { n_embd: 4, n_head: 2 }, llama: { hidden_size: 8, num_attention_heads: 2 } };

test.each(Object.entries<PublishedConfig>(PUBLISHED))('%s as it is published', (_, { json, config, parameters }) => {
  const parsed = parseConfig(json, 'config.json');
  expect(parsed).toMatchObject({ model_type: json['model_type'], ...config });
  expect(sizeOf(parsed).parameters).toBe(parameters);
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

  test('takes every field that Transformers writes of a model of any kind, at its default', () => {
    const { tie_word_embeddings: tied, ...dump } = WHOLE_DUMP;
    expect(parse(dump)).toEqual(parse({}));
    // Of some, it is another than the family's own.
    expect(parse(WHOLE_DUMP)).toEqual(parse({ tie_word_embeddings: tied }));
  });

  test.each([
    ['is_encoder_decoder', true],
    ['add_cross_attention', true],
    ['tie_encoder_decoder', true],
    ['cross_attention_hidden_size', 8],
    ['is_causal', !FAMILIES[family].writes],
  ])('refuses %s where it would change what is computed', (field, value) => {
    expect(() => parse({ ...WHOLE_DUMP, [field]: value })).toThrow(`config.json: ${field} is ${value}; supported: `);
  });

  test('takes is_decoder true where that is what it is', () => {
    const decoding = () => parse({ is_decoder: true });
    if (FAMILIES[family].writes) expect(decoding()).toEqual(parse({}));
    else expect(decoding).toThrow('config.json: is_decoder is true; supported: false, null');
  });

  test('takes a field that is null: it has no value', () => {
    expect(parse({ residual_scale: null, pruned_heads: {} })).toEqual(parse({}));
  });
});

test.each([
  [{ model_type: 'gpt2', n_special: 4 }, 'n_special is 4; supported: 0, null'],
  [{ model_type: 'gpt2', hidden_size: 512 }, 'hidden_size is 512; supported: 768, null'],
  [{ model_type: 'gpt2', max_position_embeddings: 512 }, 'max_position_embeddings is 512; supported: 1024, null'],
  [{ model_type: 'vit', _num_labels: 5 }, '_num_labels is 5; supported: 2, null'],
  [{ model_type: 'vit', num_labels: 5, _num_labels: 2 }, '_num_labels is 2; supported: 5, null'],
  [
    { model_type: 'vit', id2label: { 0: 'a', 1: 'b' }, label2id: { a: 1, b: 0 } },
    'label2id does not say what id2label says',
  ],
  [{ model_type: 'vit', id2label: { 0: 'a', 1: 'a' }, label2id: { a: 2 } }, 'label2id does not say what id2label says'],
  [{ model_type: 'bert', tie_word_embeddings: false }, 'tie_word_embeddings is false; supported: true'],
  [{ model_type: 'mistral', max_sequence_length: 8 }, 'max_sequence_length is 8; this field is not known here'],
  [{ model_type: 'gemma2' }, 'model_type is "gemma2"; supported: "gpt2", '],
])('refuses %j', (json, message) => {
  expect(() => parseConfig(json, 'config.json')).toThrow(HoldfastError);
  expect(() => parseConfig(json, 'config.json')).toThrow(`config.json: ${message}`);
});

test('says how a field that changes nothing is left out, also of a model that is not at hand', () => {
  expect(() => parseConfig({ model_type: 'llama', nova: 1 }, 'hf://org/name/config.json')).toThrow(
    'hf://org/name/config.json: nova is 1; this field is not known here and may change what the model computes: remove it ' +
      'if it does not (a model from elsewhere: download its folder, remove it there and give that folder)',
  );
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
    expect(dropoutIn(PUBLISHED.gpt2.json)).toEqual(['attn_pdrop 0.1', 'embd_pdrop 0.1', 'resid_pdrop 0.1']);
    expect(dropoutIn(PUBLISHED['SmolLM2 135M'].json)).toEqual([]);
    expect(dropoutIn({ attention_dropout: 0.25, hidden_dropout: 0, classifier_dropout: null })).toEqual([
      'attention_dropout 0.25',
    ]);
  });

  const files = new MemoryFiles({
    ...published('BertForSequenceClassification').files,
    'r.jsonl': REVIEWS,
    'published/config.json': JSON.stringify(PUBLISHED.gpt2.json),
    'smol/config.json': JSON.stringify(PUBLISHED['SmolLM2 135M'].json),
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
