// Models written for others: read again by a reader of its own, in Python where it is there, value by value; a failure
// leaves nothing behind.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { loadWeights, saveCheckpoint, withWeights } from '../../src/formats/checkpoint.ts';
import { type ExportOptions, exportModel, type SavedDtype } from '../../src/formats/export.ts';
import { parse } from '../../src/formats/safetensors.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { Files } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { narrowFloats, widen } from '../../src/values/floats.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { inProcess } from '../cli/in-process.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { checkpoint, config, parameters, shapes, valuesOf } from './checkpoints.ts';
import { interruptAtWrite } from './interrupt-at-write.ts';
import { metadataOf } from './metadata.ts';
import { hasPython, readByPython } from './python-reader.ts';
import { fileOf, shardedFolder } from './raw-tensors.ts';

const values = valuesOf(0, 1);

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-export-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function exported(files: Files, from: string, options: Partial<ExportOptions> = {}, out = 'out') {
  const all = { dtype: 'f32', maxShardBytes: 5e9, ...options } as const;
  return withWeights(files, from, (weights, found) => exportModel(files, out, { weights, ...found }, all));
}

async function savedRun(): Promise<MemoryFiles> {
  const files = new MemoryFiles();
  await saveCheckpoint(files, 'run', 1, checkpoint(1));
  return files;
}

/** Rounded to the type and back. */
function rounded(all: Values, dtype: SavedDtype): Values {
  const stored = ({ f32: undefined, f16: 'F16', bf16: 'BF16' } as const)[dtype];
  if (!stored) return all;
  return new Map(
    [...all].map(([name, floats]) => {
      const [halves, wide] = [new Uint16Array(floats.length), new Float32Array(floats.length)];
      narrowFloats(stored, floats, halves);
      widen(stored, halves, wide);
      return [name, wide];
    }),
  );
}

test.each([[[]], [['--max-shard-size', '300']]])('an interruption leaves nothing behind: %j', async (flags) => {
  const files = await savedRun();
  const before = new Map(files.contents);
  const onInterrupt = interruptAtWrite(files, 5);
  const line = await inProcess(files, ['export', 'run', '--out', 'out', ...flags], [], { onInterrupt });
  expect(line).toEqual({ status: 2, out: '', said: 'holdfast: out: interrupted; nothing is left of it\n' });
  expect(files.contents).toEqual(before);
});

const json = async (files: Files, at: string) => JSON.parse(new TextDecoder().decode(await files.read(at)));

describe.each(['f32', 'bf16', 'f16'] as const)('as %s', (dtype) => {
  test('in one file: config.json, the weights, and nothing of the run', async () => {
    const files = await savedRun();
    const summary = await exported(files, 'run', { dtype });
    expect(await files.list('out')).toEqual(['config.json', 'model.safetensors']);
    expect(summary.shards).toEqual(['model.safetensors']);
    const bytes = await files.read('out/model.safetensors');
    expect(Object.fromEntries(metadataOf(bytes))).toEqual({ format: 'pt' });
    const tensors = parse(bytes, 'w');
    expect(new Set([...tensors.values()].map(({ dtype }) => dtype))).toEqual(new Set([dtype.toUpperCase()]));
    expect(new Map([...tensors].map(([name, { data }]) => [name, data]))).toEqual(rounded(values, dtype));
    expect(await collect((await loadWeights(files, 'out')).weights)).toEqual(rounded(values, dtype));
    expect(await json(files, 'out/config.json')).toMatchObject({
      architectures: ['GPT2LMHeadModel'],
      torch_dtype: { f32: 'float32', bf16: 'bfloat16', f16: 'float16' }[dtype],
    });
  });

  test.each([1, 200, 700, 1e6])('in shards of at most %i bytes', async (maxShardBytes) => {
    const files = await savedRun();
    const { shards, bytes, tensors } = await exported(files, 'run', { dtype, maxShardBytes });
    expect(tensors).toBe(parameters.length);
    expect(await collect((await loadWeights(files, 'out')).weights)).toEqual(rounded(values, dtype));
    if (shards.length === 1) return expect(await files.list('out')).not.toContain('model.safetensors.index.json');
    const count = String(shards.length).padStart(5, '0');
    expect(shards).toEqual(shards.map((_, i) => `model-${String(i + 1).padStart(5, '0')}-of-${count}.safetensors`));
    const { metadata, weight_map } = await json(files, 'out/model.safetensors.index.json');
    expect(metadata).toEqual({ total_size: bytes });
    expect(Object.keys(weight_map)).toEqual([...values.keys()].sort());
    for (const name of shards) {
      const file = await files.read(`out/${name}`);
      const tensors = parse(file, name);
      expect(Object.fromEntries(metadataOf(file))).toEqual({ format: 'pt' });
      const size = [...tensors.values()].reduce((sum, { data }) => sum + data.length * (dtype === 'f32' ? 4 : 2), 0);
      if (tensors.size > 1) expect(size).toBeLessThanOrEqual(maxShardBytes);
    }
    expect(shards.length).toBe(maxShardBytes === 1 ? parameters.length : shards.length);
  });
});

test('what was not trained is what it was: its bytes, its configuration, its tokenizer', async () => {
  const halves = new Map(
    parameters.map(({ name, shape }) => {
      const count = shape.reduce((a, b) => a * b, 1);
      const bits = Uint16Array.from({ length: count }, (_, i) => 0x3c00 + ((i * 7919) % 0x300));
      return [name, { dtype: 'BF16', shape, bytes: new Uint8Array(bits.buffer) }];
    }),
  );
  const [first, ...rest] = [...halves];
  const kept = { ...config, eos_token_id: 7, bos_token_id: 6, dtype: 'bfloat16', architectures: ['GPT2LMHeadModel'] };
  // No longer true of what is written.
  const packing = { quant_method: 'bitsandbytes', load_in_4bit: true, bnb_4bit_quant_type: 'nf4' };
  const given = { ...kept, quantization_config: packing };
  const files = new MemoryFiles({
    'm/config.json': JSON.stringify(given),
    'm/tokenizer.json': '{"a": 1}',
    'm/generation_config.json': '{}',
    'm/notes.txt': 'mine',
    ...shardedFolder('m', { 'b.safetensors': new Map(rest), 'a.safetensors': new Map(first ? [first] : []) }),
  });
  await exported(files, 'm', { dtype: 'bf16' });
  expect(await files.list('out')).toEqual([
    'config.json',
    'generation_config.json',
    'model.safetensors',
    'tokenizer.json',
  ]);
  expect(await json(files, 'out/config.json')).toEqual(kept);
  expect(await files.read('out/tokenizer.json')).toEqual(await files.read('m/tokenizer.json'));
  const now = (await files.read('out/model.safetensors')).slice(
    -[...halves.values()].reduce((n, t) => n + t.bytes.length, 0),
  );
  const before = fileOf(halves);
  expect(now).toEqual(before.slice(-now.length));
});

describe('nothing is left behind', () => {
  test('of a value that float16 has no place for', async () => {
    const files = await savedRun();
    const bad = new Map([...values].map(([name, all]) => [name, all.slice()]));
    bad.get('wte.weight')?.fill(65520, 5, 6);
    await saveCheckpoint(files, 'bad', 1, { ...checkpoint(1), weights: sourceOf(bad), shapes });
    await expect(exported(files, 'bad', { dtype: 'f16' })).rejects.toThrow(
      'model.safetensors: wte.weight has 65520 at element 5, past the largest F16, 65504; save it as BF16 or F32',
    );
    expect(await files.list('.')).toEqual([]);
    expect([...files.contents.keys()].filter((at) => at.startsWith('out'))).toEqual([]);
    await exported(files, 'bad', { dtype: 'bf16' });
  });

  test('of a disk that fails at any write', async () => {
    for (let failing = 1; ; failing++) {
      const files = await savedRun();
      let writes = 0;
      const { writeStream } = files;
      files.writeStream = async (at) => {
        const stream = await writeStream.call(files, at);
        return {
          ...stream,
          write: (bytes) => {
            if (++writes === failing) throw new HoldfastError('the disk is full');
            return stream.write(bytes);
          },
        };
      };
      const before = [...files.contents.keys()];
      const error = await exported(files, 'run', { maxShardBytes: 700 }).then(
        () => undefined,
        (error) => error,
      );
      if (writes < failing) return expect(failing).toBeGreaterThan(10);
      expect(error.message).toBe('the disk is full');
      expect([...files.contents.keys()]).toEqual(before);
    }
  });

  test('and nothing that is there is written over', async () => {
    const files = await savedRun();
    await files.writeAtomic('out/mine.txt', 'mine');
    await expect(exported(files, 'run')).rejects.toThrow(
      'out: is there already; name a folder that is not, or an empty',
    );
    expect(await files.list('out')).toEqual(['mine.txt']);
    await files.makeFolder('empty');
    await exported(files, 'run', {}, 'empty/');
    expect(await files.list('empty')).toEqual(['config.json', 'model.safetensors']);
  });
});

describe('of a folder that two write, on a real disk', () => {
  const { files } = headlessHost();
  const at = (...names: string[]) => path.join(folder, ...names);

  /** `meanwhile` is run behind the last tensor of the first. */
  async function interleaved(out: string, meanwhile: () => Promise<unknown>) {
    const run = at(`run of ${path.basename(out)}`);
    await saveCheckpoint(files, run, 1, checkpoint(1));
    let begun: Promise<unknown> | undefined;
    const slow = Object.assign(Object.create(files) as Files, {
      syncFolder: async (path: string) => {
        begun ??= meanwhile();
        await begun;
        await files.syncFolder(path);
      },
    });
    const exporting = () =>
      withWeights(files, run, (weights, found) => exportModel(slow, out, { weights, ...found }, ALL));
    return exporting().then(
      () => 'written',
      ({ message }) => message,
    );
  }
  const ALL = { dtype: 'f32', maxShardBytes: 5e9 } as const;

  test('the first that ends has it, whole, the other is told so, and nothing is left beside it', async () => {
    const out = at('both');
    const run = at('run of both');
    const other = () => exported(files, run, { maxShardBytes: 300 }, out);
    expect(await interleaved(out, other)).toBe(`${out}: is there already; name a folder that is not, or an empty one`);
    expect(await collect((await loadWeights(files, out)).weights)).toEqual(values);
    expect(readdirSync(out)).toContain('model.safetensors.index.json');
    expect(readdirSync(folder).filter((name) => name.startsWith('both'))).toEqual(['both']);
  });

  test('what comes into an empty folder meanwhile stays, and so does a folder of another’s beside it', async () => {
    const out = at('filled');
    await files.makeFolder(out);
    await files.makeFolder(`${out}.partial`);
    await files.writeAtomic(path.join(`${out}.partial`, 'mine'), '');
    const message = await interleaved(out, () => files.writeAtomic(path.join(out, 'mine'), ''));
    expect(message).toContain('is there already');
    expect(readdirSync(out)).toEqual(['mine']);
    expect(readdirSync(`${out}.partial`)).toEqual(['mine']);
  });
});

describe('holdfast export', () => {
  async function command(files: MemoryFiles, ...args: string[]) {
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
    const status = await run(memoryHost(files, { args: ['export', ...args], terminal, gpuSources }));
    return { status, shown, said };
  }

  test('writes a folder and says what is in it, without a device', async () => {
    const files = await savedRun();
    const done = await command(files, 'run', '--out', 'out', '--dtype', 'bf16', '--max-shard-size', '700');
    expect(done).toMatchObject({ status: 0, said: '' });
    expect(done.shown).toMatch(/^out: \d+ tensors of run\/checkpoint-\d+, .* as bf16, in \d+ files\n$/);
    expect(await collect((await loadWeights(files, 'out')).weights)).toEqual(rounded(values, 'bf16'));
  });

  test.each([
    [['run'], /required option '--out <path>'/],
    [['nothing', '--out', 'out'], /nothing: no such folder/],
    [['run', '--out', 'run'], /run: is there already/],
    [['run', '--out', 'out', '--dtype', 'int8'], /Allowed choices are f32, bf16, f16/],
    [['run', '--out', 'out', '--max-shard-size', '0'], /it must be more than 0 bytes/],
    [['run', '--out', 'out', '--max-shard-size', 'large'], /is not a byte count/],
  ])('%j is refused in one line', async (args, message) => {
    const files = await savedRun();
    const before = [...files.contents.keys()];
    const { status, shown, said } = await command(files, ...args);
    expect({ status, shown }).toEqual({ status: 2, shown: '' });
    expect(said).toMatch(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect([...files.contents.keys()]).toEqual(before);
  });
});

describe.skipIf(!hasPython)('a reader in Python (skipped where there is no python3)', () => {
  test.each(['f32', 'bf16', 'f16'] as const)('finds the same values, %s', async (dtype) => {
    const { files, sha256 } = { files: headlessHost().files, sha256: () => headlessHost().files.sha256() };
    const run = path.join(folder, `run-${dtype}`);
    await saveCheckpoint(files, run, 1, checkpoint(1));
    for (const maxShardBytes of [5e9, 300]) {
      const out = path.join(folder, `${dtype}-${maxShardBytes}`);
      await exported(files, run, { dtype, maxShardBytes }, out);
      const found = readByPython(out);
      const expected: Record<string, unknown> = {};
      for (const [name, floats] of rounded(values, dtype)) {
        const sum = await sha256();
        sum.update(new Uint8Array(floats.buffer));
        expected[name] = [dtype.toUpperCase(), shapes.get(name), sum.hex()];
      }
      expect(found).toEqual(expected);
      // Saved once more, every byte is the same.
      const again = `${out}-again`;
      await exported(files, out, { dtype, maxShardBytes }, again);
      for (const name of readdirSync(out)) {
        expect(readFileSync(path.join(again, name)).equals(readFileSync(path.join(out, name))), name).toBe(true);
      }
    }
  });
});
