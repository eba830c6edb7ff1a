// A model as one GGUF file, for llama.cpp and what is built on it, with a Modelfile beside it if asked for. Not a checkpoint, and not
// read here. All that can be refused is, before a byte is written.
//
// Invariant: the file is there whole or not at all, and no tensor is in memory whole.

import { type Files, type FolderReader, folderOf, join } from '../../runtime/host.ts';
import { MOST_TEXT_BYTES, readWhole } from '../../runtime/read-whole.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { finiteWeights } from '../checkpoint/finite.ts';
import { CHAT_TEMPLATE, CONFIG } from '../checkpoint/folder.ts';
import type { Shapes } from '../checkpoint.ts';
import { elements } from '../safetensors-header.ts';
import type { TokenizerFiles } from '../tokenizer-files.ts';
import { arranged, arrangedShape, type TensorArrangement } from './arrange.ts';
import { encoded } from './encode.ts';
import { ruleOf } from './families/family.ts';
import { type AnyConfig, ggufFamilyOf } from './families/index.ts';
import {
  type ListedTensor,
  type Metadata,
  type MetadataValue,
  makeGGUFHeader,
  paddingAfter,
  string,
  u32,
} from './header.ts';
import { modelfileOf } from './modelfile.ts';
import type { TemplateRunner } from './ollama-template.ts';
import { isGGUF } from './open.ts';
import { TENSOR_TYPES, type TensorType, tensorBytes, typeFor } from './tensor-types.ts';
import { huggingFaceVocabulary, VOCABULARY_FILES } from './vocabulary/huggingface.ts';
import { BYTE_VOCABULARY, type Vocabulary, vocabularyMetadata } from './vocabulary/vocabulary.ts';

/** Weights, and the folder that they were found in. */
export interface GGUFModel {
  /** For people, and for messages. */
  readonly name: string;
  readonly config: AnyConfig;
  readonly weights: TensorSource;
  readonly shapes: Shapes;
  readonly files: FolderReader;
  readonly folder: string;
  /** What an adapter brings along: it comes before what lies in the folder. */
  readonly tokenizer?: TokenizerFiles | undefined;
  /** Of a run on bytes: it has no tokenizer's files to have it. It comes before what lies in the folder. */
  readonly chatTemplate?: string | undefined;
}

export interface GGUFOptions {
  /** Of matrices; typeFor says which stay in others. */
  readonly type: TensorType;
  /** Whether a Modelfile is written into the same folder. */
  readonly modelfile: boolean;
  /** For the token that ends a turn, and for the Modelfile. @default none: a Modelfile has no template then */
  readonly templates?: TemplateRunner;
  /** Ends the writing, with nothing left of it. */
  readonly interrupted?: () => boolean;
}

/** What was written. */
export interface GGUFSummary {
  /** Their number. */
  readonly tensors: number;
  /** Of the file. */
  readonly bytes: number;
  /** Matrices that are F16, since their rows are no whole blocks. */
  readonly fallbacks: number;
  /** Where one was asked for. */
  readonly modelfile?: string;
  /** For people, a line each: what of the model the Modelfile does not say. */
  readonly notes: readonly string[];
}

/** A tensor of the file, and where its values come from. */
interface PlannedTensor extends ListedTensor {
  values(): AsyncIterable<Float32Array<ArrayBuffer>>;
}

/** Writes the model to `out`, a file that is not there. Errors: HoldfastError; nothing is left of it then. */
export async function exportGGUF(
  files: Files,
  out: string,
  model: GGUFModel,
  { type, modelfile, templates, interrupted = () => false }: GGUFOptions,
): Promise<GGUFSummary> {
  const [, folder = '', file = ''] = /^(.*?)([^/\\]*)$/s.exec(out) ?? [];
  const beside = join(folder, 'Modelfile');
  if (file === '') throw new HoldfastError(`${JSON.stringify(out)} names no file; give one, as model.gguf`);
  const written = modelfile ? [out, beside] : [out];
  await checkFree(files, written);
  if (!isGGUF(file)) throw new HoldfastError(`${out}: a GGUF file is known by the end of its name; name ${out}.gguf`);
  const vocabulary = await vocabularyOf(model, templates);
  const tensors = plan(model, type);
  const header = makeGGUFHeader(metadataOf(model, type, vocabulary), tensors);
  const bytes = tensors.reduce((sum, tensor) => sum + paddedBytes(tensor), header.length);
  const { text: modelfileText, notes = [] } = modelfile ? modelfileOf(file, vocabulary, templates) : {};
  const free = await files.freeBytes?.(folderOf(out));
  if (free !== undefined && free < bytes) {
    throw new HoldfastError(
      `${out}: takes ${formatBytes(bytes)}, its disk has ${formatBytes(free)} free; make space there, choose another folder or a smaller type`,
    );
  }
  const stream = await files.writeStream(out);
  let besideIsOwn = false;
  try {
    await stream.write(header);
    for (const tensor of tensors) {
      let written = 0;
      for await (const part of encoded(tensor.type, tensor.values(), { path: out, name: tensor.name })) {
        if (interrupted()) throw new HoldfastError(`${out}: interrupted; nothing is left of it`);
        await stream.write(part);
        written += part.length;
      }
      const size = tensorBytes(tensor.type, elements(tensor.shape));
      assert(written === size, `${tensor.name} has ${written} bytes, not ${size}`);
      await stream.write(new Uint8Array(paddingAfter(size)));
    }
    // What came meanwhile stays.
    await checkFree(files, written);
    if (modelfileText !== undefined) {
      await files.writeAtomic(beside, modelfileText);
      besideIsOwn = true;
    }
    await stream.commit();
  } catch (error) {
    await stream.abort();
    if (besideIsOwn) await files.remove(beside).catch(() => {});
    throw error;
  }
  await files.syncFolder(folderOf(out));
  return {
    tensors: tensors.length,
    bytes,
    fallbacks: TENSOR_TYPES[type].blockElements > 1 ? tensors.filter((tensor) => tensor.type === 'F16').length : 0,
    ...(modelfileText !== undefined && { modelfile: beside }),
    notes,
  };
}

/** Errors: HoldfastError where something is there already. */
async function checkFree(files: Files, [file, modelfile]: readonly string[]): Promise<void> {
  const check = async (path: string, fix: string) => {
    if (await files.stat(path)) throw new HoldfastError(`${path}: is there already; ${fix}`);
  };
  if (file !== undefined) await check(file, 'name a file that is not');
  if (modelfile !== undefined) await check(modelfile, 'leave --modelfile out, or name a file in another folder');
}

function paddedBytes({ type, shape }: ListedTensor): number {
  const size = tensorBytes(type, elements(shape));
  return size + paddingAfter(size);
}

/** The tensors that are computed, then the weights in the order in which they are read best. */
function plan({ name: from, config, shapes, ...model }: GGUFModel, type: TensorType): PlannedTensor[] {
  const family = ggufFamilyOf(config, from);
  const weights = finiteWeights({ weights: model.weights, shapes }, from, 'a GGUF file');
  const made = family.made(config).map(
    ({ name, values }): PlannedTensor => ({
      ...{ name, type: 'F32', shape: [values.length] },
      async *values() {
        yield values;
      },
    }),
  );
  const stored = weights.names.map((weight): PlannedTensor => {
    const { name, arrangement } = ruleOf(family, config, weight);
    return planned(weights, weight, name, shapes.get(weight) ?? [], arrangement, type);
  });
  return [...made, ...stored];
}

function planned(
  weights: TensorSource,
  weight: string,
  name: string,
  given: readonly number[],
  arrangement: TensorArrangement | undefined,
  type: TensorType,
): PlannedTensor {
  const shape = arrangedShape(arrangement, given);
  return { name, shape, type: typeFor(type, name, shape), values: () => arranged(weights, weight, given, arrangement) };
}

function metadataOf({ name, config, shapes }: GGUFModel, type: TensorType, vocabulary: Vocabulary): Metadata {
  const family = ggufFamilyOf(config, name);
  const parameters = [...shapes.values()].reduce((sum, shape) => sum + elements(shape), 0);
  const metadata = new Map<string, MetadataValue>([
    ['general.architecture', string(family.architecture)],
    ['general.type', string('model')],
    ['general.name', string(name)],
    ['general.size_label', string(sizeLabel(parameters))],
    ['general.file_type', u32(TENSOR_TYPES[type].fileType)],
    ['general.quantization_version', u32(2)],
  ]);
  for (const [key, value] of Object.entries(family.metadata(config, name))) {
    metadata.set(`${family.architecture}.${key}`, value);
  }
  for (const [key, value] of vocabularyMetadata(vocabulary, config.vocab_size ?? 0, name)) metadata.set(key, value);
  return metadata;
}

/** "135M", "1.1B". */
function sizeLabel(parameters: number): string {
  const [unit, letter] = parameters >= 1e9 ? [1e9, 'B'] : parameters >= 1e6 ? [1e6, 'M'] : [1e3, 'K'];
  const count = parameters / unit;
  return `${count < 9.95 ? count.toFixed(1) : Math.round(count)}${letter}`;
}

/** Of an adapter that brings one along, or of the model's folder; of one without a tokenizer.json, the bytes. Errors: HoldfastError where neither is the model's. */
async function vocabularyOf(
  { name, config, files, folder, tokenizer, ...model }: GGUFModel,
  templates: TemplateRunner | undefined,
): Promise<Vocabulary> {
  const contents = new Map<string, Uint8Array>();
  for (const each of VOCABULARY_FILES) {
    const path = join(folder, each);
    const brought = tokenizer?.contents.get(each);
    if (brought) contents.set(each, brought);
    else if ((await files.stat(path))?.kind === 'file')
      contents.set(each, await readWhole(files, path, MOST_TEXT_BYTES));
  }
  const ids = tokenizer?.modelIds;
  if (ids) contents.set(CONFIG, new TextEncoder().encode(JSON.stringify(ids)));
  if (contents.has('tokenizer.json'))
    return huggingFaceVocabulary(contents, name, (text) => templates?.turnEnd({ text, bos: '', eos: '' }));
  if (config.vocab_size === BYTE_VOCABULARY.tokens.length) {
    const beside = contents.get(CHAT_TEMPLATE);
    const chatTemplate = model.chatTemplate ?? (beside && new TextDecoder().decode(beside));
    return { ...BYTE_VOCABULARY, ...(chatTemplate !== undefined && { chatTemplate }) };
  }
  throw new HoldfastError(
    `${name}: there is no tokenizer.json, and ${config.vocab_size} tokens are not bytes; put the model's tokenizer.json beside its weights`,
  );
}
