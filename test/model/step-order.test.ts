// The order of steps where their numbers come back in another one: Firefox maps a buffer that was asked for later now and
// then first. What a run records of its steps, and what it saves of the optimizer, follows the steps.

import { afterEach, expect, test, vi } from 'vitest';
import { Staging } from '../../src/engine/run/staging.ts';
import { ReadbackRing } from '../../src/gpu/readback.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { deferred } from '../../src/util/deferred.ts';
import { sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';

afterEach(() => vi.restoreAllMocks());

/**
 * The first numbers that are read come late, or not at all: an error comes in their place. Behind those of the second step;
 * where steps are kept below, behind what the first one sends down, without which there is no room for a second.
 */
function holdFirst(behind: 'numbers' | 'values', error?: Error): void {
  const other = deferred<void>();
  let reads = 0;
  const { copy } = ReadbackRing.prototype;
  vi.spyOn(ReadbackRing.prototype, 'copy').mockImplementation(function (this: ReadbackRing, ...given) {
    const read = copy.apply(this, given);
    const which = reads++;
    return async () => {
      const bytes = await read();
      if (which === 1) other.resolve();
      if (which > 0) return bytes;
      await other.promise;
      // What waits for the others has had its turn.
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (error) throw error;
      return bytes;
    };
  });
  if (behind === 'numbers') return;
  const { map } = Staging.prototype;
  vi.spyOn(Staging.prototype, 'map').mockImplementation(async function (this: Staging, ...given) {
    const found = await map.apply(this, given);
    if (reads > 0) other.resolve();
    return found;
  });
}

async function open(memory: { gpu?: number }) {
  chooseVariants(5);
  const reference = await loadCase(testHost, 'test/fixtures/reference/gpt2-tiny');
  const { model, batch, seq, accumulate, schedule, optimizer, weights, batches } = reference;
  const options = { batch, seq, accumulate, schedule, optimizer, memory };
  const trainer = await Trainer.create(await testDevice(), model, options);
  await trainer.setWeights(sourceOf(weights));
  return { trainer, batches: leading(2, batches) };
}

test.each([
  ['resident', {}, 'numbers'],
  ['with every step kept below', { gpu: 1e7 }, 'values'],
] as const)('steps are done in their order, %s', async (_, memory, behind) => {
  const alone = await open(memory);
  const expected = [];
  for (const micros of alone.batches) expected.push(await alone.trainer.start(micros));
  const { control } = await alone.trainer.state();
  await alone.trainer.destroy();

  const { trainer, batches } = await open(memory);
  holdFirst(behind);
  const done: number[] = [];
  const metrics = await Promise.all(
    batches.map(async (micros) => {
      const found = await trainer.start(micros);
      done.push(found.step);
      return found;
    }),
  );
  expect(done).toEqual([0, 1]);
  expect(metrics).toEqual(expected);
  expect(await trainer.state()).toEqual({ step: 2, control });
  await trainer.destroy();
});

test('a step behind one that fails fails too, though its numbers were there', async () => {
  const { trainer, batches } = await open({});
  holdFirst('numbers', new Error('the numbers are gone'));
  const ends = await Promise.allSettled(batches.map((micros) => trainer.start(micros)));
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await trainer.destroy();
});
