// Mutants of what people bring: adapters, tokenizers and the files beside them, preparations of images, records, PNG images.
// Each is read and means something whole, or is refused in one line; no other error, no endless work, no memory to speak of.

import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { tokenizerFrom } from '../../src/data/open-tokenizer.ts';
import { decodePng, pngHeader } from '../../src/data/png.ts';
import { ChatRenderer } from '../../src/data/records/chat-template.ts';
import { findChatTemplate } from '../../src/data/records/find-template.ts';
import { readDocuments } from '../../src/data/records/read-records.ts';
import { ByteTokenizer, promptIds } from '../../src/data/tokenizer.ts';
import { loadAdapter } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { preparationIn } from '../../src/formats/preprocessor.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withAdapter } from '../../src/train/run/open-model.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { TEMPLATES } from '../data/chat-templates.ts';
import { type PngOptions, png } from '../data/png-writer.ts';
import { bert, filesOf, type Json, llama2, SMALL } from '../data/tokenizers.ts';
import { fileOf, floats, type Stored } from '../formats/raw-tensors.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { mutant, placesOf } from './bytes.ts';
import { mutate } from './json.ts';
import { tryAll } from './try-all.ts';

/** Of each format. */
const COUNT = EVERY_CASE ? 10_000 : 150;

type Bytes = Uint8Array<ArrayBuffer>;

/** Both are there: what is accepted, and what is refused. */
const expectBoth = (accepted: number) => {
  expect(accepted).toBeGreaterThan(COUNT / 50);
  expect(accepted).toBeLessThan(COUNT);
};

const inJSON = (value: unknown) => (seed: number) => mutate(value, seed);
const inBytes =
  (bytes: Bytes, near: readonly number[] = []) =>
  (seed: number) =>
    mutant(new Random(seed, 'bytes'), bytes, near);

describe('an adapter', () => {
  const config = parseConfig(
    {
      ...{ model_type: 'llama', vocab_size: 5, hidden_size: 32, intermediate_size: 6, num_hidden_layers: 1 },
      ...{ num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 4 },
    },
    'test',
  );
  const says = {
    ...{ peft_type: 'LORA', r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: ['q_proj', 'v_proj'] },
    ...{ bias: 'none', task_type: 'CAUSAL_LM', use_rslora: false, use_dora: false, modules_to_save: null },
    ...{ init_lora_weights: true, rank_pattern: {}, base_model_name_or_path: 'base', layers_to_transform: null },
  };
  const sides: [string, number[]][] = [
    ['q_proj.lora_A', [2, 32]],
    ['q_proj.lora_B', [32, 2]],
    ['v_proj.lora_A', [2, 32]],
    ['v_proj.lora_B', [16, 2]],
  ];
  const tensors = sides.map(([name, shape]): [string, Stored] => [
    `base_model.model.model.layers.0.self_attn.${name}.weight`,
    floats(shape, new Float32Array((shape[0] ?? 0) * (shape[1] ?? 0)).fill(0.5)),
  ]);
  const whole = { 'adapter_config.json': JSON.stringify(says), 'adapter_model.safetensors': fileOf(new Map(tensors)) };
  const reads = async (changed: Record<string, Bytes>) => {
    const contents = Object.entries({ ...whole, ...changed }).map(([name, bytes]) => [`a/${name}`, bytes]);
    const adapter = await loadAdapter(new MemoryFiles(Object.fromEntries(contents)), 'a', config);
    const { weights, shapes } = adapter;
    const { parameters } = withAdapter(makeModel(config), adapter);
    const own = parameters.filter(({ name }) => name.includes('lora_'));
    expect([...shapes.keys()].sort()).toEqual(own.map(({ name }) => name).sort());
    const values = await collect(weights);
    for (const { name, shape } of own) {
      expect(shapes.get(name)).toEqual(shape);
      expect(values.get(name)?.length).toBe(shape.reduce((a, b) => a * b, 1));
    }
  };

  test('adapter_config.json', async () => {
    const use = (bytes: Bytes) => reads({ 'adapter_config.json': bytes });
    expectBoth(await tryAll('adapter_config', COUNT, inJSON(says), use));
  });

  test('adapter_model.safetensors', async () => {
    const use = (bytes: Bytes) => reads({ 'adapter_model.safetensors': bytes });
    expectBoth(await tryAll('adapter_model', COUNT, inBytes(whole['adapter_model.safetensors'], [0]), use));
  });
});

describe('a tokenizer', () => {
  const use = async (json: unknown, companions: Record<string, Bytes> = {}) => {
    const files = filesOf(json, companions);
    const tokenizer = await tokenizerFrom(files);
    const { bos, eos, pad } = tokenizer.specials;
    for (const id of [bos, pad, ...eos]) if (id !== undefined) expect(tokenizer.show(id)).toBeTypeOf('string');
    for (const id of promptIds(tokenizer, 'the thing 日本 😀')) expect(id).toBeLessThan(tokenizer.vocabulary);
    expect(tokenizer.decode(tokenizer.encode('the cats'))).toBeTypeOf('string');
    const template = await findChatTemplate(new MemoryFiles(), { tokenizer: files, date: '2026-01-02' });
    if (template) new ChatRenderer(template).render([{ role: 'user', content: 'Hi' }]);
  };

  test.each<[string, Json]>([
    ['Llama 2', llama2()],
    ['a BPE of bytes', SMALL],
    ['BERT', bert()],
  ])('tokenizer.json, as of %s', async (name, json) => {
    expectBoth(await tryAll(`tokenizer.json ${name}`, Math.ceil(COUNT / 3), inJSON(json), (bytes) => use(bytes)));
  });

  test('tokenizer_config.json', async () => {
    const config = {
      ...{ tokenizer_class: 'LlamaTokenizer', add_bos_token: true, add_eos_token: false, model_max_length: 1e30 },
      ...{ bos_token: { content: '<s>', special: true }, eos_token: '</s>', pad_token: null, unk_token: '<unk>' },
      ...{ clean_up_tokenization_spaces: false, chat_template: TEMPLATES.mistral.text },
      added_tokens_decoder: { 0: { content: '<unk>', special: true }, 1: { content: '<s>', special: true } },
    };
    const one = (bytes: Bytes) => use(llama2(), { 'tokenizer_config.json': bytes });
    expectBoth(await tryAll('tokenizer_config', COUNT, inJSON(config), one));
  });

  test('generation_config.json', async () => {
    const config = { bos_token_id: 1, eos_token_id: [2, 5], pad_token_id: 0, temperature: 0.6, do_sample: true };
    const one = (bytes: Bytes) => use(llama2(), { 'generation_config.json': bytes });
    expectBoth(await tryAll('generation_config', COUNT, inJSON(config), one));
  });
});

test('preprocessor_config.json', async () => {
  const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
  const labels = { id2label: { 0: 'a', 1: 'b' }, label2id: { a: 0, b: 1 } };
  const config = parseConfig({ model_type: 'vit', image_size: 6, patch_size: 3, ...sizes, ...labels }, 'test');
  const says = {
    ...{ do_resize: true, do_center_crop: true, do_rescale: true, do_normalize: true, do_convert_rgb: null },
    ...{ size: { height: 8, width: 8 }, crop_size: 6, resample: 3, rescale_factor: 1 / 255 },
    ...{ image_mean: [0.485, 0.456, 0.406], image_std: [0.229, 0.224, 0.225] },
  };
  const use = async (bytes: Bytes) => {
    const files = new MemoryFiles({ 'm/preprocessor_config.json': bytes });
    const found = await preparationIn(files, 'm', config);
    const { height, width } = found?.crop ?? found?.resize ?? { height: 6, width: 6 };
    expect([height, width]).toEqual([6, 6]);
    const { factor = 1, mean = [0], std = [1] } = found?.pixels ?? {};
    expect([factor, ...mean, ...std].every(Number.isFinite)).toBe(true);
  };
  expectBoth(await tryAll('preprocessor_config', COUNT, inJSON(says), use));
});

/** Writes calls. */
const CALLS = {
  ...TEMPLATES.chatml,
  text: TEMPLATES.chatml.text.replace(
    'message.content +',
    `message.content + (message.tool_calls | tojson if message.tool_calls else '') +`,
  ),
};

test('records, a line each', async () => {
  const talk = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello é' },
  ];
  const rain = { name: 'rain', parameters: { type: 'object' } };
  const files: unknown[][] = [
    [{ text: 'abc' }, { text: 'de', id: 1 }],
    [
      { prompt: 'a', completion: 'b', label: true },
      { prompt: 'c', completion: 'd', system: null, chosen: null },
    ],
    [
      { messages: talk, system: 'Be brief. It may rain.', tools: [rain], chat_template_kwargs: { a: { b: [1] } } },
      { messages: [...talk, ...talk], images: [] },
    ],
    [{ instruction: 'do', input: 'it', output: 'done', history: [['a', 'b']], system: 'Be brief.' }],
    [
      {
        conversations: [
          { from: 'human', value: 'Hi' },
          { from: 'gpt', value: 'Ho', weight: 1, train: true },
        ],
        system: 'It may rain.',
        tools: JSON.stringify([rain]),
      },
    ],
    [
      {
        conversations: [
          { from: 'human', value: 'Hi' },
          { from: 'function_call', value: JSON.stringify({ name: 'rain', arguments: { a: 1 } }) },
          { from: 'observation', value: 'yes' },
          { from: 'gpt', value: 'Ho' },
        ],
      },
    ],
  ];
  const mutantOf = (seed: number): Bytes => {
    const records = files[seed % files.length] ?? [];
    const random = new Random(seed, 'records');
    const lines = records.map((record) => new TextEncoder().encode(`${JSON.stringify(record)}\n`));
    // Half of them a record of another meaning, half other bytes anywhere.
    if (random.below(2) === 0) {
      const at = random.below(lines.length);
      lines[at] = Uint8Array.from([...mutate(records[at], seed), 0x0a]);
      return Uint8Array.from(lines.flatMap((line) => [...line]));
    }
    const bytes = Uint8Array.from(lines.flatMap((line) => [...line]));
    return mutant(random, bytes, placesOf(bytes, [0x0a]));
  };
  const tokenizer = new ByteTokenizer();
  const use = async (bytes: Bytes) => {
    const host = memoryHost(new MemoryFiles({ 'd.jsonl': bytes }));
    const how = { trainOn: 'answers', template: CALLS } as const;
    const { documents, identity } = await readDocuments(host, ['d.jsonl'], tokenizer, how);
    expect(documents.count).toBeGreaterThan(0);
    expect(identity.bytes).toBe(bytes.length);
  };
  expectBoth(await tryAll('records', COUNT, mutantOf, use));
});

/** The sums of a PNG's parts made right again, as far as there are parts: what lies behind the check is tried, too. */
function withSums(bytes: Bytes): Bytes {
  const view = new DataView(bytes.buffer);
  for (let at = 8; at + 12 <= bytes.length; ) {
    const end = at + 12 + view.getUint32(at);
    if (end > bytes.length) break;
    view.setUint32(end - 4, crc32(bytes.subarray(at + 4, end - 4)));
    at = end;
  }
  return bytes;
}

test('PNG images', async () => {
  const of = (options: Omit<PngOptions, 'width' | 'height'>, channels: number) =>
    png(
      Array.from({ length: 7 * 5 * channels }, (_, i) => (i * 37) % (options.palette ? 4 : 256)),
      { width: 7, height: 5, ...options },
    );
  const filter = (row: number) => row % 5;
  const palette = [0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255];
  const images = [
    of({ kind: 0, filter }, 1),
    of({ kind: 2, filter }, 3),
    of({ kind: 2, filter, interlaced: true }, 3),
    of({ kind: 3, palette, depth: 2 }, 1),
    of({ kind: 3, palette }, 1),
    of({ kind: 4 }, 2),
    of({ kind: 6, filter, interlaced: true }, 4),
  ];
  const mutantOf = (seed: number): Bytes => {
    const made = inBytes(images[seed % images.length] ?? new Uint8Array(), [8, 33])(seed);
    return seed % 4 === 0 ? made : withSums(made);
  };
  const use = async (bytes: Bytes) => {
    const header = pngHeader(bytes, 'i.png');
    const pixels = await decodePng(bytes, header, 'i.png');
    expect(pixels.length).toBe(header.channels * header.width * header.height);
  };
  expectBoth(await tryAll('png', COUNT, mutantOf, use));
});
