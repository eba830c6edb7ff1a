// `Teller`: a classifier of images as the page uses it: a picture goes in, its most likely classes come out.
//
// Invariant: a picture's pixels become what those of the same PNG file are in training.

import { imageExamples } from '../data/image-dataset.ts';
import { readImage, type WantedImages } from '../data/image-folder.ts';
import { encodePng } from '../data/write-png.ts';
import type { ModelConfig } from '../formats/config.ts';
import { labelsIn, shapeOf } from '../formats/families/index.ts';
import type { ImagePreparation } from '../formats/preprocessor.ts';
import type { Device } from '../gpu/device.ts';
import type { Model } from '../nn/model.ts';
import { Classifier, type ClassifierOptions } from '../train/inference/classifier.ts';
import { imagesFor } from '../train/run/class-data.ts';
import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import type { TensorSource } from '../values/tensor-source.ts';
import type { ClassGuess, Picture } from './protocol.ts';

/** Called so in messages. */
const NAME = 'the picture';

export class Teller {
  readonly #classifier: Classifier;
  readonly #wanted: WantedImages;
  readonly #names: readonly string[];
  readonly #seq: number;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing = false;

  /** A model of its own. `images`: what is done with pictures. Errors: HoldfastError for one that tells no images apart. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    images: ImagePreparation | undefined,
    options: ClassifierOptions,
  ): Promise<Teller> {
    const wanted = imagesFor(model.config, images);
    if (!wanted) throw new HoldfastError('this model looks at no images; ask one that tells them apart (ViT)');
    return new Teller(await Classifier.open(device, model, weights, options), model.config, wanted);
  }

  private constructor(classifier: Classifier, config: ModelConfig, wanted: WantedImages) {
    this.#classifier = classifier;
    this.#wanted = wanted;
    this.#names = Object.values(labelsIn(config)?.id2label ?? {});
    this.#seq = shapeOf(config).context;
  }

  /** False once its device was lost. */
  get works(): boolean {
    return this.#classifier.device.status === 'works';
  }

  /** The likeliest classes of a picture first. Errors: HoldfastError for what is no picture, or one of another kind than the model's. */
  async tell(picture: Picture): Promise<ClassGuess[]> {
    if (this.#closing) throw new HoldfastError('the weights are about to change; ask again');
    const told = this.#tell(picture);
    const ended: Promise<unknown> = told.catch(() => {}).then(() => this.#underWay.delete(ended));
    this.#underWay.add(ended);
    return told;
  }

  /** Frees the model, once what is being told has come to an end. */
  async close(): Promise<void> {
    this.#closing = true;
    await Promise.allSettled(this.#underWay);
    await this.#classifier.close();
  }

  async #tell(picture: Picture): Promise<ClassGuess[]> {
    const bytes = picture instanceof Blob ? new Uint8Array(await picture.arrayBuffer()) : await encodePng(picture);
    const pixels = await readImage(bytes, this.#wanted, NAME);
    const images = this.#wanted.preparation;
    const set = { pixels, labels: new Uint8Array(1) };
    const { batch } = imageExamples(set, this.#wanted, { seq: this.#seq, images });
    const probabilities = await this.#classifier.tell(await batch([0]));
    return this.#names
      .map((name, i) => ({ name, probability: at(probabilities, i) }))
      .sort((a, b) => b.probability - a.probability);
  }
}
