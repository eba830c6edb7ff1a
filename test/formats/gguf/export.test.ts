// GGUF files of trained models, and `holdfast export --gguf`: read by Hugging Face's parser and by one in Python; a failure or an
// interruption leaves nothing behind.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { run } from '../../../src/cli/run.ts';
import { saveCheckpoint } from '../../../src/formats/checkpoint.ts';
import { parseConfig } from '../../../src/formats/config.ts';
import { exportGGUF } from '../../../src/formats/gguf/export.ts';
import { type MetadataValue, makeGGUFHeader } from '../../../src/formats/gguf/header.ts';
import { makeModel } from '../../../src/nn/index.ts';
import type { Host } from '../../../src/runtime/host.ts';
import { HoldfastError } from '../../../src/util/errors.ts';
import { sourceOf } from '../../../src/values/tensor-source.ts';
import { TEMPLATES } from '../../data/chat-templates.ts';
import { MemoryFiles, memoryHost } from '../../memory-files.ts';
import { checkpoint } from '../checkpoints.ts';
import { interruptAtWrite } from '../interrupt-at-write.ts';
import { LossyDisk } from '../lossy-disk.ts';
import { modelOf, randomValues, wordsTokenizer } from './models.ts';
import { readGGUF } from './reader.ts';

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 7, n_embd: 32, n_layer: 2, n_head: 2, n_inner: 33 },
  'test',
);
const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));
const values = randomValues(shapes);

/** A run of this package: bytes, no tokenizer.json. */
async function savedRun(weights = values): Promise<MemoryFiles> {
  const files = new MemoryFiles();
  const moments = { moment1: sourceOf(values), moment2: sourceOf(values) };
  await saveCheckpoint(files, 'run', 1, { ...checkpoint(1), config, weights: sourceOf(weights), shapes, ...moments });
  return files;
}

async function command(files: MemoryFiles, args: readonly string[], host: Partial<Host> = {}) {
  let [shown, said] = ['', ''];
  const terminal = {
    interactive: false,
    columns: 80,
    write: (text: string) => {
      shown += text;
    },
    warn: (text: string) => {
      said += text;
    },
  };
  const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
  const status = await run(memoryHost(files, { args: ['export', ...args], terminal, gpuSources, ...host }));
  return { status, shown, said };
}

describe('holdfast export --gguf', () => {
  test('writes a run’s model, the transposed projections and all, and says what it is', async () => {
    const files = await savedRun();
    const done = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F32', '--modelfile']);
    expect(done).toMatchObject({ status: 0, said: '' });
    expect(done.shown).toMatch(/^out.gguf: 28 tensors of run\/checkpoint-1, .* KB as F32, and Modelfile\n$/);
    const { metadata, typed, tensors } = await readGGUF(await files.read('out.gguf'));
    expect(metadata).toMatchObject({
      'general.architecture': 'gpt2',
      'general.name': 'run',
      'general.size_label': '22K',
      'general.file_type': 0,
      'general.quantization_version': 2,
      'gpt2.context_length': 7,
      'gpt2.feed_forward_length': 33,
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.add_bos_token': false,
    });
    expect(metadata['tokenizer.ggml.tokens']).toHaveLength(256);
    expect(typed['gpt2.attention.layer_norm_epsilon']).toEqual({ type: 6, value: Math.fround(1e-5) });
    expect(tensors.has('output.weight')).toBe(false);
    const up = tensors.get('blk.1.ffn_up.weight');
    const given = values.get('h.1.mlp.c_fc.weight');
    expect(up?.dims).toEqual([32, 33]);
    for (const [i, value] of (up?.values ?? []).entries()) {
      expect(value).toBe(given?.[(i % 32) * 33 + Math.floor(i / 32)]);
    }
    expect([...(tensors.get('token_embd.weight')?.values ?? [])]).toEqual([...(values.get('wte.weight') ?? [])]);
    const modelfile = new TextDecoder().decode(await files.read('Modelfile'));
    expect(modelfile).toBe('FROM ./out.gguf\nTEMPLATE """{{ .Prompt }}"""\n');
  });

  test('as Q8_0 says which matrices are F16', async () => {
    const files = await savedRun();
    const { shown } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'Q8_0']);
    expect(shown).toMatch(/as Q8_0 \(2 as F16: their rows are no multiples of 32\)\n$/);
    const { tensors, metadata } = await readGGUF(await files.read('out.gguf'));
    expect(metadata['general.file_type']).toBe(7);
    const types = [...tensors].map(([name, { type }]) => [name.replace(/^blk\.\d\./, ''), type]);
    expect(Object.fromEntries(types)).toMatchObject({
      ...{ 'token_embd.weight': 8, 'position_embd.weight': 0, 'attn_qkv.weight': 8, 'attn_qkv.bias': 0 },
      ...{ 'ffn_up.weight': 8, 'ffn_down.weight': 1, 'attn_norm.weight': 0, 'output_norm.bias': 0 },
    });
  });

  /** A run whose tokenizer has this chat template, exported with a Modelfile. */
  async function withModelfile(chatTemplate: string) {
    const files = await savedRun();
    const added = ['<|im_start|>', '<|im_end|>'].map((content, i) => ({ id: 254 + i, content, special: true }));
    const words = wordsTokenizer(254);
    await files.writeAtomic('run/checkpoint-1/tokenizer.json', JSON.stringify({ ...words, added_tokens: added }));
    const tokenizer = { eos_token: '<|im_end|>', chat_template: chatTemplate };
    await files.writeAtomic('run/checkpoint-1/tokenizer_config.json', JSON.stringify(tokenizer));
    await files.makeFolder('made');
    const done = await command(files, ['run', '--out', 'made/a b.gguf', '--gguf', 'BF16', '--modelfile']);
    const text = new TextDecoder().decode(await files.read('made/Modelfile'));
    return { ...done, modelfile: text, gguf: await files.read('made/a b.gguf') };
  }

  test('with a tokenizer of its own and a chat template: a Modelfile that ends answers', async () => {
    const { status, shown, said, modelfile, gguf } = await withModelfile(TEMPLATES.chatml.text);
    expect([status, said]).toEqual([0, '']);
    expect(shown).toContain(', and made/Modelfile\n');
    const { metadata } = await readGGUF(gguf);
    expect(metadata).toMatchObject({
      'tokenizer.chat_template': TEMPLATES.chatml.text,
      'tokenizer.ggml.eos_token_id': 255,
      'tokenizer.ggml.eot_token_id': 255,
      'general.file_type': 32,
    });
    expect(modelfile).toMatch(
      /^FROM \.\/a b\.gguf\nTEMPLATE """\{\{ range .Messages \}\}\{\{ if eq .Role "system" \}\}<\|im_start\|>system\n/,
    );
    expect(modelfile).toMatch(
      /"""\nSYSTEM """You are helpful."""\nPARAMETER stop "<\|im_start\|>"\nPARAMETER stop "<\|im_end\|>"\n$/,
    );
  });

  test('where the chat template writes the date, the Modelfile has no template, and that is said in one line', async () => {
    const { status, said, modelfile } = await withModelfile(TEMPLATES.llama3.text);
    expect(said).toMatch(
      /^holdfast: the Modelfile has no TEMPLATE, [^\n]+: it writes the date of the day; Ollama 0[^\n]+\n$/,
    );
    expect([status, modelfile]).toEqual([
      0,
      'FROM ./a b.gguf\nPARAMETER stop "<|start_header_id|>"\nPARAMETER stop "<|eot_id|>"\nPARAMETER stop "<|im_end|>"\n',
    ]);
  });

  test.each([
    [['run', '--out', 'out.gguf', '--gguf', 'Q4_K'], /Allowed choices are F32, F16, BF16, Q8_0, Q4_0/],
    [['run', '--out', 'out.gguf', '--modelfile'], /--modelfile names a GGUF file; give --gguf, too/],
    [['run', '--out', 'out.gguf', '--gguf', 'F16', '--dtype', 'f16'], /cannot be used with option '--dtype/],
    [
      ['run', '--out', 'out.gguf', '--gguf', 'F16', '--max-shard-size', '1GB'],
      /cannot be used with option '--max-shard/,
    ],
    [['run', '--out', 'out.gguf'], /--out out\.gguf: is a folder without --gguf; give that, too/],
    [['run/checkpoint-1/config.json', '--out', 'x'], /is no folder, nor a zip or \.gguf file; name a run/],
    [['run', '--out', 'run', '--gguf', 'F16'], /run: is there already; name a file that is not/],
    [['run', '--out', 'run/', '--gguf', 'F16'], /"run\/" names no file/],
    [['run', '--out', 'q8', '--gguf', 'F16'], /q8: a GGUF file is known by the end of its name; name q8\.gguf/],
    [['mine', '--out', 'out.gguf', '--gguf', 'F16'], /mine: no such folder/],
    [['run', '--out', 'out\n.gguf', '--gguf', 'F16', '--modelfile'], /a Modelfile cannot name such a file/],
  ])('%j is refused in one line', async (args, message) => {
    const files = await savedRun();
    const before = [...files.contents.keys()];
    const { status, shown, said } = await command(files, args);
    expect({ status, shown }).toEqual({ status: 2, shown: '' });
    expect(said).toMatch(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect([...files.contents.keys()]).toEqual(before);
  });

  test('a Modelfile that is there is not written over', async () => {
    const files = await savedRun();
    await files.writeAtomic('Modelfile', 'mine');
    const { said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F16', '--modelfile']);
    expect(said).toMatch(/Modelfile: is there already; leave --modelfile out, or name a file in another folder\n/);
    expect(await files.stat('out.gguf')).toBeUndefined();
    expect(new TextDecoder().decode(await files.read('Modelfile'))).toBe('mine');
  });

  test.each([
    ['out.gguf', 'name a file that is not'],
    ['Modelfile', 'leave --modelfile out, or name a file in another folder'],
  ])('nor is one that comes meanwhile: %s', async (name, fix) => {
    const files = await savedRun();
    const { writeStream } = files;
    files.writeStream = async (at) => {
      if (at === 'out.gguf') files.contents.set(name, new TextEncoder().encode('mine'));
      return writeStream.call(files, at);
    };
    const { said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F16', '--modelfile']);
    expect(said).toBe(`holdfast: ${name}: is there already; ${fix}\n`);
    expect(new TextDecoder().decode(await files.read(name))).toBe('mine');
    expect([...files.contents.keys()].filter((path) => !path.startsWith('run/'))).toEqual([name]);
  });

  test('without a tokenizer, tokens that are no bytes are refused', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 1, checkpoint(1));
    const { said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F16']);
    expect(said).toMatch(/^holdfast: run: there is no tokenizer.json, and 13 tokens are not bytes; put/);
  });
});

describe('nothing is left behind', () => {
  const left = async (files: MemoryFiles, before: readonly string[]) =>
    [...files.contents.keys()].filter((name) => !before.includes(name));

  test('of an interruption', async () => {
    const files = await savedRun();
    const before = [...files.contents.keys()];
    const onInterrupt = interruptAtWrite(files, 5);
    const { status, said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F16', '--modelfile'], {
      onInterrupt,
    });
    expect({ status, said }).toEqual({ status: 2, said: 'holdfast: out.gguf: interrupted; nothing is left of it\n' });
    expect(await left(files, before)).toEqual([]);
  });

  /** What the command says where the n-th write fails, and how many there are. */
  async function failingAt(failing: number) {
    const files = await savedRun();
    const before = [...files.contents.keys()];
    let writes = 0;
    const { writeStream } = files;
    const fail = () => {
      if (++writes === failing) throw new HoldfastError('the disk is full');
    };
    files.writeStream = async (at) => {
      const stream = await writeStream.call(files, at);
      return {
        ...stream,
        write: async (bytes) => {
          fail();
          await stream.write(bytes);
        },
        commit: async () => {
          fail();
          await stream.commit();
        },
      };
    };
    const { said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', 'F16', '--modelfile']);
    return { said, writes, found: await left(files, before) };
  }

  test('of a disk that fails at any write', async () => {
    const { said, writes, found } = await failingAt(0);
    expect({ said, found }).toEqual({ said: '', found: ['Modelfile', 'out.gguf'] });
    // The last are the Modelfile's and what puts both in their places.
    const step = process.env['HOLDFAST_TESTS'] === 'all' ? 1 : 9;
    for (let failing = 1; failing <= writes; failing += failing < writes - 4 ? step : 1) {
      expect(await failingAt(failing)).toMatchObject({ said: 'holdfast: the disk is full\n', found: [] });
    }
  });

  test('of a disk without room for it', async () => {
    const full = Object.assign(await savedRun(), { freeBytes: async () => 1000 });
    const before = [...full.contents.keys()];
    const { said } = await command(full, ['run', '--out', 'out.gguf', '--gguf', 'F16']);
    expect(said).toMatch(/^holdfast: out.gguf: takes .* KB, its disk has 1.00 KB free; make space there/);
    expect(await left(full, before)).toEqual([]);
  });

  test.each(['F32', 'F16', 'Q8_0'] as const)('of a weight that is NaN, as %s', async (type) => {
    const bad = new Map(values).set(
      'wte.weight',
      Float32Array.from(values.get('wte.weight') ?? []).fill(Number.NaN, 70, 71),
    );
    const files = await savedRun(bad);
    const before = [...files.contents.keys()];
    const { said } = await command(files, ['run', '--out', 'out.gguf', '--gguf', type]);
    expect(said).toMatch(/^holdfast: run: wte.weight is NaN at \[2, 6\]; a GGUF file needs finite weights/);
    expect(await left(files, before)).toEqual([]);
  });
});

test('a vocabulary of any size is read again, whole', async () => {
  const words = Array.from({ length: 30_000 }, (_, i) => 'word'.repeat(1 + (i % 5)) + i);
  const merges = words.map((word) => `${word.slice(0, 2)} ${word.slice(2)}`);
  const metadata = new Map<string, MetadataValue>([
    ['general.architecture', { type: 'string', value: 'gpt2' }],
    ['a', { type: 'strings', value: words }],
    ['b', { type: 'i32s', value: words.map((_, i) => 7 - i) }],
    ['c', { type: 'f32s', value: words.map((_, i) => i / 2) }],
    ['d', { type: 'strings', value: merges }],
    ['e', { type: 'bool', value: true }],
  ]);
  for (const count of [0, 1, 11_000, 30_000]) {
    metadata.set('a', { type: 'strings', value: words.slice(0, count) });
    const found = (await readGGUF(makeGGUFHeader(metadata, []))).metadata;
    for (const [key, { value }] of metadata) expect(found[key], key).toEqual(value);
  }
});

test('a tokenizer that an adapter brings along comes before the one in the folder', async () => {
  const bytes = (json: unknown) => new TextEncoder().encode(JSON.stringify(json));
  const added_tokens = [{ id: 255, content: '<|im_end|>', special: true }];
  const contents = new Map([
    ['tokenizer.json', bytes({ ...wordsTokenizer(255), added_tokens })],
    ['tokenizer_config.json', bytes({ eos_token: '<|im_end|>', chat_template: 'its own' })],
  ]);
  const tokenizer = { path: 'adapter', sha256: '', contents };
  const files = new MemoryFiles();
  const model = { ...modelOf(config, values, shapes), tokenizer };
  await exportGGUF(files, 'x.gguf', model, { type: 'F32', modelfile: false });
  const { metadata } = await readGGUF(await files.read('x.gguf'));
  expect(metadata).toMatchObject({ 'tokenizer.chat_template': 'its own', 'tokenizer.ggml.eos_token_id': 255 });
  expect(metadata['tokenizer.ggml.tokens']).toEqual([...Object.keys(wordsTokenizer(255).model.vocab), '<|im_end|>']);
});

test('once it is reported it is there after a loss of power, and so is its Modelfile', async () => {
  const disk = new LossyDisk();
  await disk.makeFolder('a');
  const model = modelOf(config, values, shapes);
  await exportGGUF(disk, 'a/x.gguf', model, { type: 'Q8_0', modelfile: true });
  const after = disk.afterPowerLoss(() => false);
  expect(await after.list('a')).toEqual(['Modelfile', 'x.gguf']);
  expect((await after.read('a/x.gguf')).length).toBe((await disk.read('a/x.gguf')).length);
});

test('the same model is the same bytes, whatever the pieces', async () => {
  const written = async (pieces?: number) => {
    const files = new MemoryFiles();
    await exportGGUF(files, 'x.gguf', modelOf(config, values, shapes, pieces), { type: 'Q8_0', modelfile: false });
    return files.read('x.gguf');
  };
  const bytes = await written();
  for (const pieces of [1000, 31, 7]) expect((await written(pieces)).every((byte, i) => byte === bytes[i])).toBe(true);
  expect(bytes.length % 32).toBe(0);
});

/** Reads a file with nothing but the format's definition; prints each tensor's name, type, dims, and its values' sum and last. */
const READER = `
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
at = 0
def take(form):
    global at
    values = struct.unpack_from('<' + form, data, at)
    at += struct.calcsize('<' + form)
    return values[0]
def text():
    global at
    length = take('Q')
    at += length
    return data[at - length:at].decode()
def value(kind):
    if kind == 8: return text()
    if kind == 9:
        item, count = take('I'), take('Q')
        return [value(item) for _ in range(count)]
    return take({4: 'I', 5: 'i', 6: 'f', 7: '?'}[kind])
assert data[:4] == b'GGUF'
at = 4
assert take('I') == 3
tensors, keys = take('Q'), take('Q')
metadata = {}
for _ in range(keys):
    key = text()
    assert key not in metadata
    metadata[key] = value(take('I'))
infos = []
for _ in range(tensors):
    name = text()
    dims = [take('Q') for _ in range(take('I'))]
    infos.append((name, dims, take('I'), take('Q')))
begin = (at + 31) // 32 * 32
found, ends = {}, begin
for name, dims, kind, offset in infos:
    assert offset % 32 == 0 and begin + offset == (ends + 31) // 32 * 32
    count = 1
    for size in dims: count *= size
    raw = begin + offset
    if kind == 8:
        values = []
        for block in range(count // 32):
            scale, = struct.unpack_from('<e', data, raw + 34 * block)
            values += [scale * q for q in struct.unpack_from('<32b', data, raw + 34 * block + 2)]
        ends = raw + count // 32 * 34
    elif kind == 30:
        values = [struct.unpack('<f', struct.pack('<I', h << 16))[0] for h in struct.unpack_from('<%dH' % count, data, raw)]
        ends = raw + 2 * count
    else:
        values = struct.unpack_from('<%d%s' % (count, {0: 'f', 1: 'e'}[kind]), data, raw)
        ends = raw + count * (4 if kind == 0 else 2)
    found[name] = [kind, dims, list(values)]
assert (ends + 31) // 32 * 32 == len(data)
print(json.dumps([metadata, found]))
`;

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-gguf-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const hasPython = spawnSync('python3', ['--version']).status === 0;

describe.skipIf(!hasPython)('a reader in Python (skipped where there is no python3)', () => {
  test.each(['F32', 'F16', 'BF16', 'Q8_0'] as const)('finds what Hugging Face’s finds, %s', async (type) => {
    const files = new MemoryFiles();
    await exportGGUF(files, 'x.gguf', modelOf(config, values, shapes), { type, modelfile: false });
    const bytes = await files.read('x.gguf');
    const file = path.join(folder, `${type}.gguf`);
    writeFileSync(file, bytes);
    const output = execFileSync('python3', ['-c', READER, file], { encoding: 'utf8', maxBuffer: 2 ** 27 });
    const [metadata, tensors] = JSON.parse(output);
    const read = await readGGUF(bytes);
    expect(Object.keys(tensors)).toEqual([...read.tensors.keys()]);
    for (const [name, { type: kind, dims, values: all }] of read.tensors) {
      expect(tensors[name]).toEqual([kind, [...dims], [...all]]);
    }
    for (const [key, value] of Object.entries(metadata)) {
      if (typeof value !== 'number') expect(read.metadata[key], key).toEqual(value);
      else expect(Number(read.metadata[key])).toBe(value);
    }
  });
});
