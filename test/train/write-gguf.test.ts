// A run's model written as a GGUF file by one call: the weights that it has, in the type that is asked for.

import { expect, test } from 'vitest';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { writeGGUF } from '../../src/train/run/write-gguf.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { expectMistake } from '../expect-mistake.ts';
import { CHECKPOINT, RUN, savedRun } from '../saved-run.ts';

test('a run, read back, has its weights; F16 where nothing is said', async () => {
  const { files } = await savedRun();
  const { weights } = await loadWeights(files, CHECKPOINT);
  expect(await writeGGUF(files, RUN, 'm.gguf', { type: 'F32' })).toMatchObject({ fallbacks: 0, notes: [] });
  const read = await loadWeights(files, 'm.gguf');
  expect(await collect(read.weights)).toEqual(await collect(weights));

  const { bytes } = await writeGGUF(files, CHECKPOINT, 'half.gguf');
  expect(bytes).toBeLessThan((await files.stat('m.gguf'))?.bytes ?? 0);
  expect((await loadWeights(files, 'half.gguf')).stored?.get('wte.weight')).toBe('f16');
});

test('nothing is left of one that is ended, and nothing is written over', async () => {
  const { files } = await savedRun();
  const before = new Map(files.contents);
  const signal = AbortSignal.abort();
  await expectMistake(
    () => writeGGUF(files, RUN, 'm.gguf', { signal }),
    /^m\.gguf: interrupted; nothing is left of it$/,
  );
  expect(files.contents).toEqual(before);
  await expectMistake(() => writeGGUF(files, RUN, 'text.txt'), /^text\.txt: is there already/);
  await expectMistake(
    () => writeGGUF(files, RUN, 'm.gguf', { dtype: 'Q8_0' } as object),
    /^the options of a GGUF file: no option dtype; there are type, /,
  );
});
