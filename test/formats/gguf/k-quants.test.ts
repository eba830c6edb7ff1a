// GGUF files as most are published, of several types at once, most of them K-quants: every weight has the values of ggml's own
// decoders, lies in memory in its blocks, and gives the bits of the same file in F32.

import { describe, expect, test } from 'vitest';
import { estimateRun } from '../../../src/browser/estimate.ts';
import { inspectFiles } from '../../../src/browser/models.ts';
import { limitsOf } from '../../../src/engine/run/arrangement.ts';
import { loadCheckpoint, loadWeights } from '../../../src/formats/checkpoint.ts';
import { parseConfig } from '../../../src/formats/config.ts';
import { exportGGUF } from '../../../src/formats/gguf/export.ts';
import type { AnyConfig } from '../../../src/formats/gguf/families/index.ts';
import { openDevice } from '../../../src/gpu/device.ts';
import { makeModel } from '../../../src/nn/index.ts';
import { completeLora } from '../../../src/nn/lora.ts';
import { defaultSettings } from '../../../src/train/run/run-settings.ts';
import { collect } from '../../../src/values/tensor-source.ts';
import { chooseVariants } from '../../choose-variants.ts';
import { done, inProcess } from '../../cli/in-process.ts';
import { entry } from '../../entry.ts';
import { ADAPTER, EVERY_CASE, testHost } from '../../host.ts';
import { MemoryFiles, memoryHost } from '../../memory-files.ts';
import { decoded, GGML_BLOCKS, type GGMLElement, randomBlocks } from '../../values/ggml-decoder.ts';
import { byteLevel, modelOf, randomValues } from './models.ts';

chooseVariants(6);

const CONFIG = {
  ...{ model_type: 'llama', vocab_size: 260, max_position_embeddings: 16, hidden_size: 256, intermediate_size: 512 },
  ...{ num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 64, tie_word_embeddings: true },
};

/** As llama.cpp mixes them in Q4_K_M, with the types of Q5_K_M and of rows that are no multiples of 256 besides. */
const TYPES: Readonly<Record<string, GGMLElement>> = {
  'token_embd.weight': 'q6_k',
  'blk.0.attn_q.weight': 'q4_k',
  'blk.0.attn_k.weight': 'q4_k',
  'blk.0.attn_v.weight': 'q6_k',
  'blk.0.attn_output.weight': 'q5_0',
  'blk.0.ffn_gate.weight': 'q5_k',
  'blk.0.ffn_up.weight': 'q4_k',
  'blk.0.ffn_down.weight': 'q6_k',
};
const IDS: Readonly<Record<GGMLElement, number>> = { q5_0: 6, q4_k: 12, q5_k: 13, q6_k: 14 };

/** The file with blocks of random bits for tensors of these types, and the same with their values in F32. */
function mixed(bytes: Uint8Array<ArrayBuffer>, types: Readonly<Record<string, GGMLElement>>) {
  const view = new DataView(bytes.buffer);
  const text = new TextDecoder('latin1').decode(bytes);
  const names = [...text.matchAll(/(?<=\0{7})(?:token_embd|output_norm|blk\.0\.\w+)\.weight/g)];
  const tensors = names.map(({ 0: name, index }) => {
    const dimensions = index + name.length;
    const count = view.getUint32(dimensions, true);
    const sizes = Array.from({ length: count }, (_, i) => Number(view.getBigUint64(dimensions + 4 + 8 * i, true)));
    const type = dimensions + 4 + 8 * count;
    const offset = Number(view.getBigUint64(type + 4, true));
    return { name, type, offset, elements: sizes.reduce((a, b) => a * b, 1) };
  });
  const last = Math.max(...tensors.map(({ type }) => type + 12));
  const begin = Math.ceil(last / 32) * 32;
  const build = (dataOf: (name: string, elements: number, own: Uint8Array) => readonly [id: number, Uint8Array]) => {
    const header = bytes.slice(0, begin);
    const parts: Uint8Array[] = [header];
    let at = 0;
    for (const { name, type, offset, elements } of tensors) {
      const [id, data] = dataOf(name, elements, bytes.subarray(begin + offset, begin + offset + 4 * elements));
      new DataView(header.buffer).setUint32(type, id, true);
      new DataView(header.buffer).setBigUint64(type + 4, BigInt(at), true);
      const padded = new Uint8Array(Math.ceil(data.length / 32) * 32);
      padded.set(data);
      parts.push(padded);
      at += padded.length;
    }
    const file = new Uint8Array(begin + at);
    let to = 0;
    for (const part of parts) {
      file.set(part, to);
      to += part.length;
    }
    return file;
  };
  const blocksOf = (name: string, elements: number) => {
    const element = types[name];
    return element && { element, bytes: randomBlocks(element, elements / GGML_BLOCKS[element].elements, name.length) };
  };
  const inBlocks = (broken?: string) =>
    build((name, elements, own) => {
      const blocks = blocksOf(name, elements);
      // The scale of the last block of Q6_K is its last two bytes.
      if (name === broken) blocks?.bytes.set([0, 0x7c], blocks.bytes.length - 2);
      return blocks ? [IDS[blocks.element], blocks.bytes] : [0, own];
    });
  return {
    blocks: inBlocks(),
    infinite: inBlocks('blk.0.ffn_down.weight'),
    floats: build((name, elements, own) => {
      const blocks = blocksOf(name, elements);
      return [0, blocks ? new Uint8Array(decoded(blocks.element, blocks.bytes).buffer) : own];
    }),
  };
}

const config = parseConfig(CONFIG, 'test');
const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));

/** A token for each byte, by GPT-2's letters for them, and a few that nothing makes. */
function bytesTokenizer() {
  const isShown = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let hidden = 0;
  const letters = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isShown(byte) ? byte : 256 + hidden++));
  const vocab = Object.fromEntries([...letters, 't0', 't1', 't2', 't3'].map((token, i) => [token, i]));
  return { pre_tokenizer: byteLevel, decoder: byteLevel, model: { type: 'BPE', vocab, merges: [] } };
}

const isSame = (a: Float32Array<ArrayBuffer> | undefined, b: Float32Array<ArrayBuffer>) =>
  a !== undefined && Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer));

async function files(): Promise<MemoryFiles> {
  const made = new MemoryFiles({ 'text.txt': 'Hold fast, and then hold on; 12 345 times. '.repeat(4) });
  const model = modelOf(config as AnyConfig, randomValues(shapes), shapes);
  const files = new MemoryFiles({ 'm/tokenizer.json': JSON.stringify(bytesTokenizer()) });
  await exportGGUF(made, 'm.gguf', { ...model, files }, { type: 'F32', modelfile: false });
  const { blocks, floats, infinite } = mixed(await made.read('m.gguf'), TYPES);
  await made.writeAtomic('mixed.gguf', blocks);
  await made.writeAtomic('wide.gguf', floats);
  await made.writeAtomic('bad.gguf', infinite);
  return made;
}

describe('a file of several types', async () => {
  const here = await files();

  test('has the values that ggml decodes, in the blocks of the file', async () => {
    const [found, wide] = [await loadWeights(here, 'mixed.gguf'), await loadWeights(here, 'wide.gguf')];
    const [values, wanted] = [await collect(found.weights), await collect(wide.weights)];
    expect([...values.keys()]).toEqual([...wanted.keys()]);
    for (const [name, floats] of wanted) expect(isSame(values.get(name), floats), name).toBe(true);
    expect(new Set(found.stored?.values())).toEqual(new Set(['f32', 'q4_k', 'q5_0', 'q5_k', 'q6_k']));
    expect(entry(found.stored ?? new Map(), 'model.layers.0.self_attn.q_proj.weight')).toBe('q4_k');
    expect(new Set(wide.stored?.values())).toEqual(new Set(['f32']));
  });

  test('is evaluated as the same in F32 is, within a budget that has no room for it', async () => {
    const least = ['--gpu-memory', '1MB', '--host-memory', '8MB'];
    const evaluated = (model: string, ...more: string[]) =>
      done(here, ['eval', model, '--data', 'text.txt', '--batch', '2', '--context', '8', '--json', ...more]);
    const wide = await evaluated('wide.gguf');
    expect(await evaluated('mixed.gguf')).toBe(wide);
    if (EVERY_CASE) expect(await evaluated('mixed.gguf', ...least)).toBe(wide);
  });

  test.runIf(EVERY_CASE)('is tuned by LoRA, and writes, as the same in F32 does', async () => {
    const short = ['--batch', '1', '--context', '8', '--steps', '2', '--warmup', '0', '--eval-windows', '1'];
    const tuned = async (model: string) => {
      const flags = ['--data', 'text.txt', '--lora-rank', '2', '--sample-tokens', '0', ...short];
      await done(here, ['finetune', `${model}.gguf`, ...flags, '--out', `${model}-run`]);
      const prompt = ['--prompt', 'hold', '--tokens', '6', '--temperature', '1'];
      return [
        await collect((await loadCheckpoint(here, `${model}-run`)).weights),
        await done(here, ['generate', `${model}-run`, ...prompt]),
      ];
    };
    expect(await tuned('mixed')).toEqual(await tuned('wide'));
  });

  test.each([...(EVERY_CASE ? ['most'] : []), 'least'])(
    'takes in the page’s estimate what a run of it counts, with the %s memory',
    async (which) => {
      const host = memoryHost(here, { args: [] });
      const file = new File([await here.read('mixed.gguf')], 'mixed.gguf');
      const { stored, config } = await inspectFiles(host, [{ path: 'mixed.gguf', file }]);
      const device = await openDevice(testHost, { adapter: ADAPTER });
      const limits = limitsOf(device);
      device.close();
      const lora = completeLora({ rank: 2 });
      const short = { batch: 1, seq: 8, steps: 1, warmup: 0, evalWindows: 1, sampleTokens: 0 };
      const settings = defaultSettings({ config, lora, from: 'mixed.gguf', data: ['text.txt'], ...short });
      const { unlimited, smallest } = estimateRun(settings, {}, { limits, stored });
      // Most of what is frozen is packed to less than a fourth.
      expect(unlimited).toBeLessThan(estimateRun(settings, {}, { limits }).unlimited / 2);
      const gpu = which === 'least' ? smallest : undefined;
      const { fit } = estimateRun(settings, gpu === undefined ? {} : { gpu }, { limits, stored });
      const flags = [
        '--data',
        'text.txt',
        '--lora-rank',
        '2',
        '--sample-tokens',
        '0',
        '--batch',
        '1',
        '--context',
        '8',
      ];
      const out = await inProcess(here, [
        ...['finetune', 'mixed.gguf', ...flags, '--steps', '1', '--warmup', '0', '--eval-windows', '1', '--json'],
        ...['--out', `est-${which}`, ...(gpu === undefined ? [] : ['--gpu-memory', String(gpu)])],
      ]);
      const { summary } = JSON.parse(out.out.trim().split('\n').at(-1) ?? '') as { summary: { peakGpuBytes: number } };
      expect(summary.peakGpuBytes).toBe(fit?.peak);
    },
  );

  test('a scale that is infinite is found, and named', async () => {
    const flags = ['--data', 'text.txt', '--lora-rank', '2', '--context', '8', '--steps', '1', '--out', 'bad'];
    const { status, said } = await inProcess(here, ['finetune', 'bad.gguf', ...flags]);
    expect(said).toMatch(
      /^holdfast: bad\.gguf: model\.layers\.0\.mlp\.down_proj\.weight is (?:-?Infinity|NaN) at \[255, 256\]; training needs/m,
    );
    expect(status).toBe(2);
  });
});
