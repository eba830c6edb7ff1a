// What is hidden of a batch: how much, behind what, and that a dataset which is restored hides the same.

import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { textDataset } from '../../src/data/dataset.ts';
import { type Masking, masked, maskedDataset, maskingOf, textOf } from '../../src/data/masking.ts';
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

/** [CLS] 1, [SEP] 2 and [MASK] 4 among what is special. */
const MARKED: Masking = { ...MASKING, marks: { before: [1], after: [2], special: new Set([0, 1, 2, 3, 4]) } };

test('windows lie between what a tokenizer puts around a text, and no special token is to be told', async () => {
  // Special tokens in the text, too.
  const some = Int32Array.from({ length: 4000 }, (_, i) => (i % 10 === 0 ? i % 5 : 5 + (i % 45)));
  const inside = { ...run, train: heldRun(some), validation: heldRun(some.slice(0, 400)) };
  const options = { batch: 3, seq: textOf(37, MARKED), seed: 3, evalWindows: 2 };
  expect(options.seq).toBe(35);
  const marked = maskedDataset(await textDataset(inside, options), MARKED, 3);
  const bare = await textDataset(inside, options);
  const told = new Map<number, number>();
  for (const [{ ids, targets, seq, batch }, given] of [
    [marked.validation, bare.validation],
    ...(await Promise.all(Array.from({ length: 40 }, async () => [await marked.next(), await bare.next()] as const))),
  ] as const) {
    expect([seq, ids.length, targets.length]).toEqual([37, 37 * batch, 37 * batch]);
    for (let row = 0; row < batch; row++) {
      const [first, ...window] = ids.subarray(37 * row, 37 * (row + 1));
      expect([first, window.pop()]).toEqual([1, 2]);
      for (const [i, id] of window.entries()) {
        const target = targets[37 * row + 1 + i] ?? 0;
        const own = given.ids[35 * row + i] ?? -1;
        if (target !== -100) expect(target).toBe(own);
        else expect(id).toBe(own);
        told.set(own, (told.get(own) ?? 0) + Number(target !== -100));
      }
      expect([targets[37 * row], targets[37 * row + 36]]).toEqual([-100, -100]);
    }
  }
  expect([0, 1, 2, 3, 4].map((id) => told.get(id) ?? 0)).toEqual([0, 0, 0, 0, 0]);
  expect([...told].filter(([id, count]) => id > 4 && count === 0)).toEqual([]);
  expect(() => textOf(2, MARKED)).toThrow(
    'windows of 2 tokens: what its tokenizer puts around a text takes 2; use at least 3',
  );
  expect([textOf(3, MARKED), textOf(2, MASKING)]).toEqual([1, 2]);
});

test('without marks what is hidden is what it always was', async () => {
  const { ids, targets } = await (await dataset()).next();
  const sum = createHash('sha256').update(ids).update(targets).digest('hex');
  expect(sum).toBe('171510dba7729d5e09e711baec72024eade6a22980c40f34248b03e27097d026');
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
  const { marks = { before: [], after: [], special: new Set<number>() } } = MARKED;
  expect(maskingOf({ ...of('[MASK]'), marks })).toEqual({ mask: 7, vocabulary: 60 });
  expect(maskingOf({ ...of('[MASK]'), marks }, true)).toEqual({ mask: 7, vocabulary: 60, marks });
  expect(maskingOf(new ByteTokenizer(), true)).toEqual({ mask: 0, vocabulary: 256 });
  expect(() => maskingOf(of('<other>'))).toThrow(HoldfastError);
  expect(() => maskingOf(of('<other>'))).toThrow('dir/tokenizer.json: has no token [MASK] or <mask>');
});
