// The likeliest classes of prompts, by a classifier of texts: `holdfast generate` of a model that writes none.

import { likeliestClasses } from '../data/classes.ts';
import { tokenizerOf } from '../data/open-tokenizer.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import type { MemoryOptions } from '../engine/run/arrangement.ts';
import { shapeOf } from '../formats/families/index.ts';
import type { Labels } from '../formats/families/labels.ts';
import type { Device } from '../gpu/device.ts';
import type { Host } from '../runtime/host.ts';
import { Classifier } from '../train/inference/classifier.ts';
import { at } from '../util/at.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { type NamedModel, onDevice } from './opened-model.ts';
import { dashed } from './train/flags.ts';

/** Errors: HoldfastError for the first of these flags that is given: a classifier has no use for it. */
export function refuseForClassifier<F extends string>(flags: readonly F[], given: (name: F) => boolean): void {
  const flag = flags.find(given);
  if (flag !== undefined)
    throw new HoldfastError(
      `--${dashed(flag)}: is of a model that writes, and this one tells classes apart; leave the flag out`,
    );
}

/** Texts, and how they are told. */
interface Asked {
  readonly labels: Labels;
  /** One each, or the two of a pair. */
  readonly texts: readonly (readonly string[])[];
  readonly memory: MemoryOptions;
  /** What computes. */
  readonly adapter: string;
  readonly json: boolean | undefined;
}

/** A classifier on a device, and what is to be said of the texts. */
interface Telling {
  readonly device: Device;
  readonly opened: { close(): Promise<void> };
  write(): Promise<void>;
}

/** Errors: HoldfastError for a classifier of images, for no text, and for several adapters. `dir`: its name. */
export async function openTelling(
  host: Host,
  dir: string,
  { model, weights, tokenizer: files, named }: NamedModel,
  { labels, texts, memory, adapter: chosen, json }: Asked,
): Promise<Telling> {
  if (shapeOf(model.config).vocabulary === 0)
    throw new HoldfastError(
      `${dir}: tells images apart, and reads no text; holdfast eval says how well, --data with a folder for each class`,
    );
  if (texts.length === 0)
    throw new HoldfastError(`${dir}: tells texts apart; give one, with --prompt, or some, with --prompts`);
  if (named.length > 1) throw new HoldfastError('--lora: classes are told with one adapter; name one of them');
  const tokenizer = await tokenizerOf(undefined, files, model.shape.vocabulary, dir);
  const [adapter] = named;
  return onDevice(host, chosen, async (device) => {
    const options = { choices: await loadChoices(host, device), memory, ...(adapter !== undefined && { adapter }) };
    const opened = await Classifier.open(device, model, weights, options);
    const tell = async ([text = '', pair]: readonly string[]) => {
      const probabilities = await opened.tellText(tokenizer, text, pair);
      if (!json) {
        const asked = pair === undefined ? shortened(text) : `${shortened(text)} | ${shortened(pair)}`;
        const of = texts.length > 1 ? `: ${asked}` : '';
        return `${likeliestClasses(labels, probabilities)}${of}\n`;
      }
      const names = Object.entries(labels.id2label);
      const byName = Object.fromEntries(names.map(([id, name]) => [name, at(probabilities, Number(id))]));
      const told = labels.id2label[probabilities.indexOf(Math.max(...probabilities))];
      return `${JSON.stringify({ prompt: text, ...(pair !== undefined && { pair }), class: told, probabilities: byName })}\n`;
    };
    const write = async () => {
      for (const text of texts) host.terminal.write(await tell(text));
    };
    return { opened, write };
  });
}
