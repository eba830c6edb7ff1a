// `Teller`: a classifier as the page uses it: a picture or a text goes in, its most likely classes come out.
//
// Invariant: a picture's pixels become what those of the same PNG file are in training.

import { imageExamples } from '../data/image-dataset.ts';
import { readImage, type WantedImages } from '../data/image-folder.ts';
import type { Tokenizer } from '../data/tokenizer.ts';
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
import type { ClassGuess, Picture, TextPair } from './protocol.ts';

/** Called so in messages. */
const NAME = 'the picture';

const isPair = (given: Picture | TextPair): given is TextPair => Array.isArray(given);

/** What is done with what is told. */
export interface TellerInputs {
  /** With pictures. */
  readonly images: ImagePreparation | undefined;
  /** With texts. */
  readonly tokenizer: Tokenizer;
}

export class Teller {
  readonly #classifier: Classifier;
  /** Undefined where it reads texts. */
  readonly #wanted: WantedImages | undefined;
  readonly #tokenizer: Tokenizer;
  readonly #names: readonly string[];
  readonly #seq: number;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing = false;

  /** A model of its own. Errors: HoldfastError for one that tells no classes apart. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    inputs: TellerInputs,
    options: ClassifierOptions,
  ): Promise<Teller> {
    return new Teller(await Classifier.open(device, model, weights, options), model.config, inputs);
  }

  private constructor(classifier: Classifier, config: ModelConfig, { images, tokenizer }: TellerInputs) {
    this.#classifier = classifier;
    this.#wanted = imagesFor(config, images);
    this.#tokenizer = tokenizer;
    this.#names = Object.values(labelsIn(config)?.id2label ?? {});
    this.#seq = shapeOf(config).context;
  }

  /** False once its device was lost. */
  get works(): boolean {
    return this.#classifier.device.status === 'works';
  }

  /**
   * The likeliest classes of a picture, a text or a pair of texts, first. Errors: HoldfastError for what is no picture, or one of another kind than
   * the model's, and for the other of the two.
   */
  async tell(given: Picture | string | TextPair): Promise<ClassGuess[]> {
    if (this.#closing) throw new HoldfastError('the weights are about to change; ask again');
    const told = this.#tell(given);
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

  async #tell(given: Picture | string | TextPair): Promise<ClassGuess[]> {
    const texts = typeof given === 'string' ? [given] : isPair(given) ? given : undefined;
    const probabilities = await (texts ? this.#tellTexts(texts) : this.#tellPicture(given as Picture));
    return this.#names
      .map((name, i) => ({ name, probability: at(probabilities, i) }))
      .sort((a, b) => b.probability - a.probability);
  }

  async #tellTexts([first = '', second]: readonly string[]): Promise<Float64Array> {
    if (this.#wanted) throw new HoldfastError('this model looks at images; give it a picture');
    return this.#classifier.tellText(this.#tokenizer, first, second);
  }

  async #tellPicture(picture: Picture): Promise<Float64Array> {
    if (!this.#wanted) throw new HoldfastError('this model looks at no images; ask one that tells them apart (ViT)');
    const bytes = picture instanceof Blob ? new Uint8Array(await picture.arrayBuffer()) : await encodePng(picture);
    const pixels = await readImage(bytes, this.#wanted, NAME);
    const images = this.#wanted.preparation;
    const set = { pixels, labels: new Uint8Array(1) };
    const { batch } = imageExamples(set, this.#wanted, { seq: this.#seq, images });
    return this.#classifier.tell(await batch([0]));
  }
}
