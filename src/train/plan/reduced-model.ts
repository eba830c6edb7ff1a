// `ReducedModel`: the model of a scenario on a machine, worked out on fewer blocks and stages, with its figures for all of them.
//
// The blocks of a deep model are alike: what they add to memory and to arithmetic is the difference of two models of fewer
// blocks, exactly. A long pipeline is worked out on fewer stages: each more of them, and each more micro-batch, takes as long as
// the last one that is followed. Memory is that of the real stages.

import { type Machine, partOfMachine } from '../../engine/simulate/machine.ts';
import { neighboursOf } from '../../engine/simulate/network.ts';
import { checkStages } from '../../nn/pipeline-parallel.ts';
import { at } from '../../util/at.ts';
import { Parts, type PredictedPart, type Scenario } from './prediction-part.ts';

/** Models of no more blocks are worked out whole; deeper ones on so many, and half as many. */
const WHOLE = 12;
const PART = 8;
/** Of several ranks: on so many a stage, in chunks that are smaller in proportion, so that as many of them have room. */
const SHARED_PART = 4;
/** Stages that are followed, where more are reckoned; with two micro-batches more than there are, where more are: the one before the last is like no end of a step. */
const FOLLOWED = 3;

/** A stage of the blocks that are followed, and of half as many; one of them where all are. */
export interface FollowedStage {
  readonly large: PredictedPart;
  readonly small: PredictedPart;
}

/** A pipeline that is followed, and how often a step has what it does: figures are sums. */
export interface FollowedPipeline {
  readonly times: number;
  readonly stages: readonly FollowedStage[];
}

/** Figures of two parts have a difference of blocks alone where both are cut into chunks of one size. */
const like = ({ chunkBytes }: PredictedPart) => ({ chunkBytes });

/** Bytes of a real stage. */
interface StageMemory {
  readonly smallest: number;
  readonly resident: number;
}

export class ReducedModel {
  readonly machine: Machine;
  /** Blocks that it is worked out on. */
  readonly blocks: number;
  readonly smallest: number;
  /** Everything at once: bytes, and seconds of a step in which nothing is waited for. Both of the rank with most. */
  readonly resident: { readonly bytes: number; readonly seconds: number };
  /** Seconds of a step with everything on the GPU and all activations kept: what each mode of them is held against. */
  readonly fastest: number;
  /** Of each stage, of many the first and the last: its smallest budget, and everything on the GPU. */
  readonly memory: readonly StageMemory[];
  /** Multiplications and additions of a resident step, of a rank on average. */
  readonly flops: number;
  readonly scenario: Scenario;
  readonly parts: Parts;
  readonly runs: readonly FollowedPipeline[];
  /** Blocks of a real stage. */
  readonly #each: number;

  /** Errors: HoldfastError for a shape that makes no model, for ranks that are no such grid or that no network reaches. */
  constructor(scenario: Scenario, machine: Machine, mostBlocks = WHOLE) {
    const { layers, accumulate, reckonsMicroBatches, ranks } = scenario;
    if (ranks) neighboursOf(machine, ranks.size);
    this.machine = ranks ? partOfMachine(machine, ranks.size) : machine;
    this.scenario = scenario;
    this.parts = new Parts(scenario, this.machine);
    const { pipeline } = this.parts;
    checkStages(layers, pipeline);
    this.#each = Math.ceil(layers / pipeline);
    const stages = Math.min(pipeline, FOLLOWED);
    const isWhole = layers <= mostBlocks && stages === pipeline;
    const each = Math.min(ranks ? SHARED_PART : PART, mostBlocks, this.#each);
    this.blocks = isWhole ? layers : each * stages;
    const microBatches = reckonsMicroBatches ? Math.min(accumulate, stages + 2) : accumulate;
    const [more, longer] = [accumulate - microBatches, pipeline - stages];
    const run = (times: number, stages: number, microBatches: number): FollowedPipeline[] => {
      const followed = Array.from({ length: times === 0 ? 0 : stages }, (_, rank): FollowedStage => {
        const options = { stage: { rank, size: stages }, microBatches };
        const large = this.parts.of({ ...options, blocks: isWhole ? layers : each * stages });
        const isAll = isWhole || each === this.#each;
        return {
          large,
          small: isAll ? large : this.parts.of({ ...options, ...like(large), blocks: Math.max(1, each >> 1) * stages }),
        };
      });
      return times === 0 ? [] : [{ times, stages: followed }];
    };
    this.runs = [
      ...run(1 + more + longer, stages, microBatches),
      ...run(-more, stages, microBatches - 1),
      ...run(-longer, stages - 1, microBatches),
    ];
    const { stages: first } = at(this.runs, 0);
    const real = longer === 0 ? first : this.#ends(each);
    this.memory = real.map((stage) => this.#memoryOf(stage));
    const reckoned = first.map((_, i) => (of: (part: PredictedPart) => number) => {
      return this.reckoned((one) => this.grown(stageIn(one, i, i === first.length - 1), of));
    });
    const most = (of: (memory: StageMemory) => number) => Math.max(...this.memory.map(of));
    this.smallest = most(({ smallest }) => smallest);
    this.resident = {
      bytes: most(({ resident }) => resident),
      seconds: Math.max(...reckoned.map((sum) => sum(({ seconds }) => seconds))),
    };
    this.fastest = Math.max(...reckoned.map((sum) => sum(({ keptSeconds }) => keptSeconds)));
    // Stages that are not followed are like those between the ends.
    this.flops = reckoned.reduce((total, sum, i) => {
      const alike = i > 0 && i < stages - 1 ? (pipeline - 2) / (stages - 2) : 1;
      return total + (alike * sum(({ flops }) => flops)) / pipeline;
    }, 0);
  }

  /** Of a long pipeline: the stages with most micro-batches, and with the head. */
  #ends(each: number): FollowedStage[] {
    const { pipeline } = this.parts;
    const { accumulate } = this.scenario;
    return [0, 1].map((rank) => {
      const inPipeline = { rank: rank * (pipeline - 1), size: pipeline };
      const options = { stage: { rank, size: 2 }, inPipeline, microBatches: Math.min(accumulate, pipeline) };
      const large = this.parts.of({ ...options, blocks: 2 * each });
      const blocks = 2 * Math.max(1, each >> 1);
      return { large, small: each === this.#each ? large : this.parts.of({ ...options, ...like(large), blocks }) };
    });
  }

  #memoryOf(stage: FollowedStage): StageMemory {
    const { large, small } = stage;
    // Chunks are as large whatever the number of blocks, but for the packing.
    const chunkBytes = (part: PredictedPart) => part.need().smallest - part.need().arenas;
    const arenas = this.grown(stage, (part) => part.need().arenas);
    const smallest = Math.ceil(arenas + Math.max(chunkBytes(large), chunkBytes(small)));
    const resident = Math.max(smallest, Math.ceil(this.grown(stage, ({ wholeBytes }) => wholeBytes)));
    return { smallest, resident };
  }

  /** A figure of a stage with all of its blocks, from those of two parts of it. */
  grown({ large, small }: FollowedStage, of: (part: PredictedPart) => number): number {
    const [more, fewer] = [of(large), of(small)];
    if (large === small) return more;
    const [blocks, others] = [large.blocks / large.stage.size, small.blocks / small.stage.size];
    return more + ((this.#each - blocks) * (more - fewer)) / (blocks - others);
  }

  /** A figure of all micro-batches and stages, from those of the pipelines that are followed. */
  reckoned(of: (run: FollowedPipeline) => number): number {
    return this.runs.reduce((sum, run) => sum + run.times * of(run), 0);
  }
}

/** The stage of another pipeline that is followed that has as much to do: the last one has the head. */
const stageIn = ({ stages }: FollowedPipeline, i: number, isLast: boolean): FollowedStage =>
  at(stages, isLast ? stages.length - 1 : Math.min(i, stages.length - 2));
