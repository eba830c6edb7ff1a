// The inputs of a model and of its objective: what a batch must bring, the tensors that programs read it from, and the
// way from the one to the other. Not the loss (objective.ts), and not where batches come from (data/).
//
// Invariant: a batch that `check` lets pass has an array of the right type and size for each input, and no number in it
// that a kernel would take for a row that its table does not have.

import { arrayOf, type Batch, type BatchArray } from '../data/batches.ts';
import type { Mask } from '../graph/operators/attention.ts';
import { makeTokens, type Tokens } from '../graph/operators/embedding.ts';
import { makeTensor, type Tensor } from '../graph/program.ts';
import { documentStarts } from '../kernels/attention-mask.ts';
import { tokenIndex } from '../kernels/embedding.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { check, object, show } from '../util/json.ts';

/** One array of a batch. */
export interface InputSpec {
  /** Its name in a batch. */
  readonly name: string;
  readonly type: 'i32' | 'f32';
  /** The shape of one row of the batch: (T) for tokens, (channels, height, width) for pixels, () for a label a row. */
  readonly row: readonly number[];
  /** Of what is counted: it goes from 0 to below this. @default any number */
  readonly below?: number;
  /** The number that takes no part in the loss, beside those. */
  readonly ignored?: number;
  /** What it holds all over where a batch does not bring it. @default it has to */
  readonly otherwise?: number;
  /** Whether an embedding looks it up: for its gradient, rows come grouped by number. */
  readonly embedded?: boolean;
  /** Whether it numbers documents: programs read where what each token sees begins. */
  readonly documents?: boolean;
}

/** Token ids, the one input of a language model. */
export const tokenIds = (vocabulary: number, seq: number): InputSpec[] => [
  { name: 'ids', type: 'i32', row: [seq], below: vocabulary, embedded: true },
];

/**
 * What a language model reads besides, where its rows hold several documents: which document a token belongs to (equal
 * numbers side by side are one document) and, for learned positions, its place in it.
 */
export const packedDocuments = (seq: number, positions?: number): InputSpec[] => [
  { name: 'documents', type: 'i32', row: [seq], documents: true },
  ...(positions === undefined
    ? []
    : [{ name: 'positions', type: 'i32', row: [seq], below: positions, embedded: true } as const]),
];

/**
 * What an encoder of text reads: token ids, of which kind each token is (0 where a batch does not say), and whether it is
 * one (1, where a batch does not say) or padding (0), which no token sees.
 */
export const textInputs = (vocabulary: number, types: number, seq: number): InputSpec[] => [
  ...tokenIds(vocabulary, seq),
  { name: 'tokenTypes', type: 'i32', row: [seq], below: types, embedded: true, otherwise: 0 },
  { name: 'attentionMask', type: 'i32', row: [seq], below: 2, otherwise: 1 },
];

/** What a forward pass, or a loss, reads of a batch: by name. */
export interface ModelInputs {
  /** One that is embedded. */
  tokens(name: string): Tokens;
  /** Any other, (B, ...row). */
  tensor(name: string): Tensor;
  /** The place of each token, as what is looked up, where it does not go by the row alone. */
  readonly positions?: Tokens | undefined;
  /**
   * What a token of a language model sees: its own and all before it, of a `window` that ends with it where there is one, in
   * rows of several documents those of its document.
   */
  seen(window?: number): Mask;
}

const seenInRow = (window: number | undefined): Mask => (window === undefined ? 'causal' : { window });

/**
 * The token ids of a language model by themselves: to write text, or to look inside. `positions`: those of the tokens, as what is
 * looked up, where each sequence has its own.
 */
export const onlyTokens = (tokens: Tokens, positions?: Tokens): ModelInputs => ({
  tokens: () => tokens,
  positions,
  seen: seenInRow,
  tensor(name) {
    throw new Error(`internal: ${name} is read where there are token ids alone`);
  },
});

/** The inputs of programs for `batch` rows of `seq` tokens. */
export class BatchInputs implements ModelInputs {
  readonly #batch: number;
  readonly #seq: number;
  readonly #specs: readonly InputSpec[];
  readonly #tokens = new Map<string, Tokens>();
  readonly #tensors = new Map<string, Tensor>();
  readonly #isPacked: boolean;
  /** In rows of several documents, where what each token sees begins: by window, those that programs have asked for. */
  readonly #starts = new Map<number | undefined, Tensor>();

  constructor(specs: readonly InputSpec[], batch: number, seq: number) {
    this.#batch = batch;
    this.#seq = seq;
    this.#specs = specs;
    this.#isPacked = specs.some(({ documents }) => documents);
    for (const { name, type, row, embedded, documents } of specs) {
      if (documents) continue;
      if (embedded) this.#tokens.set(name, makeTokens(batch, seq, name));
      else this.#tensors.set(name, makeTensor(name, [batch, ...row], 'persistent', type));
    }
  }

  tokens(name: string): Tokens {
    const tokens = this.#tokens.get(name);
    assert(tokens, `no tokens are called ${name}`);
    return tokens;
  }

  get positions(): Tokens | undefined {
    return this.#tokens.get('positions');
  }

  tensor(name: string): Tensor {
    const tensor = this.#tensors.get(name);
    assert(tensor, `no input is called ${name}`);
    return tensor;
  }

  seen(window?: number): Mask {
    if (!this.#isPacked) return seenInRow(window);
    const hiding = window !== undefined && window < this.#seq ? window : undefined;
    const name = hiding === undefined ? 'document starts' : `document starts within ${hiding}`;
    const documentStarts = this.#starts.get(hiding) ?? makeTensor(name, [this.#batch, this.#seq], 'persistent', 'u32');
    this.#starts.set(hiding, documentStarts);
    return { documentStarts, ...(hiding !== undefined && { window: hiding }) };
  }

  /** What `values` speaks of, for the programs that have been traced. */
  get all(): Tensor[] {
    const indices = [...this.#tokens.values()].flatMap(({ ids, index }) => [
      ids,
      index.tokens,
      index.starts,
      index.order,
    ]);
    return [...indices, ...this.#tensors.values(), ...this.#starts.values()];
  }

  /** Errors: HoldfastError for a batch of other than `rows` rows, of another shape, or with numbers that are none of an input's. */
  check(given: Batch, rows = given?.batch): void {
    check(object({}), given, 'the batch');
    const { batch, seq } = given;
    if (typeof batch !== 'number' || batch !== rows || seq !== this.#seq) {
      throw new HoldfastError(
        `a batch of ${show(batch)} x ${show(seq)} tokens: this trainer was made for ${this.#batch} x ${this.#seq} (batch, seq)`,
      );
    }
    if (given['documents'] !== undefined && !this.#isPacked) {
      throw new HoldfastError(
        'a batch of packed documents: this trainer was made for rows of one document, see `packed`',
      );
    }
    for (const { name, type, row, below, ignored, otherwise } of this.#specs) {
      if (otherwise !== undefined && given[name] === undefined) continue;
      const values = arrayOf(given, name, type);
      const size = batch * sizeOf(row);
      if (values.length !== size) {
        throw new HoldfastError(`a batch of ${batch} x ${seq} with ${values.length} ${name}: give ${size}`);
      }
      if (below === undefined) continue;
      for (const value of values) {
        if ((value >= 0 && value < below) || value === ignored) continue;
        throw new HoldfastError(`a batch has ${value} among its ${name}: for this model, they end at ${below - 1}`);
      }
    }
  }

  /** The rows from `first` on that programs take at once; behind the last there are rows that take no part in the loss. */
  part(given: Batch, first: number): Batch {
    const arrays = this.#specs.map(({ name, type, row, otherwise, ignored = otherwise ?? 0 }): [string, BatchArray] => {
      const size = sizeOf(row);
      const length = this.#batch * size;
      const part = type === 'i32' ? new Int32Array(length) : new Float32Array(length);
      part.fill(ignored);
      if (otherwise === undefined || given[name] !== undefined)
        part.set(arrayOf(given, name, type).subarray(first * size, first * size + length));
      return [name, part];
    });
    return { ...Object.fromEntries(arrays), batch: this.#batch, seq: this.#seq };
  }

  /** What tensors hold for a batch. */
  values(given: Batch): [Tensor, BatchArray | Uint32Array<ArrayBuffer>][] {
    return this.#specs.flatMap((spec): [Tensor, BatchArray | Uint32Array<ArrayBuffer>][] => {
      const { name, type, row, documents, otherwise } = spec;
      const isLeftOut = otherwise !== undefined && given[name] === undefined;
      const values = isLeftOut ? new Int32Array(given.batch * sizeOf(row)).fill(otherwise) : arrayOf(given, name, type);
      if (documents) {
        return Array.from(this.#starts, ([window, tensor]) => [tensor, documentStarts(values, this.#seq, window)]);
      }
      const tokens = this.#tokens.get(name);
      if (!tokens) return [[this.tensor(name), values]];
      const index = tokenIndex(values as Int32Array);
      return [
        [tokens.ids, values],
        [tokens.index.tokens, index.tokens],
        [tokens.index.starts, index.starts],
        [tokens.index.order, index.order],
      ];
    });
  }
}

const sizeOf = (row: readonly number[]): number => row.reduce((a, b) => a * b, 1);
