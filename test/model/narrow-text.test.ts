// Sixteen bits on real text: 200 steps on the default corpus, of parameters, moments and activations in every width, have the losses
// of the same steps in f32 within a hundredth, each of them. Both learn the same batches: what one of them is harder than another goes
// into both losses alike, so that nothing needs to be smoothed. In the sample a small model, in `npm run test:all` one twice as wide and deep.

import { expect, test } from 'vitest';
import { RandomWindows } from '../../src/data/batches.ts';
import { defaultCorpus } from '../../src/data/corpus.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import type { MomentDtype, TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, type Model, momentsIn } from '../../src/nn/model.ts';
import { type StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost, VERBOSE } from '../host.ts';

const STEPS = 200;
/** Parameters, moments and activations: the parameters alone, and all of them. */
const FEW: readonly (readonly [TrainingDtype, MomentDtype, ActivationDtype])[] = [
  ['bf16', 'f32', 'f32'],
  ['f16', 'f32', 'f32'],
  ['bf16', 'bf16', 'bf16'],
  ['f16', 'bf16', 'bf16'],
  ['f16', 'bf16', 'f16'],
];
const WIDTHS: typeof FEW = [
  ...FEW,
  ['bf16', 'bf16', 'f32'],
  ['f16', 'bf16', 'f32'],
  ['f32', 'f32', 'bf16'],
  ['bf16', 'f32', 'bf16'],
  ['f16', 'f32', 'bf16'],
  ['f32', 'f32', 'f16'],
  ['f16', 'f32', 'f16'],
];
const { layers, width, seq } = EVERY_CASE ? { layers: 2, width: 64, seq: 64 } : { layers: 1, width: 32, seq: 32 };
const BATCH = 4;

test.runIf(THOROUGH)('losses on real text are those of f32 within a hundredth', async () => {
  chooseVariants(1);
  const device = await testDevice();
  const { bytes } = await defaultCorpus(testHost);
  const tokens = new ByteTokenizer().encode(new TextDecoder().decode(bytes));
  const sizes = { vocab_size: 256, n_positions: seq, n_embd: width, n_layer: layers, n_head: 4 };
  const wide = makeModel(parseConfig({ model_type: 'gpt2', ...sizes }, 'test'));
  const schedule = { decay: 'cosine', peak: 1e-3, min: 1e-4, warmup: 20, steps: STEPS } as const;
  const lossesOf = async (model: Model, activationDtype: ActivationDtype): Promise<number[]> => {
    const trainer = await Trainer.create(device, model, { batch: BATCH, seq, schedule, activationDtype });
    try {
      await trainer.setWeights(initialWeights(model, 1));
      const batches = new RandomWindows(tokens, BATCH, seq, 1);
      const steps: Promise<StepMetrics>[] = [];
      for (let i = 0; i < STEPS; i++) {
        steps.push(trainer.start([batches.next()]));
        await steps[i - 1];
      }
      return (await Promise.all(steps)).map(({ loss }) => loss);
    } finally {
      await trainer.destroy();
    }
  };
  const wanted = await lossesOf(wide, 'f32');
  const lastOf = wanted.slice(-10).reduce((sum, loss) => sum + loss / 10, 0);
  expect(lastOf, 'it learns').toBeLessThan(0.65 * at(wanted, 0));
  for (const [dtype, moments, activations] of EVERY_CASE ? WIDTHS : FEW) {
    const widths = `${dtype}, moments in ${moments}, activations in ${activations}`;
    const found = await lossesOf(momentsIn(computedIn(wide, dtype), moments), activations);
    const off = found.map((loss, i) => Math.abs(loss / at(wanted, i) - 1));
    const most = Math.max(...off);
    if (VERBOSE) console.log(`${widths}: ${most.toExponential(2)} at step ${off.indexOf(most)}`);
    expect(found, widths).not.toEqual(wanted);
    expect(most, `${widths}, step ${off.indexOf(most)}`).toBeLessThanOrEqual(0.01);
  }
});
