// Data that a classifier learns from, or is measured with: images or texts with labels, as its model numbers them; and
// the model that is to tell the classes of some data apart, with its own head or with one that has to be drawn.
//
// Invariant: what is learned from has the classes of the model's configuration, and no others.

import { areOf, classOf, type DataClasses, labelsFor, namesOf } from '../../data/classes.ts';
import type { TextIdentity } from '../../data/corpus.ts';
import type { Examples } from '../../data/examples.ts';
import { imageExamples } from '../../data/image-dataset.ts';
import type { WantedImages } from '../../data/image-folder.ts';
import { type ImageSet, type Images, imageFacts, openImages } from '../../data/images.ts';
import { LabelledTexts, type LabelledTokenizer } from '../../data/labelled-texts.ts';
import { holdLabelled, recordClasses, refuseUnlabelled } from '../../data/records/labelled.ts';
import { recordsToTest, recordsToTrain, type ValidationChoice } from '../../data/records/splits.ts';
import { isSynthetic, SYNTHETIC } from '../../data/synthetic.ts';
import type { TokenizingOptions } from '../../data/tokenized-text.ts';
import { PREPROCESSOR } from '../../formats/checkpoint/folder.ts';
import type { DescribedAdapter } from '../../formats/checkpoint.ts';
import type { ImageSize } from '../../formats/families/family.ts';
import { familyOf, imagesIn, labelsIn, type ModelConfig, shapeOf } from '../../formats/families/index.ts';
import type { Labels } from '../../formats/families/labels.ts';
import type { ImagePreparation } from '../../formats/preprocessor.ts';
import type { Host, ReadingHost } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { withHeadOf } from './open-model.ts';

/** What has a class each, read. */
export type ClassContent =
  | { readonly kind: 'images'; readonly images: Images }
  | {
      readonly kind: 'labelled';
      readonly texts: { readonly train: LabelledTexts; readonly validation: LabelledTexts | undefined };
    };

/** What is read, and for which model. */
export interface ClassSources extends ValidationChoice {
  readonly config: ModelConfig;
  readonly labels: Labels;
  readonly data: readonly string[];
  readonly seq: number;
  /** What is done with images. */
  readonly images?: ImagePreparation | undefined;
  readonly tokenizer: LabelledTokenizer;
}

/** Errors: HoldfastError naming the file, or the line and the field, of what cannot be used, and classes that the model does not have. */
export async function readExamples(
  host: Host,
  { config, labels, data, seq, images: preparation, tokenizer, ...held }: ClassSources,
  options: TokenizingOptions = {},
): Promise<ClassContent> {
  const { signal } = options;
  if (shapeOf(config).vocabulary === 0) {
    const wanted = imagesFor(config, preparation);
    const images = fitted(config, labels, await openImages(host, data, { wanted, signal }), preparation);
    const { validationFile: other } = held;
    const others =
      other === undefined
        ? undefined
        : fitted(config, labels, await openImages(host, [other], { testsAlone: true, wanted, signal }), preparation);
    return { kind: 'images', images: { ...images, test: others ? toTest(others) : images.test } };
  }
  const read = (sources: readonly string[]) => LabelledTexts.read(host, sources, tokenizer, { labels, seq }, options);
  checkLabelled(data);
  const { sources, validation } = await recordsToTrain(host.files, data, held);
  const train = await read(sources);
  return { kind: 'labelled', texts: { train, validation: validation && (await read(validation)) } };
}

/** What a classifier is measured with. */
export interface ExamplesToTest extends Examples {
  readonly identity: TextIdentity;
  /** What one is, for a person. */
  readonly word: 'image' | 'text';
  /** What their files are for, a line each. */
  readonly notes: readonly string[];
}

/** All that a classifier is measured with: those to test with, where the data has such. Errors: as `readExamples`. */
export async function examplesToTest(
  host: Host,
  { config, labels, data, seq, images: preparation, tokenizer }: ClassSources,
): Promise<ExamplesToTest> {
  if (shapeOf(config).vocabulary === 0) {
    const images = fitted(
      config,
      labels,
      await openImages(host, data, { testsAlone: true, wanted: imagesFor(config, preparation) }),
      preparation,
    );
    return {
      ...imageExamples(toTest(images), images, { seq, images: preparation }),
      ...{ identity: images.identity, word: 'image', notes: [] },
    };
  }
  checkLabelled(data);
  const { sources, notes } = await recordsToTest(host.files, data);
  const texts = await LabelledTexts.read(host, sources, tokenizer, { labels, seq });
  const { count, identity } = texts;
  return { count, batch: (chosen) => texts.batch(chosen), identity, word: 'text', notes };
}

/** A model that tells the classes of data apart. */
export interface ModelForClasses {
  readonly config: ModelConfig;
  /** Whether its head is none that the model has weights of. */
  readonly newHead: boolean;
}

/**
 * The model as it is to tell the classes of the data apart: as it is, or with another head where the data has classes that
 * are all others, or the model tells something else. Undefined where the data has no labels that a model of its family
 * learns. Errors: HoldfastError for data of which some classes are the model's and some are not, and for records that such a model
 * learns nothing from.
 */
export async function modelForClasses(
  host: ReadingHost,
  config: ModelConfig,
  data: readonly string[],
  preparation?: ImagePreparation,
): Promise<ModelForClasses | undefined> {
  const { classifier, writes } = familyOf(config);
  const labels = labelsIn(config);
  if (!classifier) return undefined;
  const isText = shapeOf(config).vocabulary > 0;
  if (!labels && !(await areLabelled(host, data))) {
    if (isText && !writes && data.length > 0 && !isSynthetic(data)) await refuseUnlabelled(host, data);
    return undefined;
  }
  if (isText) checkLabelled(data);
  const classes = isText
    ? await recordClasses(host, (await recordsToTrain(host.files, data)).sources)
    : imageClasses(await imageFacts(host, data, imagesFor(config, preparation)));
  const named = shortened(data.join(', '));
  if (labels && areOf(labels, classes, named)) return { config, newHead: false };
  return { config: classifier.tells(config, labelsFor(classes, named)), newHead: true };
}

/**
 * As `modelForClasses`, of a model that may have an adapter to go on from, whose head it then has; it keeps its own head where the
 * data asks for no other. Errors: as `modelForClasses`, and for data of other classes than the adapter's.
 */
export async function headFor(
  host: ReadingHost,
  config: ModelConfig,
  data: readonly string[],
  {
    adapter,
    images,
  }: { readonly adapter?: DescribedAdapter | undefined; readonly images?: ImagePreparation | undefined },
): Promise<ModelForClasses> {
  const headed = withHeadOf(config, adapter);
  const found = await modelForClasses(host, headed, data, images);
  if (found?.newHead && adapter?.labels)
    throw new HoldfastError(
      `${adapter.path}: tells ${namesOf(adapter.labels)} apart, and the data has other classes; leave it out for a new head`,
    );
  return { config: found?.config ?? headed, newHead: found?.newHead === true || headed !== config };
}

const areLabelled = async (host: ReadingHost, data: readonly string[]): Promise<boolean> =>
  data.length > 0 && !isSynthetic(data) && (await holdLabelled(host, data));

/** Errors: HoldfastError for what is no file of records. */
function checkLabelled(data: readonly string[]): void {
  if (isSynthetic(data) || data.length === 0)
    throw new HoldfastError(
      `${data.length === 0 ? 'no data is named' : `${SYNTHETIC}: has no labels`}; a classifier of texts learns from JSON records with text and label`,
    );
}

const toTest = ({ test, train }: Images): ImageSet => test ?? train;

const imageClasses = ({ classNames, classes }: Pick<Images, 'classNames' | 'classes'>): DataClasses =>
  classNames ? { kind: 'named', names: classNames } : { kind: 'numbered', count: classes };

/** What a model looks at; undefined where it looks at none. */
export function imagesFor(config: ModelConfig, preparation: ImagePreparation | undefined): WantedImages | undefined {
  const images = imagesIn(config);
  return images && { ...images, preparation };
}

/** The images with their labels as the model numbers them. Errors: HoldfastError for images of another size, or of other classes. */
function fitted(
  config: ModelConfig,
  labels: Labels,
  images: Images,
  preparation: ImagePreparation | undefined,
): Images {
  const { classNames } = images;
  const words = ({ channels, height, width }: ImageSize) => [channels, height, width].join(' x ');
  const found = words(images);
  const looksAt = imagesIn(config);
  const own = looksAt ? words(looksAt) : 'no images';
  if (found !== own)
    throw new HoldfastError(`the images are of ${found} (channels, rows, columns), the model's of ${own}; use others`);
  if (!classNames && preparation?.crop)
    throw new HoldfastError(
      `${PREPROCESSOR}: do_center_crop is true, which is done with PNG images alone; give a folder of them`,
    );
  if (!areOf(labels, imageClasses(images), 'the images'))
    throw new HoldfastError(`the images: none of their classes is one of the model's, which are ${namesOf(labels)}`);
  const numbers = classNames?.map((name) => classOf(labels, name, 'the images'));
  const numbered = <S extends ImageSet | undefined>(set: S): S =>
    set && numbers ? { ...set, labels: Uint16Array.from(set.labels, (label) => numbers[label] ?? 0) } : set;
  return { ...images, train: numbered(images.train), test: numbered(images.test) };
}
