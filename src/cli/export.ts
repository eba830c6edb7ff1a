// `holdfast export DIR --out DIR`: the model of a run, a checkpoint or a folder, written for other programs. No device is
// opened.

import { Command, Option } from 'commander';
import { checkWeights, withWeights } from '../formats/checkpoint.ts';
import { exportModel, MAX_SHARD_BYTES, SAVED_DTYPES, type SavedDtype } from '../formats/export.ts';
import { makeModel } from '../nn/index.ts';
import type { Host } from '../runtime/host.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { localModel, MODEL_SOURCES } from './model-source.ts';
import { checked } from './options.ts';

interface Flags {
  out: string;
  dtype: SavedDtype;
  maxShardSize: number;
}

export function exportCommand(host: Host): Command {
  return new Command('export')
    .description('write a trained model as a folder that Hugging Face’s libraries load')
    .argument('<dir>', `a run, a checkpoint, or a model: ${MODEL_SOURCES}`)
    .requiredOption('--out <dir>', 'folder to write, which must not be there yet')
    .addOption(
      new Option('--dtype <type>', 'of the weights, rounded to nearest even')
        .choices(Object.keys(SAVED_DTYPES))
        .default('f32'),
    )
    .addOption(
      new Option('--max-shard-size <bytes>', 'the most weights in one file, as 500MB')
        .argParser(checked(shardSize))
        .default(MAX_SHARD_BYTES, '5GB, as Hugging Face’s libraries have it'),
    )
    .action(async (dir: string, { out, dtype, maxShardSize }: Flags) => {
      const from = await localModel(host, dir);
      const { tensors, bytes, shards } = await withWeights(host.files, from, async (weights, found) => {
        checkWeights(weights.shapes, makeModel(weights.config).parameters, dir);
        return exportModel(host.files, out, { weights, ...found }, { dtype, maxShardBytes: maxShardSize });
      });
      const files = shards.length === 1 ? 'one file' : `${shards.length} files`;
      host.terminal.write(`${out}: ${tensors} tensors, ${formatBytes(bytes)} as ${dtype}, in ${files}\n`);
    });
}

function shardSize(text: string): number {
  const bytes = parseBytes(text);
  if (bytes > 0) return bytes;
  throw new HoldfastError('it must be more than 0 bytes');
}
