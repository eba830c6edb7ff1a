// `holdfast export DIR --out PATH`: the model of a run, a checkpoint or a folder, written for other programs: a folder, or with
// --gguf one file. No device is opened.

import { Command, Option } from 'commander';
import { templateRunner } from '../data/records/template-runner.ts';
import type { FoundFolder, SavedWeights } from '../formats/checkpoint.ts';
import { exportModel, MAX_SHARD_BYTES, SAVED_DTYPES, type SavedDtype } from '../formats/export.ts';
import { exportGGUF } from '../formats/gguf/export.ts';
import { TENSOR_TYPE_NAMES, type TensorType } from '../formats/gguf/tensor-types.ts';
import type { Host } from '../runtime/host.ts';
import { bestCheckpoint } from '../train/run/best-checkpoint.ts';
import { byteTemplateIn, mergedModel, withModel } from '../train/run/open-model.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { counted } from '../util/counted.ts';
import { HoldfastError, oneLine } from '../util/errors.ts';
import { localBase, localModel, MODEL_SOURCES } from './model-source.ts';
import { BEST, bestOf } from './opened-model.ts';
import { checked, pathName } from './options.ts';

interface Flags {
  out: string;
  dtype: SavedDtype;
  maxShardSize: number;
  gguf?: TensorType;
  modelfile?: true;
  merge?: true;
  best?: true;
  base?: string;
  json?: boolean;
}

/** What was written. */
interface Written {
  readonly tensors: number;
  readonly bytes: number;
  /** For a person: how large it is, and what it is in. */
  readonly line: string;
  /** For a program: what of it is not in every export. */
  readonly facts: object;
}

/** Where a model lies, and the chat template that only its run has. */
type Source = FoundFolder & { readonly chatTemplate: string | undefined };

export function exportCommand(host: Host): Command {
  return new Command('export')
    .description('write a trained model as a folder that Hugging Face’s libraries load, or as a GGUF file')
    .argument('<dir>', `a run, a checkpoint, a model, or with --merge an adapter: ${MODEL_SOURCES}`)
    .requiredOption('--out <path>', 'folder or file to write, which must not be there yet', pathName)
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
    .addOption(
      new Option('--gguf <type>', 'one file for llama.cpp and what is built on it, its matrices of this type')
        .choices(TENSOR_TYPE_NAMES)
        .conflicts(['dtype', 'maxShardSize']),
    )
    .option('--modelfile', 'with --gguf: an Ollama Modelfile beside it')
    .option('--best', BEST)
    .option('--merge', 'of an adapter: its model, with the adapter made a part of the weights')
    .option('--base <dir>', 'with --merge: the model that the adapter belongs to (default: the one that it names)')
    .option('--json', 'one JSON object')
    .action(async (dir: string, flags: Flags) => {
      if (flags.modelfile && !flags.gguf) throw new HoldfastError('--modelfile names a GGUF file; give --gguf, too');
      if (!flags.gguf && /\.gguf$/i.test(flags.out))
        throw new HoldfastError(`--out ${flags.out}: is a folder without --gguf; give that, too, or name a folder`);
      const given = await localModel(host, dir);
      const from = flags.best ? await bestOf(host, dir, given) : given;
      const base = await localBase(host, { name: dir, path: from, base: flags.base });
      const chatTemplate = await byteTemplateIn(host.files, from);
      const { tensors, bytes, line, facts, path } = await withModel(host.files, from, { base }, async (opened) => {
        const { model, found, path } = opened;
        if (model.adapters && !flags.merge)
          throw new HoldfastError(
            `${dir}: holds an adapter, which is in PEFT’s files already; add --merge for its model`,
          );
        if (!model.adapters && flags.merge)
          throw new HoldfastError(`${dir}: has no adapter to merge; leave --merge out`);
        const weights = await mergedModel(opened);
        const source = { ...found, chatTemplate };
        const written = flags.gguf
          ? await writeGGUF(host, dir, weights, source, flags, flags.gguf)
          : await writeFolder(host, weights, source, flags);
        return { ...written, path };
      });
      const checkpoint = path !== dir && isCheckpoint(path) ? path : undefined;
      const said = flags.json
        ? JSON.stringify({ out: flags.out, tensors, bytes, ...facts, checkpoint })
        : `${flags.out}: ${counted(tensors, 'tensor')}${checkpoint === undefined ? '' : ` of ${checkpoint}`}, ${line}`;
      host.terminal.write(`${said}\n`);
      // It is a hint alone: the run may go on meanwhile, or its state be damaged.
      const best = flags.best ? undefined : await bestCheckpoint(host.files, from).catch(() => undefined);
      if (best !== undefined && best !== path && !flags.json)
        host.terminal.write(`the best validation is that of ${best}: --best exports it\n`);
    });
}

const isCheckpoint = (path: string): boolean => /(?:^|[/\\])checkpoint-\d+(?:\.replaced)?$/.test(path);

/** Says whether there was an interrupt since. */
function interruptedOn(host: Host): () => boolean {
  let interrupted = false;
  host.onInterrupt(() => {
    interrupted = true;
  });
  return () => interrupted;
}

async function writeFolder(host: Host, weights: SavedWeights, source: Source, flags: Flags): Promise<Written> {
  const { dtype, maxShardSize: maxShardBytes } = flags;
  const { tensors, bytes, shards } = await exportModel(
    host.files,
    flags.out,
    { weights, ...source },
    { dtype, maxShardBytes, interrupted: interruptedOn(host) },
  );
  const files = shards.length === 1 ? 'one file' : `${shards.length} files`;
  const line = `${formatBytes(bytes)} as ${dtype}, in ${files}`;
  return { tensors, bytes, line, facts: { dtype, files: shards } };
}

async function writeGGUF(
  host: Host,
  dir: string,
  weights: SavedWeights,
  source: Source,
  flags: Flags,
  type: TensorType,
): Promise<Written> {
  const name = dir.split(/[/\\]/).findLast((part) => part !== '' && part !== '.') ?? dir;
  const model = { name, ...weights, ...source };
  const options = {
    type,
    modelfile: flags.modelfile === true,
    templates: templateRunner,
    interrupted: interruptedOn(host),
  };
  const { tensors, bytes, fallbacks, modelfile, notes } = await exportGGUF(host.files, flags.out, model, options);
  for (const note of notes) host.terminal.warn(`holdfast: ${oneLine(note)}\n`);
  const others = fallbacks === 0 ? '' : ` (${fallbacks} as F16: their rows are no multiples of 32)`;
  const beside = modelfile === undefined ? '' : `, and ${modelfile}`;
  const line = `${formatBytes(bytes)} as ${type}${others}${beside}`;
  return { tensors, bytes, line, facts: { gguf: type, fallbacks, ...(modelfile !== undefined && { modelfile }) } };
}

function shardSize(text: string): number {
  const bytes = parseBytes(text);
  if (bytes > 0) return bytes;
  throw new HoldfastError('it must be more than 0 bytes');
}
