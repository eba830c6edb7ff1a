// Documents in rows: no token is lost, none is there twice, no target belongs to another document, and a run goes on from
// any place with the batches that it would have had.

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { TokenBatch } from '../../src/data/batches.ts';
import { type Dataset, documentDataset } from '../../src/data/dataset.ts';
import { permutation } from '../../src/data/epoch-order.ts';
import type { PackedBatch } from '../../src/data/packing.ts';
import type { ReadDocuments } from '../../src/data/records/read-records.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { documentsOf, listed } from './held-documents.ts';

const IGNORED = -100;

/** Documents of such lengths whose tokens are all different, each token learned that `isLearned` says. */
function read(lengths: readonly number[], longer: 'split' | 'cut', isLearned = (_: number) => true): ReadDocuments {
  let id = 1;
  const all = lengths.map((length) => {
    const ids = Array.from({ length }, () => id++);
    return { ids, learned: ids.map(isLearned) };
  });
  const identity = { bytes: 1, sha256: '0'.repeat(64) };
  return { ...documentsOf(all), identity, names: ['f'], shapes: ['text'], longer };
}

/** The ids of each document. */
const idsOf = async ({ documents }: ReadDocuments): Promise<number[][]> =>
  (await listed(documents)).map(({ ids }) => ids);

const OPTIONS = { batch: 2, seq: 8, seed: 3, evalWindows: 1000 };
const NONE = read([2], 'cut');

/** An epoch's rows. */
async function epochOf(dataset: Dataset, batch: number): Promise<TokenBatch[]> {
  const rows: TokenBatch[] = [];
  for (let left = dataset.rowsIn(1); left > 0; left -= batch) {
    const next = (await dataset.next()) as TokenBatch;
    for (let row = 0; row < Math.min(batch, left); row++) {
      const part = (values: Int32Array) => values.slice(row * next.seq, (row + 1) * next.seq);
      const arrays = Object.entries(next).flatMap(([name, values]) =>
        values instanceof Int32Array ? [[name, part(values)]] : [],
      );
      rows.push({ ...(Object.fromEntries(arrays) as Pick<TokenBatch, 'ids' | 'targets'>), batch: 1, seq: next.seq });
    }
  }
  return rows;
}

const lengths = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 3, maxLength: 40 });

test.each(['split', 'cut'] as const)(
  'longer documents are %s: every token once, every target its own',
  async (longer) => {
    const property = fc.asyncProperty(
      lengths,
      fc.integer({ min: 2, max: 12 }),
      fc.boolean(),
      async (lengths, seq, pack) => {
        const isLearned = (id: number) => longer === 'split' || id % 3 > 0;
        const data = read(lengths, longer, isLearned);
        const texts = await idsOf(data);
        fc.pre(texts.length > 0);
        fc.pre(longer === 'split' || texts.some((ids) => ids.slice(1, seq).some(isLearned)));
        const dataset = await documentDataset({ train: data, validation: NONE }, { ...OPTIONS, seq }, pack);
        const found: number[] = [];
        const targets = new Map<number, number>();
        for (const row of (await epochOf(dataset, 2)) as PackedBatch[]) {
          expect(pack).toBe(row.documents !== undefined);
          for (let t = 0; t < seq; t++) {
            const id = row.ids[t] ?? 0;
            if (pack) {
              const begins = t === 0 || row.documents[t] !== row.documents[t - 1];
              expect(row.positions[t]).toBe(begins ? 0 : (row.positions[t - 1] ?? 0) + 1);
              // Side by side in a row is side by side in the document.
              if (!begins && id > 0) expect(row.ids[t - 1]).toBe(id - 1);
            }
            if (id === 0) {
              expect(row.targets[t]).toBe(IGNORED);
              continue;
            }
            found.push(id);
            if (row.targets[t] !== IGNORED) targets.set(id, row.targets[t] ?? 0);
          }
        }
        const kept =
          longer === 'split'
            ? texts
            : texts.map((ids) => ids.slice(0, seq)).filter((ids) => ids.slice(1).some(isLearned));
        expect(found.toSorted((a, b) => a - b)).toEqual(kept.flat());
        const wanted = kept.flatMap((ids) => ids.slice(1).flatMap((id) => (isLearned(id) ? [[id - 1, id]] : [])));
        expect([...targets].toSorted(([a], [b]) => a - b)).toEqual(wanted);
      },
    );
    await fc.assert(property, { seed: 5, numRuns: 200 });
  },
);

test('goes on from any place with the same batches, in another order each epoch', async () => {
  const property = fc.asyncProperty(
    fc.integer({ min: 0, max: 30 }),
    fc.integer({ min: 0, max: 99 }),
    fc.boolean(),
    async (before, seed, pack) => {
      const data = read([3, 5, 2, 7, 20, 4, 6, 2, 3], 'cut');
      const make = (seed: number) =>
        documentDataset({ train: data }, { ...OPTIONS, batch: 3, seed, validationShare: 0.2 }, pack);
      const original = await make(seed);
      for (let i = 0; i < before; i++) await original.next();
      const other = await make(seed);
      for (let i = 0; i < 3; i++) await other.next();
      other.restore(JSON.parse(JSON.stringify(original.state())));
      for (let i = 0; i < 7; i++) expect(await other.next()).toEqual(await original.next());
      expect(other.validation).toEqual((await make(seed + 1)).validation);
    },
  );
  await fc.assert(property, { seed: 6, numRuns: 60 });
  const dataset = await documentDataset(
    { train: read(Array(40).fill(8), 'cut'), validation: NONE },
    { ...OPTIONS, batch: 40 },
    true,
  );
  const [one, two] = [await dataset.next(), await dataset.next()] as TokenBatch[];
  expect(one?.ids).not.toEqual(two?.ids);
});

test('documents that fill rows leave little room: a tenth of it at most, for random lengths', async () => {
  const random = new Random(1, 'lengths');
  const data = read(
    Array.from({ length: 500 }, () => 2 + random.below(60)),
    'cut',
  );
  const dataset = await documentDataset({ train: data, validation: NONE }, { ...OPTIONS, seq: 64 }, true);
  const rows = dataset.rowsIn(1);
  expect((rows * 64) / data.documents.tokens).toBeLessThan(1.1);
  expect(dataset.rowsIn(3)).toBeGreaterThanOrEqual(3 * Math.ceil(data.documents.tokens / 64));
});

describe('validation', () => {
  it('holds documents back that are not trained on, the same for every seed', async () => {
    const data = read(Array(20).fill(8), 'cut');
    const parts = async (share: number | undefined, seed: number) => {
      const dataset = await documentDataset(
        { train: data },
        { ...OPTIONS, batch: 1, seed, validationShare: share },
        true,
      );
      const held = dataset.validation as TokenBatch;
      return { held: [...held.ids], trained: (await epochOf(dataset, 1)).flatMap(({ ids }) => [...ids]) };
    };
    for (const [share, rows] of [
      [undefined, 2],
      [0.25, 5],
      [0.001, 1],
    ] as const) {
      const { held, trained } = await parts(share, 1);
      expect(held).toHaveLength(8 * rows);
      expect([...held, ...trained].toSorted((a, b) => a - b)).toEqual((await idsOf(data)).flat());
      expect((await parts(share, 9)).held).toEqual(held);
    }
  });

  it('is of so many rows at most, from the first to the last', async () => {
    const dataset = await documentDataset(
      { train: NONE, validation: read(Array(10).fill(8), 'cut') },
      { ...OPTIONS, evalWindows: 4 },
      true,
    );
    const { ids, batch } = dataset.validation as TokenBatch;
    expect([batch, ids.length]).toEqual([4, 32]);
    expect(new Set(ids).size).toBe(32);
  });

  it('a sample begins with what is in front of an answer', async () => {
    const data = read([6, 6], 'cut', (id) => id % 6 > 3);
    const dataset = await documentDataset({ train: NONE, validation: data }, OPTIONS, true);
    expect([...(dataset.prompt ?? [])]).toEqual([1, 2, 3]);
  });
});

describe('says and refuses', () => {
  it('what was cut, in one line with counts', async () => {
    const data = read([3, 20, 1, 9, 4], 'cut');
    const [note] = (await documentDataset({ train: data, validation: NONE }, OPTIONS, true)).notes;
    expect(note).toBe(
      '4 records (text) in 1 file, 36 tokens; 2 longer than 8 tokens, cut off behind them (13 tokens); 1 left out, with nothing to learn',
    );
    const [split] = (await documentDataset({ train: read([3, 20], 'split'), validation: NONE }, OPTIONS, true)).notes;
    expect(split).toBe('2 records (text) in 1 file, 23 tokens; 1 longer than 8 tokens, split');
  });

  it('with rows of as many tokens as a refusal asks for there is something to learn', async () => {
    const train = read([20, 20], 'cut', (id) => id % 20 > 10);
    const options = { ...OPTIONS, seq: 11 };
    expect((await documentDataset({ train, validation: train }, options, true)).rowsOf(0)).toBe(2);
    await expect(documentDataset({ train, validation: train }, { ...options, seq: 10 }, true)).rejects.toThrow(
      'the 10 tokens of a row, the first of them at token 11;',
    );
  });

  it.each<[string, () => Promise<unknown>, string]>([
    ['one document alone', () => documentDataset({ train: NONE }, OPTIONS, true), 'the data is one document'],
    [
      'answers that begin behind the end of a row',
      () => documentDataset({ train: read([20, 20], 'cut', (id) => id % 20 > 10), validation: NONE }, OPTIONS, true),
      'the records to train on: each answer begins behind the 8 tokens of a row, the first of them at token 11; give a --context of 11 at least, or shorten',
    ],
    [
      'a place behind the end of an epoch',
      async () => (await documentDataset({ train: NONE, validation: NONE }, OPTIONS, true)).restore([0, 1]),
      'the place in the data is row 1 of epoch 0; an epoch has 1 rows',
    ],
    [
      'a place that is none',
      async () => (await documentDataset({ train: NONE, validation: NONE }, OPTIONS, true)).restore([1, 2, 3, 4]),
      'is damaged',
    ],
    [
      'half a row',
      async () => (await documentDataset({ train: NONE, validation: NONE }, OPTIONS, true)).restore([0, 0.5]),
      'is damaged',
    ],
  ])('%s', async (_, work, wanted) => {
    await expect(work()).rejects.toThrow(HoldfastError);
    await expect(work()).rejects.toThrow(wanted);
  });
});

test('a permutation has every number once, and every order its turn', () => {
  const seen = new Map<string, number>();
  const random = new Random(2, 'orders');
  for (let i = 0; i < 6000; i++) {
    const order = permutation(3, random).join('');
    seen.set(order, (seen.get(order) ?? 0) + 1);
  }
  expect([...seen.keys()].toSorted()).toEqual(['012', '021', '102', '120', '201', '210']);
  // Six orders, 1000 each: five standard deviations.
  for (const count of seen.values()) expect(Math.abs(count - 1000)).toBeLessThan(150);
});
