// The objective: what a model is trained for. It says what a batch brings beside the model's inputs, and puts a loss on
// what the forward pass gives. Generated tasks are something else (data/tasks.ts): text for this one objective.
//
// Invariant: the loss is a sum over labels that count, one for each row of the hidden states at most; a step divides it by
// their number, over all of its micro-batches.

import { arrayOf, type Batch } from '../data/batches.ts';
import type { Graph } from '../graph/graph.ts';
import { crossEntropyHead, type Head, IGNORE_INDEX, type LossOutput } from '../graph/operators/cross-entropy.ts';
import type { Tensor } from '../graph/program.ts';
import type { InputSpec, ModelInputs } from './inputs.ts';

/** What a forward pass gives. */
export interface Features {
  /** (..., C): a row for each prediction. */
  readonly hidden: Tensor;
  /** Its weight has a row for each of what is told apart: tokens, or classes. */
  readonly head: Head;
}

export interface Objective {
  /** What a batch brings beside the model's inputs, where `classes` are told apart in sequences of `seq`. */
  labels(classes: number, seq: number): InputSpec[];
  /** Whether the share of labels that are told right is asked for, beside the loss. */
  readonly accuracy: boolean;
  /** Appends the loss. */
  loss(g: Graph, features: Features, inputs: ModelInputs, output: LossOutput): void;
  /** The labels of a batch that count. */
  count(batch: Batch): number;
}

/** The next token at each position, or, of an encoder, the one there that was hidden: mean cross-entropy in nats, without targets that are IGNORE_INDEX. */
export const languageModel: Objective = {
  accuracy: false,
  labels: (classes, seq) => [{ name: 'targets', type: 'i32', row: [seq], below: classes, ignored: IGNORE_INDEX }],
  loss: (g, { hidden, head }, inputs, output) => crossEntropyHead(g, hidden, head, inputs.tensor('targets'), output),
  count(batch) {
    let valid = 0;
    for (const target of arrayOf(batch, 'targets', 'i32')) if (target !== IGNORE_INDEX) valid++;
    return valid;
  },
};

/** One class for each row of a batch, told from what a forward pass gives of it. */
export const classifier: Objective = {
  ...languageModel,
  accuracy: true,
  labels: (classes) => [{ name: 'targets', type: 'i32', row: [], below: classes, ignored: IGNORE_INDEX }],
};
