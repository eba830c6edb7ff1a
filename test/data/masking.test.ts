// What is hidden of a batch: how much, behind what, and that a dataset which is restored hides the same.

import { expect, test } from 'vitest';
import { textDataset } from '../../src/data/dataset.ts';
import { type Masking, masked, maskedDataset, maskingOf } from '../../src/data/masking.ts';
import { heldRun } from '../../src/data/token-run.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';

const MASKING: Masking = { mask: 4, vocabulary: 50 };
const text = Int32Array.from({ length: 4000 }, (_, i) => 5 + (i % 45));
const run = {
  identity: { bytes: 1, sha256: '' },
  train: heldRun(text),
  validation: heldRun(text.slice(0, 400)),
  stride: 1,
};
const dataset = async (seed = 3) =>
  maskedDataset(await textDataset(run, { batch: 3, seq: 37, seed, evalWindows: 2 }), MASKING, seed);

test('15 % are to be told: four fifths of them hidden, a tenth another token, a tenth as they are', () => {
  const ids = Int32Array.from({ length: 40_000 }, (_, i) => 5 + (i % 45));
  const { ids: shown, targets } = masked({ ids, targets: ids, batch: 40, seq: 1000 }, MASKING, new Random(1, 'test'));
  const chosen = [...targets.keys()].filter((i) => targets[i] !== -100);
  for (const [i, id] of ids.entries()) {
    if (targets[i] === -100) expect(shown[i]).toBe(id);
    else expect(targets[i]).toBe(id);
  }
  const share = (count: number) => count / chosen.length;
  const hidden = chosen.filter((i) => shown[i] === MASKING.mask).length;
  const same = chosen.filter((i) => shown[i] === ids[i]).length;
  // Four standard deviations of a share of 6,000 are at most 0.026; another token is itself or the mask in 2 of 50.
  expect(Math.abs(chosen.length / ids.length - 0.15)).toBeLessThan(0.008);
  expect(Math.abs(share(hidden) - 0.8)).toBeLessThan(0.026);
  expect(Math.abs(share(same) - 0.1)).toBeLessThan(0.02);
  expect(chosen.length - hidden - same).toBeGreaterThan(0.07 * chosen.length);
});

test('a dataset that is restored hides what the original would have hidden; another seed, something else', async () => {
  const original = await dataset();
  await original.next();
  const state = original.state();
  const wanted = [await original.next(), await original.next()];
  expect(wanted[0]?.targets).not.toEqual(wanted[1]?.targets);
  const restored = await dataset();
  restored.restore(state);
  expect([await restored.next(), await restored.next()]).toEqual(wanted);
  expect((await dataset()).validation).toEqual(original.validation);
  expect(await (await dataset(4)).next()).not.toEqual(await (await dataset()).next());
  expect(original.validation.targets.some((target) => target !== -100)).toBe(true);
});

test('the token that hides is the one the tokenizer has, NUL among bytes', () => {
  expect(maskingOf(new ByteTokenizer())).toEqual({ mask: 0, vocabulary: 256 });
  const of = (known: string) => ({
    identity: { kind: 'huggingface', path: 'dir/tokenizer.json', sha256: '' } as const,
    vocabulary: 60,
    encode: (given: string | Uint8Array) => (given === known ? Int32Array.of(7) : Int32Array.of(1, 2, 3)),
  });
  expect(maskingOf(of('[MASK]'))).toEqual({ mask: 7, vocabulary: 60 });
  expect(maskingOf(of('<mask>'))).toEqual({ mask: 7, vocabulary: 60 });
  expect(() => maskingOf(of('<other>'))).toThrow(HoldfastError);
  expect(() => maskingOf(of('<other>'))).toThrow('dir/tokenizer.json: has no token [MASK] or <mask>');
});
