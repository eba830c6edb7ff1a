// A GGUF file as the folder of a model: config.json and tokenizer.json as its metadata describe them, and its tensors by Hugging
// Face's names and in Hugging Face's order, read from the file when they are asked for. What reads models from folders reads
// it from here.
//
// Invariant: what its metadata say of the model is read, or refused by name; the bits of its tensors stay what they are.

import type { Files } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { show } from '../../util/json.ts';
import { CODECS, isMade, isNarrow } from '../../values/stored-elements.ts';
import { mapped, type PackedTensor, widenedPieces } from '../../values/tensor-source.ts';
import type { ByteSource } from '../byte-source.ts';
import { parseConfig } from '../config.ts';
import { ListedFolder, type ListedWeights } from '../listed-folder.ts';
import { readAhead } from '../read-ahead.ts';
import { arranged, arrangedShape, type TensorArrangement, unpaired } from './arrange.ts';
import { type GGUFFamily, type Keys, weightOf } from './families/family.ts';
import { type AnyConfig, familyByArchitecture } from './families/index.ts';
import { type GGUFValue, type PlacedTensor, type ReadHeader, readHeader } from './read-header.ts';
import { READ_TYPES } from './tensor-types.ts';
import { tokenizerFilesOf } from './vocabulary/read.ts';

type Floats = Float32Array<ArrayBuffer>;

export const isGGUF = (path: string): boolean => /\.gguf$/i.test(path);

/** Of a small tensor that the configuration is made of. */
const MOST_VALUES = 2 ** 16;

/** Keys of an architecture that change no result where they are what they nearly always are. */
const HARMLESS: Readonly<Record<string, readonly GGUFValue[]>> = {
  'attention.causal': [true],
  expert_count: [0],
  expert_used_count: [0],
  'rope.scaling.finetuned': [true, false],
  // Of rotations without a scale of their own: any other kind is refused.
  'rope.scaling.attn_factor': [1],
};

/** Opens it: its header is read. Errors: HoldfastError for what is no such file, or says something that is not read. */
export async function openGGUF(source: ByteSource, path: string, sha256: Files['sha256']): Promise<ListedFolder> {
  const header = await readHeader(source, path);
  const family = familyByArchitecture(header.metadata.get('general.architecture'), path);
  const config = await configOf(source, header, family, path);
  const texts = new Map([['config.json', JSON.stringify(config)], ...tokenizerFilesOf(header.metadata, path)]);
  const files = [...texts].map(([name, text]) => listedFile(name, new TextEncoder().encode(text)));
  const words = { verb: 'choose', wanted: 'give a GGUF file' } as const;
  const own = parseConfig(config, path) as AnyConfig;
  return new ListedFolder(path, files, sha256, words, new GGUFTensors(source, header, family, own, path));
}

function listedFile(path: string, bytes: Uint8Array<ArrayBuffer>) {
  return {
    ...{ path, bytes: bytes.length },
    open: () => new Blob([bytes]).stream(),
    whole: async () => bytes.slice(),
    readRange: async (_: string, offset: number, count: number) => bytes.slice(offset, offset + count),
  };
}

// ---- The configuration ------------------------------------------------------------------------------------------

async function configOf(
  source: ByteSource,
  { metadata, tensors }: ReadHeader,
  family: GGUFFamily<AnyConfig>,
  path: string,
): Promise<Readonly<Record<string, unknown>>> {
  const small = new Map<string, Float32Array>();
  for (const [name, { type, shape, begin, bytes }] of tensors) {
    if (weightless(name) && type === 'F32' && shape.length === 1 && bytes <= 4 * MOST_VALUES)
      small.set(name, new Float32Array((await source.read(begin, bytes)).buffer));
  }
  const prefix = `${family.architecture}.`;
  const asked = new Set<string>();
  const refuse = (problem: string): never => {
    throw new HoldfastError(`${path}: ${problem.startsWith('rope_freqs') ? '' : prefix}${problem}`);
  };
  const take = (key: string): GGUFValue | undefined => {
    asked.add(prefix + key);
    return metadata.get(prefix + key);
  };
  const number = (key: string, fallback?: number): number => {
    const value = take(key) ?? fallback;
    return typeof value === 'number' ? value : refuse(`${key} is ${show(value)}; it must be a number`);
  };
  const keys: Keys = {
    number,
    refuse,
    has: (key) => take(key) !== undefined,
    real: (key, fallback) => shortest(number(key, fallback)),
    text(key, fallback) {
      const value = take(key) ?? fallback;
      return typeof value === 'string' ? value : refuse(`${key} is ${show(value)}; it must be a text`);
    },
    shape: (tensor) => tensors.get(tensor)?.shape,
    values: (tensor) => small.get(tensor),
  };
  const blocks = number('block_count');
  // Each has several: a model of as many as a damaged number says is not begun with.
  if (blocks > tensors.size) refuse(`block_count is ${blocks}, of ${tensors.size} tensors; get the file again`);
  const config = family.config(keys);
  for (const [key, value] of metadata) {
    if (!key.startsWith(prefix) || asked.has(key)) continue;
    if (HARMLESS[key.slice(prefix.length)]?.includes(value)) continue;
    refuse(
      `${shortened(key.slice(prefix.length))} is ${show(value)}; this key is not known here and may change what the model computes`,
    );
  }
  return config;
}

/** Rotations are no weights: the configuration is made of them. */
const weightless = (tensor: string): boolean => tensor === 'rope_freqs.weight';

/** 1e-5 for the float32 next to it. */
function shortest(value: number): number {
  for (let digits = 1; digits < 10; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

// ---- The tensors ------------------------------------------------------------------------------------------------

/** A tensor of the file, and what has become of the weight that it is. */
interface FoundTensor {
  readonly tensor: PlacedTensor;
  readonly arrangement: TensorArrangement | undefined;
}

/** The tensors of a GGUF file by Hugging Face’s names. */
class GGUFTensors implements ListedWeights {
  readonly path: string;
  /** Of the file. */
  readonly bytes: number;
  readonly entries: ReadonlyMap<string, { readonly dtype: string; readonly shape: readonly number[] }>;
  readonly #source: ByteSource;
  readonly #found: ReadonlyMap<string, FoundTensor>;

  constructor(
    source: ByteSource,
    { tensors }: ReadHeader,
    family: GGUFFamily<AnyConfig>,
    config: AnyConfig,
    path: string,
  ) {
    this.path = path;
    this.bytes = source.size;
    this.#source = source;
    const found = new Map<string, FoundTensor>();
    for (const [stored, tensor] of tensors) {
      if (weightless(stored)) continue;
      const weight = weightOf(family, config, stored);
      if (!weight)
        throw new HoldfastError(
          `${path}: tensor ${shortened(stored)} is no weight of a ${family.architecture} model here`,
        );
      found.set(weight.name, { tensor, arrangement: checked(weight.arrangement, tensor, stored, path) });
    }
    this.#found = found;
    this.entries = new Map(
      [...found].map(([name, { tensor, arrangement }]) => [
        name,
        { dtype: tensor.type, shape: arrangedShape(arrangement, tensor.shape) },
      ]),
    );
  }

  pathOf(): string {
    return this.path;
  }

  pieces(name: string): AsyncIterable<Floats> {
    const { tensor, arrangement } = this.#at(name);
    const source = { names: [name], read: () => this.#floats(tensor) };
    switch (arrangement?.kind) {
      case 'transposed':
        return arranged(source, name, tensor.shape, arrangement);
      case 'plus one':
        return mapped(source.read(), (piece) => piece.map((gain) => gain - 1));
      default:
        return floatsIn(tensor, this.#inOrder(tensor, arrangement));
    }
  }

  packed(name: string): PackedTensor | undefined {
    const { tensor, arrangement } = this.#at(name);
    const { element, blockElements } = READ_TYPES[tensor.type];
    if (!isNarrow(element)) return undefined;
    if (!arrangement || arrangement.kind === 'paired')
      return { element, read: () => this.#inOrder(tensor, arrangement) };
    // In another order there are other blocks; sixteen bits are what they were.
    return arrangement.kind === 'transposed' && blockElements === 1 && isMade(element)
      ? { element, read: () => mapped(this.pieces(name), (piece) => CODECS[element].narrow(piece)) }
      : undefined;
  }

  #at(name: string): FoundTensor {
    const found = this.#found.get(name);
    if (!found) throw new HoldfastError(`${this.path}: there is no tensor ${name}`);
    return found;
  }

  #floats(tensor: PlacedTensor): AsyncIterable<Floats> {
    return floatsIn(tensor, this.#bytes(tensor));
  }

  /** Bytes with their rows where Hugging Face has them. */
  #inOrder(tensor: PlacedTensor, arrangement: TensorArrangement | undefined): AsyncIterable<Uint8Array<ArrayBuffer>> {
    const bytes = this.#bytes(tensor);
    const [rows = 1] = tensor.shape;
    return arrangement?.kind === 'paired' ? unpaired(bytes, rows / arrangement.heads, tensor.bytes / rows) : bytes;
  }

  #bytes({ begin, bytes, type }: PlacedTensor): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
    const { blockBytes, blockElements } = READ_TYPES[type];
    const step = blockBytes * (blockElements > 32 ? PIECE_BLOCKS / 8 : PIECE_BLOCKS);
    return readAhead(bytes, step, (first, count) => this.#source.read(begin + first, count));
  }
}

/** Blocks that are read at once, of one element or more. */
const PIECE_BLOCKS = 2 ** 17;

function floatsIn({ type }: PlacedTensor, bytes: AsyncIterable<Uint8Array<ArrayBuffer>>): AsyncIterable<Floats> {
  const { element } = READ_TYPES[type];
  if (isNarrow(element)) return widenedPieces({ element, read: () => bytes });
  return mapped(bytes, ({ buffer, byteOffset, byteLength }) => new Float32Array(buffer, byteOffset, byteLength / 4));
}

/** Errors: HoldfastError where a tensor cannot have been arranged so. */
function checked(
  arrangement: TensorArrangement | undefined,
  { shape }: PlacedTensor,
  name: string,
  path: string,
): TensorArrangement | undefined {
  const [rows = 1] = shape;
  const isWhole = arrangement?.kind !== 'paired' || rows % (2 * arrangement.heads) === 0;
  const isMatrix = arrangement?.kind !== 'transposed' || shape.length === 2;
  if (isWhole && isMatrix) return arrangement;
  throw new HoldfastError(`${path}: tensor ${shortened(name)} has shape [${shape.join(', ')}], which is none for it`);
}
