// Weights in four bits as bitsandbytes writes them into safetensors files: a matrix as bytes, its scales beside it, themselves
// in eight bits where they were quantised again, and a text that says how. Seen through here, such a matrix is one tensor of
// its own shape, and its companions are gone.
//
// Invariant: scales and indices are the file's: nothing is rounded again. bitsandbytes rounds each product to the type
// that the weights had before; here it stays a float32.

import { assert, HoldfastError, shortened } from '../../util/errors.ts';
import { check, list, number, object, oneOf, optional, parseJSON } from '../../util/json.ts';
import { realNumber, wholeNumber } from '../../util/range.ts';
import { NF4_BLOCK, NF4_LEVELS, nf4Scale } from '../../values/nf4.ts';
import type { StoredElement } from '../../values/stored-elements.ts';
import { type PackedTensor, type TensorReader, widenedPieces } from '../../values/tensor-source.ts';
import { readAhead } from '../read-ahead.ts';
import type { TensorData } from '../safetensors.ts';
import { elements } from '../safetensors-header.ts';
import type { ModelTensors, StoredTensors } from './model-tensors.ts';

const STATE = '.quant_state.bitsandbytes__';
/** Of a text of a few numbers. */
const MOST_STATE_BYTES = 10_000;
const AGAIN = 'get the file again';
/** Blocks that are put together at once: 2 MiB of indices. */
const PART_BLOCKS = 2 ** 16;

const STATE_SCHEMA = object({
  quant_type: oneOf(['nf4']),
  blocksize: oneOf([NF4_BLOCK.elements]),
  shape: list(number(wholeNumber(1)), 2),
  nested_blocksize: optional(number(wholeNumber(1))),
  nested_offset: optional(number(realNumber(-1e30, 1e30))),
});

/** Scales in eight bits: of each an index into `levels`, times the scale of its block, and a mean that was subtracted. */
interface NestedScales {
  readonly levels: Float32Array;
  readonly scales: Float32Array;
  readonly block: number;
  readonly offset: number;
}

interface Quantised {
  readonly shape: readonly number[];
  readonly nested: NestedScales | undefined;
}

/**
 * `tensors` with those that are quantised as tensors of their own shapes; `tensors` itself where none is. Errors:
 * HoldfastError naming what is damaged, or in bits that are not read.
 */
export async function openQuantised(tensors: ModelTensors): Promise<StoredTensors> {
  const found = new Map<string, Quantised>();
  for (const entry of tensors.entries.keys()) {
    const [name = '', type] = entry.split(STATE);
    if (type === undefined) continue;
    if (type !== 'nf4') {
      throw new HoldfastError(
        `${tensors.pathOf(entry)}: ${shortened(name)} is in ${shortened(type)} of bitsandbytes; nf4 is read`,
      );
    }
    found.set(name, await quantisedIn(tensors, name, entry));
  }
  return found.size === 0 ? tensors : new QuantisedTensors(tensors, found);
}

async function quantisedIn(tensors: ModelTensors, name: string, state: string): Promise<Quantised> {
  const path = tensors.pathOf(state);
  const where = `${path}: ${shortened(state)}`;
  const fail = (problem: string): never => {
    throw new HoldfastError(`${path}: ${shortened(name)} ${problem}; ${AGAIN}`);
  };
  const bytes = sizeOf(tensors, state, 'U8') ?? fail('has a state that is no text');
  if (bytes > MOST_STATE_BYTES) fail(`has a state of ${bytes} bytes, at most ${MOST_STATE_BYTES} are read`);
  const text = parseJSON(await tensors.readBytes(state, 0, bytes), where, AGAIN);
  const { shape, nested_blocksize, nested_offset } = check(STATE_SCHEMA, text, where);
  const values = elements(shape);
  const { elements: blockElements } = NF4_BLOCK;
  if (values % blockElements !== 0)
    fail(`has ${values} values; whole blocks of ${blockElements} are read, quantise this model again without it`);
  const blocks = values / blockElements;
  if (sizeOf(tensors, name, 'U8') !== values / 2) fail(`is not the ${values / 2} bytes of its shape, [${shape}]`);
  const levels = await floatsAt(tensors, `${name}.quant_map`, NF4_LEVELS.length);
  if (levels?.join() !== NF4_LEVELS.join()) fail('has other levels than those of NF4');
  if (sizeOf(tensors, `${name}.absmax`, 'F32') === blocks) return { shape, nested: undefined };
  if (sizeOf(tensors, `${name}.absmax`, 'U8') !== blocks || nested_blocksize === undefined)
    return fail(`has no absmax of ${blocks} values`);
  const nested = await floatsAt(tensors, `${name}.nested_quant_map`, 256);
  const scales = await floatsAt(tensors, `${name}.nested_absmax`, Math.ceil(blocks / nested_blocksize));
  if (!nested || !scales) return fail('has no nested_quant_map and nested_absmax of its size');
  return {
    shape,
    nested: { levels: nested, scales, block: nested_blocksize, offset: Math.fround(nested_offset ?? 0) },
  };
}

/** Elements of a tensor of that type. */
function sizeOf(tensors: ModelTensors, name: string, dtype: 'U8' | 'F32'): number | undefined {
  const entry = tensors.entries.get(name);
  // Of a type that is not known to the format here the header's sizes are not compared.
  if (entry?.dtype !== dtype || (dtype === 'U8' && entry.end - entry.begin !== elements(entry.shape))) return undefined;
  return elements(entry.shape);
}

/** The float32 values of a tensor; undefined where it has not `count` of them. */
async function floatsAt(tensors: ModelTensors, name: string, count: number): Promise<Float32Array | undefined> {
  if (sizeOf(tensors, name, 'F32') !== count) return undefined;
  return (await tensors.read(name)) as Float32Array;
}

/** Tensors of which the matrices in four bits are seen as tensors of their own shapes. */
class QuantisedTensors implements StoredTensors {
  readonly path: string;
  readonly entries: StoredTensors['entries'];
  readonly #tensors: ModelTensors;
  readonly #quantised: ReadonlyMap<string, Quantised>;

  constructor(tensors: ModelTensors, quantised: ReadonlyMap<string, Quantised>) {
    this.path = tensors.path;
    this.#tensors = tensors;
    this.#quantised = quantised;
    const companions = new Set(
      [...quantised.keys()].flatMap((name) =>
        ['.absmax', '.quant_map', '.nested_absmax', '.nested_quant_map', `${STATE}nf4`].map((end) => name + end),
      ),
    );
    const rest = [...tensors.entries].filter(([name]) => !companions.has(name));
    this.entries = new Map(
      rest.map(([name, entry]) => {
        const found = quantised.get(name);
        return [name, found ? { dtype: 'NF4', shape: found.shape } : entry];
      }),
    );
  }

  pathOf(name: string): string {
    return this.#tensors.pathOf(name);
  }

  pieces(name: string): AsyncIterable<TensorData> {
    const packed = this.#quantised.has(name) ? this.packed(name) : undefined;
    return packed ? widenedPieces(packed) : this.#tensors.pieces(name);
  }

  packed(name: string): PackedTensor | undefined {
    const found = this.#quantised.get(name);
    if (!found) return this.#tensors.packed(name);
    const blocks = elements(found.shape) / NF4_BLOCK.elements;
    return {
      element: 'nf4',
      read: () => readAhead(blocks, PART_BLOCKS, (first, count) => this.#blocks(name, found, first, count)),
    };
  }

  reader(name: string, element: StoredElement): TensorReader | undefined {
    return this.#quantised.has(name) ? undefined : this.#tensors.reader(name, element);
  }

  /** Scales and indices together. */
  async #blocks(name: string, { nested }: Quantised, first: number, count: number): Promise<Uint8Array<ArrayBuffer>> {
    const indexBytes = NF4_BLOCK.elements / 2;
    const scaleBytes = nested ? 1 : 4;
    const [indices, stored] = await Promise.all([
      this.#tensors.readBytes(name, first * indexBytes, count * indexBytes),
      this.#tensors.readBytes(`${name}.absmax`, first * scaleBytes, count * scaleBytes),
    ]);
    const scales = nested ? widenedScales(stored, nested, first) : new Float32Array(stored.buffer);
    const bytes = new Uint8Array(count * NF4_BLOCK.bytes);
    const view = new DataView(bytes.buffer);
    for (const [block, scale] of scales.entries()) {
      const at = block * NF4_BLOCK.bytes;
      view.setFloat32(at, nf4Scale(scale), true);
      bytes.set(indices.subarray(block * indexBytes, (block + 1) * indexBytes), at + 4);
    }
    return bytes;
  }
}

/** In float32 after each operation, as bitsandbytes computes them. */
function widenedScales(stored: Uint8Array, { levels, scales, block, offset }: NestedScales, first: number) {
  assert(levels.length === 256, 'a byte chooses one of 256 levels');
  return Float32Array.from(stored, (index, i) => {
    const scale = scales[Math.floor((first + i) / block)] ?? 0;
    return Math.fround((levels[index] ?? 0) * scale) + offset;
  });
}
