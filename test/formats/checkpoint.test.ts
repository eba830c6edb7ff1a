// Checkpoints in pieces: what was saved is what is loaded, whatever the pieces; no more than one piece is held;
// and whatever fails, or wherever the process ends, the newest complete checkpoint is still there to resume from.

import { describe, expect, test } from 'vitest';
import {
  checkpointsOf,
  checkWeights,
  loadCheckpoint,
  loadWeights,
  saveCheckpoint,
} from '../../src/formats/checkpoint.ts';
import { serialize } from '../../src/formats/safetensors.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect, PIECE_ELEMENTS, type TensorSource } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { checkpoint, config, expectWhole, parameters, shapes, stepOf, valuesOf } from './checkpoints.ts';
import { FaultyFiles } from './faulty-files.ts';

describe('in pieces', () => {
  test.each([1, 5, 64, undefined])('of %s elements: the files of serialize, and the values come back', async (size) => {
    const files = new MemoryFiles();
    expect(await saveCheckpoint(files, 'run', 3, checkpoint(3, size))).toBe('run/checkpoint-3');
    const tensors = (kind: number, prefix = '') =>
      [...valuesOf(kind, 3)].map(([name, data]) => [prefix + name, { shape: entry(shapes, name), data }] as const);
    const written = (file: string) => entry(files.contents, `run/checkpoint-3/${file}`);
    expect(written('model.safetensors')).toEqual(serialize(tensors(0), { format: 'pt' }));
    const moments = [...tensors(1, 'exp_avg.'), ...tensors(2, 'exp_avg_sq.')];
    expect(written('optimizer.safetensors')).toEqual(serialize(moments));
    await expectWhole(files, 3);
    expect(files.contents.size).toBe(6);
  });

  test('a state that JSON has no word for is refused before anything is written', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    const before = new Map(files.contents);
    for (const state of [undefined, () => 1, 1n])
      await expect(saveCheckpoint(files, 'run', 4, { ...checkpoint(4), state })).rejects.toThrow(
        /^the checkpoint: state is .*; it must be plain JSON$/,
      );
    expect(files.contents).toEqual(before);
  });

  test('loaded pieces are no larger than a piece', async () => {
    const length = 2 * PIECE_ELEMENTS + 3;
    const data = new Float32Array(length).map((_, i) => i % 1000);
    const file = serialize([['transformer.wte.weight', { shape: [length], data }]]);
    const files = new MemoryFiles({ 'm/model.safetensors': file, 'm/config.json': '{"model_type":"gpt2"}' });
    const { weights } = await loadWeights(files, 'm');
    const sizes: number[] = [];
    for await (const piece of weights.read('wte.weight')) sizes.push(piece.length);
    expect(sizes).toEqual([PIECE_ELEMENTS, PIECE_ELEMENTS, 3]);
    expect((await collect(weights)).get('wte.weight')?.every((value, i) => value === i % 1000)).toBe(true);
  });

  test('saving holds one piece: each is written before the next is asked for, and not looked at again', async () => {
    const size = 8;
    let made = 0;
    let most = 0;
    const files = new MemoryFiles();
    const writeStream = files.writeStream.bind(files);
    let header = true;
    files.writeStream = async (path) => {
      const stream = await writeStream(path);
      header = true;
      return {
        ...stream,
        async write(bytes) {
          await stream.write(bytes);
          if (!header && path.endsWith('.safetensors')) made--;
          header = false;
        },
      };
    };
    /** Counts pieces that are made and not yet written, and takes each one's memory away afterwards. */
    const counting = (source: TensorSource): TensorSource => ({
      names: source.names,
      async *read(name) {
        for await (const piece of source.read(name)) {
          const lent = piece.slice();
          most = Math.max(most, ++made);
          yield lent;
          structuredClone(lent.buffer, { transfer: [lent.buffer] });
        }
      },
    });
    const { weights, moment1, moment2, ...rest } = checkpoint(1, size);
    const lent = { weights: counting(weights), moment1: counting(moment1), moment2: counting(moment2) };
    await saveCheckpoint(files, 'run', 1, { ...rest, ...lent });
    expect(most).toBe(1);
    expect(made).toBe(0);
    await expectWhole(files, 1);
  });

  test('without sums, loading reads no tensor before it is asked for, and never a whole file', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 1, checkpoint(1));
    await files.remove('run/checkpoint-1/SHA256SUMS');
    const data: string[] = [];
    const { read, readRange } = files;
    files.read = (path) => {
      expect(path).toMatch(/\.json$|SHA256SUMS$/);
      return read.call(files, path);
    };
    files.readRange = (path, offset, bytes) => {
      if (offset > 8) data.push(`${path} ${bytes}`);
      return readRange.call(files, path, offset, bytes);
    };
    const { weights } = await loadCheckpoint(files, 'run');
    expect(data).toEqual([]);
    for await (const piece of weights.read('wpe.weight')) expect(piece).toHaveLength(7 * 6);
    expect(data).toEqual([`run/checkpoint-1/model.safetensors ${7 * 6 * 4}`]);
  });
});

describe('a save that fails', () => {
  const cases = [
    ['once', false, 4],
    ['once', false, 3],
    ['for good', true, 4],
    ['for good', true, 3],
  ] as const;

  // Step 3 on step 3 is a run that is resumed at its end.
  test.each(cases)('%s, (process ends: %s), at any change of the disk, step %i after step 3', async (_, gone, step) => {
    // Otherwise the four take the changes in turns.
    const first = (step % 2) + (gone ? 2 : 0);
    for (let failAt = 1 + (EVERY_CASE ? 0 : first); ; failAt += EVERY_CASE ? 1 : 6) {
      const files = new FaultyFiles();
      await saveCheckpoint(files, 'run', 3, checkpoint(3));
      Object.assign(files, { changes: 0, failAt, gone });
      const failed = await saveCheckpoint(files, 'run', step, checkpoint(5, 16)).then(
        () => false,
        () => true,
      );
      const survived = files.changes < failAt;
      files.failAt = Number.POSITIVE_INFINITY;
      for (const { path } of await checkpointsOf(files, 'run')) {
        await expectWhole(files, stepOf(await loadCheckpoint(files, path)), path);
      }
      const newest = stepOf(await loadCheckpoint(files, 'run'));
      if (!failed) expect(newest).toBe(5);
      // The next save succeeds and leaves itself and the one before.
      const before = (await checkpointsOf(files, 'run')).at(-1)?.path ?? '';
      await saveCheckpoint(files, 'run', 6, checkpoint(6));
      await expectWhole(files, 6);
      await expectWhole(files, newest, before);
      expect((await files.list('run')).map((name) => `run/${name}`)).toEqual([before, 'run/checkpoint-6']);
      expect([...files.contents.keys()]).toHaveLength(12);
      if (survived) {
        expect(failed).toBe(false);
        expect(failAt).toBeGreaterThan(50);
        return;
      }
    }
  });

  test('a source that fails leaves the old checkpoint and nothing else', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    const failing: TensorSource = {
      names: [...shapes.keys()],
      // biome-ignore lint/correctness/useYield: it fails before its first piece
      async *read() {
        throw new HoldfastError('the device is lost');
      },
    };
    const broken = { ...checkpoint(4), moment2: failing };
    await expect(saveCheckpoint(files, 'run', 4, broken)).rejects.toThrow('the device is lost');
    await expectWhole(files, 3);
    expect(await files.list('run')).toEqual(['checkpoint-3']);
  });

  test.each([
    ['no shape', new Map([...shapes].slice(1)), /^the checkpoint has no shape for wte\.weight; give it in shapes$/],
    [
      'another shape',
      new Map([...shapes, ['wte.weight', [2, 6]]]),
      /wte\.weight has 12 elements \(\[2,6\]\), 78 were given$/,
    ],
  ])('a tensor with %s is refused, and the old checkpoint stays', async (_, shapes, says) => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    const error = await saveCheckpoint(files, 'run', 4, { ...checkpoint(4), shapes }).catch((error) => error);
    expect(error).toBeInstanceOf(HoldfastError);
    expect(error.message).toMatch(says);
    await expectWhole(files, 3);
  });

  test('what a run that was killed left behind is not read, and goes with the next save', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    await files.writeAtomic('run/.checkpoint-9.partial/config.json', '{}');
    expect(await checkpointsOf(files, 'run')).toEqual([{ step: 3, path: 'run/checkpoint-3' }]);
    await saveCheckpoint(files, 'run', 4, checkpoint(4));
    expect(await files.list('run')).toEqual(['checkpoint-3', 'checkpoint-4']);
  });
});

describe('what does not fit is named', () => {
  const saved = async (optimizer: Parameters<typeof serialize>[0]) => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 1, checkpoint(1));
    files.contents.set('run/checkpoint-1/optimizer.safetensors', serialize(optimizer));
    await files.remove('run/checkpoint-1/SHA256SUMS');
    return loadCheckpoint(files, 'run');
  };
  const bias = { shape: [6], data: new Float32Array(6) };

  test('moments of other tensors or shapes', async () => {
    const name = 'run/checkpoint-1/optimizer.safetensors';
    await expect(saved([['exp_avg.x', bias]])).rejects.toThrow(`${name}: exp_avg.x has no weight of its shape`);
    const square = { shape: [2, 3], data: bias.data };
    await expect(saved([['exp_avg_sq.ln_f.bias', square]])).rejects.toThrow('exp_avg_sq.ln_f.bias has no weight');
    await expect(saved([['exp_avg.ln_f.bias', bias]])).rejects.toThrow(`${name}: the two moments are not`);
    await expect(saved([['momentum', bias]])).rejects.toThrow(HoldfastError);
  });

  test('weights of another type or model', async () => {
    const folder = (data: Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>, name = 'ln_f.bias') =>
      loadWeights(
        new MemoryFiles({
          'm/config.json': JSON.stringify(config),
          'm/model.safetensors': serialize([[name, { shape: [data.length], data }]]),
        }),
        'm',
      );
    await expect(folder(new Float64Array(6))).rejects.toThrow('m/model.safetensors: ln_f.bias is F64');
    const { shapes: found } = await folder(new Float32Array(6), 'transformer.ln_f.bias');
    const bias = parameters.filter(({ name }) => name === 'ln_f.bias');
    expect(() => checkWeights(found, bias, 'm')).not.toThrow();
    expect(() => checkWeights(found, parameters, 'm')).toThrow('m: there is no tensor wte.weight');
    expect(() => checkWeights(found, [{ name: 'ln_f.bias', shape: [2, 3] }], 'm')).toThrow('[6], its config.json asks');
    expect(() => checkWeights(found, [], 'm')).toThrow('tensor ln_f.bias is no parameter');
  });
});
