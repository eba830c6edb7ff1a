// The weights that a run begins with: drawn, from a folder, or a frozen base with an adapter, whether that is drawn, loaded
// or goes on. And whether what a checkpoint or a folder holds is what the model of a run trains.

import type { AdapterInfo } from '../../formats/adapter.ts';
import { ADAPTER_CONFIG } from '../../formats/checkpoint/folder.ts';
import {
  checkWeights,
  type DescribedAdapter,
  finiteWeights,
  holdWeights,
  type LoadedCheckpoint,
  loadAdapter,
  type SavedWeights,
  type Shapes,
} from '../../formats/checkpoint.ts';
import { familyOf } from '../../formats/families/index.ts';
import { labelsOf, unnamedLabels } from '../../formats/families/labels.ts';
import { makeModel } from '../../nn/index.ts';
import { initialWeights } from '../../nn/initialise.ts';
import { DEFAULT_ADAPTER } from '../../nn/lora.ts';
import { type Model, withStored } from '../../nn/model.ts';
import { initialCopies } from '../../nn/modules-to-save.ts';
import type { Host } from '../../runtime/host.ts';
import { assert, finishing, HoldfastError, shortened } from '../../util/errors.ts';
import { joined, restricted, type TensorSource } from '../../values/tensor-source.ts';
import { baseStorage, roundedWeights } from './base-dtype.ts';
import { SummedSource } from './base-identity.ts';
import type { LoraSettings, RunSettings } from './run-settings.ts';

/** The weights of a run at its beginning, or of an adapter's base with the adapter as it is now. */
export interface StartWeights {
  /** What they are for: with what of it is frozen stored as it is to lie in memory. */
  readonly model: Model;
  readonly weights: TensorSource;
  /** The identity of the base (base-identity.ts), where a low-rank update of it trains; best asked for when the weights were read. */
  base(): Promise<string | undefined>;
  /** Closes the files that they are read from, which stay open until then, also where a run removes them: nothing may be read after. */
  release(): Promise<void>;
}

/**
 * The weights before the first step; those of a low-rank update are `adapter`, where it is given. Errors: HoldfastError
 * where `settings.from` has none, or another model's, and as they are read where one is not finite.
 */
export async function startWeights(
  host: Host,
  { config, from, seed, lora, newHead }: RunSettings,
  model: Model,
  adapter?: TensorSource,
): Promise<StartWeights> {
  if (from === undefined)
    return { model, weights: initialWeights(model, seed), base: async () => undefined, release: async () => {} };
  const whole = makeModel(config);
  const held = await holdWeights(host.files, from, newHead ? whole.config : undefined);
  const release = () => held.release();
  try {
    const weights = newHead ? withNewHead(held, from, whole, seed) : withOwnHead(held, from, whole);
    if (!lora) return { model, weights, base: async () => undefined, release };
    const summed = new SummedSource(weights, host.files);
    const low = adapter ?? (await startAdapter(host, lora, seed, model, weights));
    const storedAs = baseStorage(model, held.stored ?? new Map(), lora.baseDtype);
    // What is as in its files needs no rounding.
    const base = lora.baseDtype === undefined ? summed : roundedWeights(summed, storedAs, from);
    return { model: withStored(model, storedAs), weights: joined(base, low), base: () => summed.sum(), release };
  } catch (error) {
    return finishing(() => Promise.reject(error), release);
  }
}

/** All weights of a model. */
function withOwnHead(found: SavedWeights, from: string, { parameters }: Model): TensorSource {
  checkWeights(found.shapes, parameters, from);
  return finiteWeights(found, from);
}

/** The weights of a model with another head, and of this one's head as they are drawn. Errors: as `startWeights`. */
function withNewHead({ shapes, weights }: SavedWeights, from: string, model: Model, seed: number): TensorSource {
  const isDrawn = outsideBody(model, shapes, from);
  const drawn = restricted(initialWeights(model, seed), isDrawn);
  const isKept = (name: string) => !isDrawn(name);
  const kept = new Map([...shapes].filter(([name]) => isKept(name)));
  return joined(finiteWeights({ shapes: kept, weights: restricted(weights, isKept) }, from), drawn);
}

/**
 * Which parameters of a classifier are not to be had from the weights of another head. Errors: HoldfastError where another
 * one is missing, or not of its shape.
 */
export function outsideBody({ config, parameters }: Model, shapes: Shapes, from: string): (name: string) => boolean {
  const { classifier } = familyOf(config);
  assert(classifier, 'a new head is of a classifier');
  const { head, lacking } = classifier;
  const isOutside = (name: string) =>
    name.startsWith(`${head}.`) || (lacking !== undefined && name.startsWith(`${lacking}.`) && !shapes.has(name));
  const kept = new Map([...shapes].filter(([name]) => !isOutside(name)));
  checkWeights(
    kept,
    parameters.filter(({ name }) => !isOutside(name)),
    from,
  );
  return isOutside;
}

/**
 * The model that weights are of: of a bare encoder, with a head that they lack. Errors: HoldfastError where they are not all
 * there, or of another shape.
 */
export function modelOfWeights({ config, shapes }: Pick<SavedWeights, 'config' | 'shapes'>, from: string): Model {
  const { classifier } = familyOf(config);
  if (!classifier?.isBare?.(config)) {
    const model = makeModel(config);
    checkWeights(shapes, model.parameters, from);
    return model;
  }
  const model = makeModel(classifier.tells(config, labelsOf(unnamedLabels(2))));
  outsideBody(model, shapes, from);
  return model;
}

/** Errors: HoldfastError where the folder has no adapter, or one of another rank, scale or of other linears. */
async function startAdapter(
  { files }: Host,
  lora: LoraSettings,
  seed: number,
  model: Model,
  base: TensorSource,
): Promise<TensorSource> {
  if (lora.adapter === undefined) {
    const copies = initialCopies(base, model.adapters?.flatMap(({ saved }) => saved) ?? []);
    return joined(copies, restricted(initialWeights(model, seed), isTrainedIn(model)));
  }
  const found = await loadAdapter(files, lora.adapter, model.config);
  checkAdapterFits(found, model);
  return finiteWeights(found, lora.adapter);
}

/** Errors: HoldfastError where what a checkpoint holds is not what a run of this model trains. */
export function checkTrained({ shapes, adapter, path }: LoadedCheckpoint, model: Model): void {
  if (adapter) checkAdapterFits({ ...adapter, shapes, path }, model);
  else checkWeights(shapes, model.parameters, path);
}

/** Errors: HoldfastError where an adapter is not the model's default one: other tensors, shapes or another scale. */
function checkAdapterFits({ options, shapes, path }: DescribedAdapter, model: Model): void {
  const [own] = (model.adapters ?? []).filter(({ name }) => name === DEFAULT_ADAPTER);
  if (!own) throw new HoldfastError(`${path}: holds an adapter, and the settings of the run have none`);
  for (const name of ['rank', 'alpha', 'rslora'] as const) {
    if (options[name] === own.options[name]) continue;
    throw new HoldfastError(
      `${path}: its ${name} is ${options[name]}, and ${own.options[name]} was asked for; leave it out, or give the same`,
    );
  }
  checkAdapterTensors(shapes, own, path);
}

/** Errors: HoldfastError where the tensors of an adapter are not those that its configuration asks for in the model. */
export function checkAdapterTensors(shapes: Shapes, { options, linears, saved }: AdapterInfo, path: string): void {
  const wanted = [
    ...linears.flatMap(({ a, b, inputs, outputs }): [string, readonly number[]][] => [
      [a, [options.rank, inputs]],
      [b, [outputs, options.rank]],
    ]),
    ...saved.map(({ name, shape }): [string, readonly number[]] => [name, shape]),
  ];
  for (const [name, shape] of wanted) {
    const found = shapes.get(name);
    if (!found) throw new HoldfastError(`${path}: there is no tensor ${name}, of a target in its ${ADAPTER_CONFIG}`);
    if (found.join() === shape.join()) continue;
    throw new HoldfastError(
      `${path}: ${name} has shape [${found.join(', ')}], its ${ADAPTER_CONFIG} and the model ask for [${shape.join(', ')}]`,
    );
  }
  const known = new Set(wanted.map(([name]) => name));
  const stranger = [...shapes.keys()].find((name) => !known.has(name));
  if (stranger !== undefined)
    throw new HoldfastError(`${path}: ${shortened(stranger)} belongs to no target in its ${ADAPTER_CONFIG}`);
}

/** Whether a parameter of that name trains. */
export function isTrainedIn({ parameters }: Model): (name: string) => boolean {
  const trained = new Set(parameters.filter(({ trainable = true }) => trainable).map(({ name }) => name));
  return (name) => trained.has(name);
}
