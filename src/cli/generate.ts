// `holdfast generate DIR`: text from a checkpoint, a run, a Hugging Face folder, or a zip of one, as it is
// written.

import { Command } from 'commander';
import { tokenizerOf } from '../data/tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { shapeOf } from '../formats/families/index.ts';
import { openDevice } from '../gpu/device.ts';
import { DEFAULT_ADAPTER, NO_ADAPTER } from '../nn/lora.ts';
import type { Host } from '../runtime/host.ts';
import { Generator } from '../train/generator.ts';
import { withModel } from '../train/open-model.ts';
import { checkSampling, type SamplingOptions } from '../train/sampling.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { adapterOption, number, whole } from './options.ts';

interface Flags {
  prompt: string;
  tokens: number;
  temperature: number;
  topK?: number;
  topP: number;
  seed: number;
  base?: string;
  lora?: string;
  adapter: string;
}

export function generateCommand(host: Host): Command {
  return new Command('generate')
    .description('write text with a trained model')
    .argument(
      '<dir>',
      'a run, a checkpoint, a folder with config.json and model.safetensors, or a zip of one; or an adapter',
    )
    .option('--prompt <text>', 'what the text begins with', '\n')
    .option('--tokens <n>', 'tokens to write', whole(1), 256)
    .option('--temperature <t>', 'below 1 is safer, above 1 is wilder, 0 always takes the likeliest', number(0), 0.8)
    .option('--top-k <n>', 'only the n likeliest tokens', whole(1))
    .option('--top-p <p>', 'only the likeliest tokens that together reach this probability', number(0), 1)
    .option('--seed <n>', 'the same seed writes the same text', whole(0), 1)
    .option('--lora <dir>', 'with the adapter in this folder; none: without the one that DIR has')
    .option('--base <dir>', 'the model that an adapter belongs to (default: the one that it names)')
    .addOption(adapterOption())
    .action(async (dir: string, flags: Flags) => {
      const sampling: SamplingOptions = {
        temperature: flags.temperature,
        topP: flags.topP,
        ...(flags.topK === undefined ? {} : { topK: flags.topK }),
      };
      checkSampling(sampling);
      if (flags.prompt === '') throw new HoldfastError('--prompt is empty; give at least one character');
      const { base, lora } = flags;
      const adapters = lora === undefined || lora === NO_ADAPTER ? {} : { [DEFAULT_ADAPTER]: lora };
      const without = lora === NO_ADAPTER ? { adapter: NO_ADAPTER } : {};
      // The run may go on meanwhile: its checkpoint stays readable until the weights are on the device.
      const { device, generator, tokenizer } = await withModel(
        host.files,
        dir,
        { base, adapters, check: (config) => void tokenizerOf(undefined, shapeOf(config).vocabulary, dir) },
        async ({ model, weights }) => {
          const tokenizer = tokenizerOf(undefined, model.shape.vocabulary, dir);
          const device = await openDevice(host, { adapter: flags.adapter });
          const choices = await loadChoices(host, device);
          return { device, tokenizer, generator: await Generator.open(device, model, weights, { choices }) };
        },
      );
      const decoder = tokenizer.stream();
      const random = new Random(flags.seed, 'samples');
      host.terminal.write(flags.prompt);
      const prompt = tokenizer.encode(flags.prompt);
      for await (const id of generator.generate(prompt, flags.tokens, sampling, random, without)) {
        host.terminal.write(decoder.push(id));
      }
      host.terminal.write(`${decoder.end()}\n`);
      device.close();
    });
}
