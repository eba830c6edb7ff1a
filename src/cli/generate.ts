// `holdfast generate DIR`: text from a checkpoint, a run, a Hugging Face folder, or a zip of one, as it is
// written.

import { Command } from 'commander';
import { promptIds, tokenizerOf } from '../data/tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { openDevice } from '../gpu/device.ts';
import { DEFAULT_ADAPTER, NO_ADAPTER } from '../nn/lora.ts';
import type { Host } from '../runtime/host.ts';
import { Generator } from '../train/generator.ts';
import { withModel } from '../train/open-model.ts';
import { checkSampling, type SamplingOptions } from '../train/sampling.ts';
import { writeText } from '../train/writing.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { localModel, MODEL_SOURCES } from './model-source.ts';
import { adapterOption, number, whole } from './options.ts';

interface Flags {
  prompt: string;
  tokens: number;
  stop?: string[];
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
    .argument('<dir>', `a run, a checkpoint, a model, or an adapter: ${MODEL_SOURCES}`)
    .option('--prompt <text>', 'what the text begins with; empty: the token that begins a text alone', '\n')
    .option('--tokens <n>', 'tokens to write; the model may end before', whole(1), 256)
    .option('--stop <text...>', 'end before the first of these')
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
      if (flags.stop?.includes('')) throw new HoldfastError('--stop is empty; give at least one character');
      const from = await localModel(host, dir);
      const base = flags.base === undefined ? undefined : await localModel(host, flags.base);
      const lora =
        flags.lora === undefined || flags.lora === NO_ADAPTER ? undefined : await localModel(host, flags.lora);
      const adapters = lora === undefined ? {} : { [DEFAULT_ADAPTER]: lora };
      const without = flags.lora === NO_ADAPTER ? { adapter: NO_ADAPTER } : {};
      // The run may go on meanwhile: its checkpoint stays readable until the weights are on the device.
      const { device, generator, tokenizer } = await withModel(
        host.files,
        from,
        { base, adapters },
        async ({ model, weights, tokenizer: files }) => {
          const tokenizer = await tokenizerOf(undefined, files, model.shape.vocabulary, dir);
          if (promptIds(tokenizer, flags.prompt).length === 0)
            throw new HoldfastError(
              '--prompt is empty, and no token begins a text of this model; give at least one character',
            );
          const device = await openDevice(host, { adapter: flags.adapter });
          const choices = await loadChoices(host, device);
          return { device, tokenizer, generator: await Generator.open(device, model, weights, { choices }) };
        },
      );
      const random = new Random(flags.seed, 'samples');
      host.terminal.write(flags.prompt);
      const options = { ...sampling, tokens: flags.tokens, stop: flags.stop ?? [], ...without };
      for await (const piece of writeText(generator, tokenizer, flags.prompt, options, random))
        host.terminal.write(piece);
      host.terminal.write('\n');
      device.close();
    });
}
