// The programs of training as one workload: a step, an evaluation and what generation needs, in each order that the
// micro-batches may go in and with whatever becomes of activations. It needs no device: `holdfast plan` works out what a
// trainer then runs. Invariant: every choice among the orders and activation modes gives the same bits.

import { type Pass, readingPass, type StepPasses, stepPass, type TracedStep } from '../../engine/compile/pass.ts';
import type { ActivationChoice, OrderChoice, Workload } from '../../engine/compile/workload.ts';
import { mostChunkFor, type Sharding } from '../../engine/ranks/sharding.ts';
import {
  type ActivationMode,
  BLOCK_MODES,
  blocksOf,
  bytesWith,
  type HeadCut,
  isSliced,
  SLICED,
  withActivations,
  withSlices,
} from '../../graph/activations.ts';
import { withoutCopies } from '../../graph/copy-elision.ts';
import { withFusedTotals } from '../../graph/fused-totals.ts';
import type { GridPlace } from '../../graph/grid-place.ts';
import { ACCUMULATE_ORDERS, type AccumulateOrder, layerMajor, reorderedGradient } from '../../graph/layer-major.ts';
import { microBatchesAtOnce, oneForwardOneBackward } from '../../graph/pipeline.ts';
import type { Program } from '../../graph/program.ts';
import { SLICE_COUNTS } from '../../graph/row-slices.ts';
import { withSharedTables } from '../../graph/shared-table.ts';
import { withDecision } from '../../graph/update-in-backward.ts';
import { trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { indicesTogether } from '../../memory/layout/kinds.ts';
import { bytesHeld } from '../../memory/layout/layout.ts';
import type { Model } from '../../nn/model.ts';
import type { ModelStages } from '../../nn/pipeline-parallel.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import { type Generation, type GenerationPasses, generationPasses } from '../inference/generation-workload.ts';
import type { StepPrograms } from './step-programs.ts';
import { stepReadback } from './stepper.ts';

/** Those of generation where the trainer generates. */
export type TrainingPasses = StepPasses & { readonly evaluate: Pass; readonly evaluated?: Pass } & GenerationPasses;

/** Each is a moment of the plan, or several: some kilobytes. */
const MOST_OPERATORS = 2 ** 18;

/** What may be left to the budget, or said. */
export interface WorkloadOptions {
  /** What becomes of the activations of each block. @default 'auto' */
  readonly activations?: ActivationMode | 'auto' | undefined;
  /** See MemoryOptions. @default 'auto' */
  readonly accumulateOrder?: AccumulateOrder | 'auto' | undefined;
  /** Of several ranks: this one's place, and what they share. @default it is alone */
  readonly sharding?: WorkloadSharding | undefined;
  /** Of a stage on paper: the one of a longer pipeline whose order of micro-batches it has. @default its own */
  readonly inPipeline?: GridPlace | undefined;
}

/**
 * The programs of training, as one workload: what `holdfast plan` works out and what a trainer runs. Errors: HoldfastError
 * for a step of more operators than can be planned, and for an order of micro-batches that would change its results.
 */
export function trainingWorkload(
  model: Model,
  programs: StepPrograms,
  accumulate: number,
  generation?: Generation,
  { activations = 'auto', accumulateOrder = 'auto', sharding, inPipeline }: WorkloadOptions = {},
): Workload<TrainingPasses> {
  checkOperators(programs, accumulate);
  const asked = { model, programs, accumulate, generation, activations, sharding, inPipeline };
  const orders = ordersOf(programs, accumulate, accumulateOrder);
  const known = new Map<AccumulateOrder, Workload<TrainingPasses>>();
  const inOrder = (order: AccumulateOrder): Workload<TrainingPasses> => {
    const found = known.get(order) ?? new TrainingInOrder(asked, { order, menu: orders, with: inOrder }).workload;
    known.set(order, found);
    return found;
  };
  return inOrder(at(orders, 0));
}

/** What is to be trained, in whatever order and with whatever becomes of activations. */
interface AskedTraining extends Pick<WorkloadOptions, 'sharding' | 'inPipeline'> {
  readonly model: Model;
  readonly programs: StepPrograms;
  readonly accumulate: number;
  readonly generation: Generation | undefined;
  readonly activations: ActivationMode | 'auto';
}

const ONE_BY_ONE =
  '--update in-backward: micro-batches one after the other hold the gradients of all chunks from one to the next';

/** The orders that micro-batches may go in, the one that needs the least memory first. */
function ordersOf(
  programs: StepPrograms,
  accumulate: number,
  asked: AccumulateOrder | 'auto',
): readonly AccumulateOrder[] {
  if (accumulate === 1 || programs.stages) return ['batch'];
  const { inBackward } = programs;
  if (asked === 'batch') {
    if (inBackward)
      throw new HoldfastError(`${ONE_BY_ONE}; let them go layer by layer (--accumulate-order layer, or auto)`);
    return [asked];
  }
  const reordered = reorderedGradient(withSharedTables(programs))?.name;
  if (reordered === undefined) return asked === 'auto' && !inBackward ? ACCUMULATE_ORDERS : ['layer'];
  if (inBackward)
    throw new HoldfastError(`${ONE_BY_ONE}, and two parts of this model share ${reordered}; use --accumulate 1`);
  if (asked === 'auto') return ['batch'];
  throw new HoldfastError(
    `micro-batches layer by layer: two parts of this model share ${reordered}, and its gradient would add up in another ` +
      'order; let them go one after the other (--accumulate-order batch, or auto)',
  );
}

/** What becomes of activations: the mode of each block, rows that the head takes at once, and slices of blocks that go in slices. */
interface Treatment {
  readonly modes: readonly ActivationMode[];
  readonly head: HeadCut | undefined;
  readonly slices: number;
}

/** Training with its micro-batches in one order: a workload for each treatment of activations, made once. */
class TrainingInOrder {
  readonly #asked: AskedTraining;
  readonly #order: OrderChoice<TrainingPasses>;
  readonly #blocks: readonly string[];
  readonly #menu: readonly ActivationMode[];
  /** Of activations that are kept in any case: what may not be left has what it can to fit. */
  readonly #usualHead: HeadCut | undefined;
  readonly #sparing: ActivationChoice<TrainingPasses>['sparing'];
  readonly #known = new Map<string, Workload<TrainingPasses>>();

  constructor(asked: AskedTraining, order: OrderChoice<TrainingPasses>) {
    const { programs, activations, sharding } = asked;
    this.#asked = asked;
    this.#order = order;
    this.#blocks = blocksOf(programs.first);
    this.#menu = activations === 'auto' ? [...BLOCK_MODES] : [activations];
    this.#usualHead = activations === 'keep' ? 'some' : undefined;
    const isSpared = activations === 'auto' && !sharding && !programs.stages;
    const modes = Object.keys(SLICED) as (keyof typeof SLICED)[];
    this.#sparing = isSpared ? modes.map((mode) => () => this.#inSlices(mode)) : undefined;
  }

  /** With the first mode of the menu in all blocks. */
  get workload(): Workload<TrainingPasses> {
    const [most = 'keep'] = this.#menu;
    return this.#with(this.#blocks.map(() => most));
  }

  /** All blocks in slices of rows. Each takes its time to be made, and the first is mostly enough. */
  *#inSlices(mode: keyof typeof SLICED): Generator<Workload<TrainingPasses>, void> {
    const { evaluate } = this.#asked.programs;
    if (withSlices(evaluate, () => mode) === evaluate) return;
    const modes = this.#blocks.map(() => mode);
    for (const slices of SLICE_COUNTS) yield this.#with(modes, this.#usualHead, slices);
  }

  #with(
    modes: readonly ActivationMode[],
    head: HeadCut | undefined = this.#usualHead,
    slices: number = SLICE_COUNTS[0],
  ): Workload<TrainingPasses> {
    const key = `${modes.join()} ${head} ${slices}`;
    const found = this.#known.get(key) ?? this.#make({ modes, head, slices });
    this.#known.set(key, found);
    return found;
  }

  #make(treatment: Treatment): Workload<TrainingPasses> {
    const { model, programs, accumulate, generation, sharding } = this.#asked;
    const { update, inBackward, evaluated, stages } = programs;
    const { step, evaluation } = this.#treated(treatment);
    const { inOne, first, next } = step;
    const micro = inOne ? [inOne.program] : accumulate > 1 ? [first, next] : [first];
    return {
      parameters: model.parameters,
      training: true,
      ...(inBackward && { inBackward }),
      ...(sharding && { isShared: true, chunkLimits: chunkLimitsOf(model, sharding, stages) }),
      programs: [...micro, update, evaluation, ...(evaluated ? [evaluated] : []), ...(generation?.programs ?? [])],
      passes: (map, most = accumulate) => ({
        step: stepPass(step, map, Math.min(accumulate, most)),
        evaluate: readingPass(evaluation, map, sharding),
        ...(evaluated && { evaluated: readingPass(evaluated, map) }),
        ...(generation && generationPasses(generation, map, sharding)),
      }),
      readback: stepReadback(programs.scalars.state.size),
      activations: this.#choice(treatment, evaluation),
      ...(accumulate > 1 && { order: this.#order }),
    };
  }

  /** The programs with activations treated so, and the micro-batches of a step in this order. */
  #treated({ modes, head, slices }: Treatment): { readonly step: TracedStep; readonly evaluation: Program } {
    const { programs, accumulate, sharding } = this.#asked;
    const { update, inBackward, evaluate, inputs, dropoutKey, squares, scalars, tied } = programs;
    const modeOf = (block: string) => modes[this.#blocks.indexOf(block)] ?? 'keep';
    const ended = (program: Program) => withoutCopies(inBackward ? withDecision(program, inBackward) : program);
    const once = withFusedTotals(withActivations(programs.first, modeOf, head, slices));
    const again = accumulate > 1 ? withFusedTotals(withActivations(programs.next, modeOf, head, slices)) : once;
    const brought = [...inputs.all, ...(dropoutKey ? [dropoutKey] : [])];
    const place = this.#place;
    const together = place
      ? oneForwardOneBackward({ first: once, next: again }, place, accumulate, { inputs: brought, tied })
      : this.#isByLayer
        ? layerMajor(withSharedTables({ first: once, next: again }), accumulate, brought)
        : undefined;
    const inOne = together && { ...together, program: ended(together.program) };
    const first = inOne ? once : ended(once);
    const next = inOne || accumulate === 1 ? again : withoutCopies(again);
    const sharded = sharding && { ...sharding, squares, lossSum: scalars.lossSum };
    return {
      step: { first, next, inOne, update, inBackward, sharded },
      evaluation: withSlices(evaluate, modeOf, head, slices),
    };
  }

  #choice({ modes, head }: Treatment, evaluation: Program): ActivationChoice<TrainingPasses> {
    const { programs, accumulate } = this.#asked;
    const place = this.#place;
    /** Micro-batches whose activations are there at once. */
    const alive = this.#isByLayer ? accumulate : place ? microBatchesAtOnce(place, accumulate) : 1;
    return {
      modes,
      menu: this.#menu,
      ...(this.#sparing && { sparing: this.#sparing }),
      with: (other) => this.#with(other),
      ...(head === this.#usualHead && { withOtherHead: () => this.#withOtherHead(modes, evaluation) }),
      mainOf: (passes) => passes.step,
      rounds: this.#isByLayer ? 1 : accumulate,
      keptBytes: (mode) => alive * bytesWith(programs.first, mode, 'keep').reduce((a, b) => a + b, 0),
    };
  }

  #withOtherHead(modes: readonly ActivationMode[], evaluation: Program): Workload<TrainingPasses> | undefined {
    const { evaluate } = this.#asked.programs;
    if (modes.some(isSliced)) return undefined;
    if (evaluation !== evaluate) return this.#with(modes, 'all');
    return withSlices(evaluate, () => 'keep', 'some') === evaluate ? undefined : this.#with(modes, 'some');
  }

  get #isByLayer(): boolean {
    return this.#order.order === 'layer';
  }

  /** Of a stage: whose order of micro-batches it has. */
  get #place(): GridPlace | undefined {
    const { programs, inPipeline } = this.#asked;
    return programs.stages && (inPipeline ?? programs.stages.place);
  }
}

/** How a workload is shared by several ranks. */
export interface WorkloadSharding extends Sharding {
  /** As rank 0 has chosen it. @default what every rank would choose */
  readonly chunkBytes?: number | undefined;
}

function chunkLimitsOf(
  { parameters }: Model,
  { chunkBytes, ...sharding }: WorkloadSharding,
  stages: ModelStages | undefined,
) {
  const fixed = stages ? { isFixed: true, holds: stages.leastChunk } : {};
  if (chunkBytes !== undefined) return { leastChunk: chunkBytes, mostChunk: chunkBytes, ...fixed };
  const trained = parameters.filter(({ trainable }) => trainable !== false);
  const frozen = parameters.filter(({ trainable }) => trainable === false);
  const kinds = trainedKindsOf(trained);
  // A rank may own a chunk of each list more than others do: of all lists together, where the frozen ones are dealt out, too.
  const lists = kinds.length + new Set(frozen.map(({ stored = 'f32' }) => stored)).size;
  const mean = (kinds.length * bytesHeld(trained) + bytesHeld(frozen)) / lists;
  const shared = sharding.stage === 3 ? Math.max(bytesHeld(trained), mean) : bytesHeld(trained);
  const mostChunk = mostChunkFor(shared, sharding, indicesTogether(kinds));
  // The chunks of one stage are those of all.
  return { mostChunk, ...fixed, ...(stages && { leastChunk: stages.leastChunk }) };
}

/** Errors: HoldfastError for a step of more operators than are planned, with as many micro-batches as may be. */
export function checkOperators({ first, next }: Pick<StepPrograms, 'first' | 'next'>, accumulate: number): void {
  const operators = first.instructions.length + (accumulate - 1) * next.instructions.length;
  if (operators <= MOST_OPERATORS) return;
  const most = 1 + Math.floor((MOST_OPERATORS - first.instructions.length) / next.instructions.length);
  throw new HoldfastError(
    `a step of ${accumulate} micro-batches of this model has ${operators} operators, ${MOST_OPERATORS} at most are planned; ` +
      (most > 0 ? `accumulate at most ${most}` : 'use fewer layers'),
  );
}
