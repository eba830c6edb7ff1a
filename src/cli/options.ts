// Options that several commands share: numbers with their ranges, the adapter, and files to write.

import { InvalidArgumentError, Option } from 'commander';
import { RECOVERIES } from '../engine/compile/recovery.ts';
import { ACTIVATION_MODES } from '../graph/activations.ts';
import { ACCUMULATE_ORDERS } from '../graph/layer-major.ts';
import { ACTIVATION_DTYPES } from '../graph/narrow-activations.ts';
import { OPTIMIZER_DEVICE_CHOICES, OPTIMIZER_DEVICES } from '../graph/operators/optimizer.ts';
import { MOMENT_DTYPES, TRAINING_DTYPES } from '../memory/layout/kinds.ts';
import type { Files } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { describeRange, inRange, type Range, realNumber, wholeNumber } from '../util/range.ts';

/** A parser for numbers of a range. */
export function within(range: Range): (text: string) => number {
  return (text) => {
    const value = Number(text);
    const written = range.whole ? /^\d+$/.test(text) : text.trim() !== '';
    if (!written || !inRange(range, value)) throw new InvalidArgumentError(`It must be ${describeRange(range)}.`);
    return value;
  };
}

/** A parser for whole numbers from `least` on. */
export const wholeNumberFrom = (least: number): ((text: string) => number) => within(wholeNumber(least));

/** A parser for finite numbers from `least` on. */
export const numberFrom = (least: number): ((text: string) => number) => within(realNumber(least));

/** Turns an error of a library parser into one of the option's. */
export function checked<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError(messageOf(error));
    }
  };
}

export const adapterOption = (): Option =>
  new Option('--adapter <name>', 'auto, software (the embedded one), or a part of an adapter’s name').default('auto');

/** What of the activations is kept for the backward pass. */
export const activationsOption = (argument: '<what>' | '[what]' = '<what>'): Option =>
  new Option(
    `--activations ${argument}`,
    'what becomes of a block’s activations before its backward pass: they stay (keep), what is quickly made again is (light), all but the residual stream and outputs of attention are made again (attention), all but the residual stream (stream), all but a block’s input (recompute), all but the input of every √n-th of n blocks (sqrt), all from values that were moved below the GPU (spill), all that is not quickly made again is moved (offload), all are moved (offload-all), as recompute or as spill, and some rows of a block at a time (slice-recompute, slice), or as the budget allows',
  )
    .choices([...ACTIVATION_MODES, 'auto'])
    .default('auto');

/** How micro-batches go through the model. */
export const accumulateOrderOption = (): Option =>
  new Option(
    '--accumulate-order <how>',
    'micro-batches of a step one after the other (batch), or all of them a layer at a time, with parameters moved once a step (layer), or as the budget allows',
  )
    .choices([...ACCUMULATE_ORDERS, 'auto'])
    .default('auto');
/** Where AdamW runs. */
export const optimizerDeviceOption = (): Option =>
  new Option(
    '--optimizer-device <where>',
    'AdamW on the gpu, or on the cpu: then its moments stay in host memory and on disk, and need no GPU memory; auto: within a budget some tensors on each, as a step takes the least time',
  )
    .choices([...OPTIMIZER_DEVICE_CHOICES])
    .default('gpu');
/** `--optimizer-device` of a command that has no budget: without `auto`. */
export const eitherDeviceOption = (): Option =>
  new Option('--optimizer-device <where>', 'AdamW on the gpu, or on the cpu')
    .choices([...OPTIMIZER_DEVICES])
    .default('gpu');
/** What trains is computed with in. */
export const dtypeOption = (): Option =>
  new Option(
    '--dtype <type>',
    'what kernels read of the parameters that train: f32, or their upper halves, rounded (bf16), or a copy in f16, with gradients scaled before they are rounded; the optimizer and what is saved have f32',
  )
    .choices(TRAINING_DTYPES)
    .default('f32');

/** What moments are kept as. */
export const optimizerStateOption = (): Option =>
  new Option(
    '--optimizer-state <type>',
    'what AdamW keeps its moments as, saved ones too: f32, or rounded up or down by chance, from the seed (bf16), half as large',
  )
    .choices(MOMENT_DTYPES)
    .default('f32');

/** What activations are kept as. */
export const activationDtypeOption = (): Option =>
  new Option(
    '--activation-dtype <type>',
    'what activations are kept as for the backward pass, and read as from where they are made: f32, or rounded (bf16, f16), half as large; what is past 65504 is infinite in f16, and its step skipped',
  )
    .choices(ACTIVATION_DTYPES)
    .default('f32');

/** How much a lost device may cost. */
export const recoveryOption = (): Option =>
  new Option(
    '--recovery <how>',
    'with a budget: a lost GPU device costs a step, or goes back to the checkpoint; auto: a step, where keeping it takes at most 5 % longer',
  )
    .choices(RECOVERIES)
    .default('auto');

/** A parser for names of what is written. */
export function pathName(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must name a place; this one is empty.');
  return text;
}

/** A name as one argument of a command to copy, for shells of POSIX; one that begins as a flag does, as a path. */
export function argument(name: string): string {
  if (name.startsWith('-')) return argument(`./${name}`);
  return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/**
 * Whether a file can be put there is found out before the work that makes it. `own`: what begins so was written by the same flag, and another one
 * takes its place. Errors: HoldfastError naming it, and for any other file that is there.
 */
export async function checkWritable(files: Files, path: string, own?: string): Promise<void> {
  const { kind, bytes } = (await files.stat(path)) ?? { bytes: 0 };
  if (kind === 'file' && bytes > 0) {
    const head = await files.readRange(path, 0, Math.min(bytes, own?.length ?? 0));
    if (own === undefined || new TextDecoder().decode(head) !== own)
      throw new HoldfastError(`${path}: is there already; name a file that is not, or move that one away`);
  }
  await (await files.writeStream(path)).abort();
}
