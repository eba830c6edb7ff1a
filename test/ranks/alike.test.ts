// What a run goes on from, which each rank reads by itself: on machines whose folders are not shared, or not yet alike, it
// may be another.

import { expect, it } from 'vitest';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { makeModel } from '../../src/nn/index.ts';
import { beginningFacts, checkAlike, settingsOn } from '../../src/train/run/ranks.ts';
import { begin } from '../../src/train/run/run-beginning.ts';
import { readText } from '../../src/train/run/run-text.ts';
import type { SavedState } from '../../src/train/run/saved-state.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { fileOf, floats } from '../formats/raw-tensors.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { SETTINGS, TEXT } from '../saved-run.ts';
import { ranksInProcess } from './in-process.ts';

const saved = (step: number, seed = 1) => ({ trainer: { step, control: [] }, sampling: seed }) as unknown as SavedState;

/** What rank 0 says of them. `sums`: of the files of each. */
async function found(states: (SavedState | undefined)[], sums: readonly string[] = []): Promise<unknown> {
  const ranks = ranksInProcess(states.length, 0);
  const checks = ranks.map(async (each, rank) => {
    const own = new Map([['model.safetensors', sums[rank] ?? '']]);
    await checkAlike(each, await beginningFacts(testHost, states[rank], undefined, own));
  });
  // The others wait: the first ends them.
  return Promise.race([Promise.all(checks), checks[0]?.then(() => new Promise(() => {}))]);
}

it('is the same on all ranks', async () => {
  await found([saved(4), saved(4)]);
  await found([undefined, undefined, undefined]);
});

it('is named where it is not: another step, another run of as many, other tensors, none', async () => {
  await expect(found([saved(4), saved(2)])).rejects.toThrow(
    /^checkpoint: step 4 \(\w{16}\) on rank 0, step 2 \(\w{16}\) on rank 1; it must be the same on all ranks$/,
  );
  await expect(found([saved(4), saved(4), saved(4, 2)])).rejects.toThrow(
    /^checkpoint: step 4 \(\w{16}\) on rank 0, step 4 \(\w{16}\) on rank 2;/,
  );
  await expect(found([saved(4), undefined])).rejects.toThrow(/step 4 \(\w{16}\) on rank 0, none on rank 1;/);
  await expect(found([saved(4), saved(4)], ['0a', '0b'])).rejects.toThrow(/step 4 \(\w{16}\) on rank 0, step 4 \(/);
});

/** Beginnings of a run on two ranks, of weights of which one value is that of `values`, and the trainers that were made for it. */
async function begun(...values: readonly number[]) {
  chooseVariants(1);
  const device = await testDevice();
  const { parameters } = makeModel(SETTINGS.config);
  const trainers: Trainer[] = [];
  const all = ranksInProcess(values.length, 2).map(async (ranks, rank) => {
    const tensors = parameters.map(({ name, shape }) => {
      const tensor = new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(0.5);
      if (name === 'h.0.ln_1.bias') tensor[1] = at(values, rank);
      return [name, floats(shape, tensor)] as const;
    });
    const config = { model_type: 'gpt2', n_positions: 8, n_embd: 4, n_layer: 1, n_head: 2, vocab_size: 256 };
    const host = memoryHost(
      new MemoryFiles({
        'text.txt': TEXT,
        'm/config.json': JSON.stringify(config),
        'm/model.safetensors': fileOf(new Map(tensors)),
      }),
    );
    const settings = settingsOn({ ...SETTINGS, from: 'm', accumulate: 2 }, ranks.grid);
    const tokenizer = new ByteTokenizer();
    const setting = { host, settings, out: 'run', tokenizer, text: await readText(host, settings, tokenizer) };
    return begin(setting, device, { ranks }, (trainer) => {
      trainers[rank] = trainer;
    });
  });
  for (const one of all) one.catch(() => {});
  return { all, trainers };
}

it('are the weights to start from, too: other ones are named before step 1', async () => {
  const { all, trainers } = await begun(0, 1);
  await expect(Promise.race(all)).rejects.toThrow(
    /^the weights to start from: sums:\w+.* on rank 0, sums:\w+.* on rank 1; it must be the same on all ranks$/,
  );
  for (const trainer of trainers) await trainer.destroy();
});

it('begins with the same weights, and with a cache of keys and values on the rank alone that writes samples', async () => {
  const { all, trainers } = await begun(1, 1);
  await Promise.all(all);
  expect(trainers.map(({ generator }) => generator !== undefined)).toEqual([true, false]);
  for (const trainer of trainers) await trainer.destroy();
});
