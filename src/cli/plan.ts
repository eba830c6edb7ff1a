// holdfast plan: what training a model under a GPU budget would move and need, worked out on paper with no GPU.
// With --compare, how near each eviction policy comes to the least that any schedule moves.

import { Command, Option } from 'commander';
import type { Highs } from 'highs';
import { dryRun, nonModelMemory, type StepPrograms } from '../engine/dry-run.ts';
import { type ModelConfig, parseConfig } from '../formats/config.ts';
import { Graph, makeTensor, type Program, type Tensor } from '../graph/graph.ts';
import { crossEntropyHead } from '../graph/operators/cross-entropy.ts';
import { makeTokens } from '../graph/operators/embedding.ts';
import { makeStepScalars } from '../graph/operators/optimizer.ts';
import { linearBound, loadSolver } from '../memory/bound.ts';
import { type Compared, compare, median, movedChunks, PLANNER, ratioTo } from '../memory/compare.ts';
import { findGaps } from '../memory/gaps.ts';
import { chunkRange, ELEMENT_BYTES, searchLayout, type TiledLayout } from '../memory/layout.ts';
import { checkPlan, makePlan, printPlan } from '../memory/plan.ts';
import { planStep } from '../memory/planner.ts';
import { ORDERS } from '../memory/policies.ts';
import { chunkCount, leastBudget, modelDataBytes, slotsUnder, type Trace } from '../memory/trace.ts';
import { makeModel } from '../nn/index.ts';
import { lookup, type Model, parameterTensors } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { checked, whole } from './options.ts';

/** What every WebGPU adapter allows: a binding, and a buffer. */
const BINDING_BYTES = 128 * 2 ** 20;
const BUFFER_BYTES = 256 * 2 ** 20;

interface Flags {
  model: 'gpt2' | 'llama';
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  context: number;
  batch: number;
  accumulate: number;
  vocabSize: number;
  gpuMemory?: number;
  compare?: boolean;
  moments?: boolean;
  json?: boolean;
}

type Shape = Pick<Flags, 'model' | 'layers' | 'width' | 'heads' | 'kvHeads' | 'context' | 'vocabSize'>;

export function planCommand(host: Host): Command {
  return new Command('plan')
    .description('what training within a GPU budget would need and move, with no GPU')
    .addOption(new Option('--model <family>').choices(['gpt2', 'llama']).default('gpt2'))
    .option('--layers <n>', 'blocks', whole(1), 12)
    .option('--width <n>', 'embedding width', whole(1), 768)
    .option('--heads <n>', 'attention heads', whole(1), 12)
    .option('--kv-heads <n>', 'key and value heads, llama only (default: as many as heads)', whole(1))
    .option('--context <n>', 'tokens in a sequence', whole(1), 256)
    .option('--batch <n>', 'sequences in a micro-batch', whole(1), 1)
    .option('--accumulate <n>', 'micro-batches in a step', whole(1), 1)
    .option('--vocab-size <n>', 'tokens in the vocabulary', whole(2), 50257)
    .option(
      '--gpu-memory <bytes>',
      'the budget, as 64MB or 1.5GiB (default: half of what all would need)',
      checked(parseBytes),
    )
    .option('--moments', 'print what to do at each moment of a step')
    .option('--compare', 'eviction policies against the bound, on models and budgets of all sizes')
    .option('--json', 'one JSON object (with --compare, one a line)')
    .action(async (flags: Flags) => {
      const highs = await loadSolver();
      if (flags.compare) compareAll(host, highs, flags.json ?? false);
      else planOne(host, highs, flags);
    });
}

// ---- One model -----------------------------------------------------------------------------------------

function planOne(host: Host, highs: Highs, flags: Flags): void {
  const { write } = host.terminal;
  const model = makeModel(configOf(flags));
  const programs = traceStep(model, flags.batch, flags.context);
  const parameters = model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const smallest = smallestBudget(model, programs, flags.accumulate);
  const rough = nonModelMemory(programs, smallestLayout(model), BUFFER_BYTES);
  const other = rough.arenas + rough.persistent;
  const budget = flags.gpuMemory ?? other + 4 * ELEMENT_BYTES * (parameters / 2);
  if (budget < smallest) {
    const half = (change: Partial<Flags>) => {
      const changed = { ...flags, ...change };
      const smaller = makeModel(configOf({ ...changed, context: flags.context }));
      return formatBytes(smallestBudget(smaller, traceStep(smaller, changed.batch, changed.context), flags.accumulate));
    };
    const knobs = [
      ...(flags.batch > 1 ? [`--batch ${flags.batch >> 1} needs ${half({ batch: flags.batch >> 1 })}`] : []),
      ...(flags.context > 1 ? [`--context ${flags.context >> 1} needs ${half({ context: flags.context >> 1 })}`] : []),
    ];
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
        `budget that would do, ${formatBytes(other)} of it for activations and inputs; ${knobs.join(', ')}`,
    );
  }

  // Down to the smallest budget, whose own layout this is then.
  const layout = searchLayout(
    model.parameters,
    chunkRange(model.parameters, Math.max(0, budget - other), BINDING_BYTES),
  );
  const memory = nonModelMemory(programs, layout, BUFFER_BYTES);
  const nonModelBytes = memory.arenas + memory.persistent;
  const trace = dryRun(programs, { trainable: layout }, { accumulate: flags.accumulate, nonModelBytes });
  const slots = slotsUnder(trace, budget);
  const start = performance.now();
  const plan = makePlan(PLANNER, planStep(trace, slots));
  const milliseconds = performance.now() - start;
  const cost = checkPlan(trace, plan, slots);
  const linear = linearBound(highs, findGaps(trace, slots)).chunks;
  const bound = linear * trace.chunkBytes;
  const ratio = ratioTo(linear, cost);
  const waste = layout.padding / layout.held;

  if (flags.json) {
    const chunks = { bytes: trace.chunkBytes, perKind: layout.chunks, tiledTensors: layout.tiled, waste };
    const bytesPerStep = { h2d: cost.h2dBytes, d2h: cost.d2hBytes };
    write(
      `${JSON.stringify({
        parameters,
        modelDataBytes: modelDataBytes(trace),
        chunks,
        nonModelBytes: { ...memory, total: nonModelBytes },
        smallestBudget: smallest,
        budget,
        slots: Math.min(...slots),
        moments: trace.moments.length,
        bytesPerStep,
        bound: { lp: bound, ratio },
        planMilliseconds: milliseconds,
      })}\n`,
    );
    return;
  }
  const shown = (bytes: number) => formatBytes(bytes).padStart(8);
  write(
    [
      `${flags.model}, ${flags.layers} layers of width ${flags.width}, vocabulary ${flags.vocabSize}: ${parameters.toLocaleString('en')} parameters`,
      `  ${shown(modelDataBytes(trace))}  model data: parameters, gradients and two moments in f32`,
      `            ${layout.chunks} chunks of ${formatBytes(trace.chunkBytes)} a kind, ${layout.tiled} tensors tiled by rows, ${(100 * waste).toFixed(3)} % padding`,
      `  ${shown(memory.arenas)}  activations, batch ${flags.batch} x ${flags.context} (${formatBytes(memory.alive)} alive at once)`,
      `  ${shown(memory.persistent)}  inputs, scalars, masks, uniforms`,
      `  ${shown(smallest)}  is the smallest budget that would do`,
      `  ${shown(budget)}  budget: ${Math.min(...slots)} slots for ${chunkCount(trace)} chunks`,
      `a step of ${flags.accumulate} micro-batch${flags.accumulate === 1 ? '' : 'es'} moves`,
      `  ${shown(cost.h2dBytes)}  up, ${formatBytes(cost.d2hBytes)} down: ${ratio.toFixed(3)} x the least of any schedule (linear bound ${formatBytes(bound)})`,
      `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${cost.loads} loads, ${cost.stores} stores`,
      ...(flags.moments ? [printPlan(trace, plan)] : []),
      '',
    ].join('\n'),
  );
}

/** The least GPU memory under which a step runs, staging apart: with the smallest chunks that make sense. */
function smallestBudget(model: Model, programs: StepPrograms, accumulate: number): number {
  const layout = smallestLayout(model);
  const { arenas, persistent } = nonModelMemory(programs, layout, BUFFER_BYTES);
  return leastBudget(dryRun(programs, { trainable: layout }, { accumulate, nonModelBytes: arenas + persistent }));
}

function smallestLayout(model: Model): TiledLayout {
  return searchLayout(model.parameters, chunkRange(model.parameters, 0, BINDING_BYTES));
}

// ---- All policies --------------------------------------------------------------------------------------

interface Size {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
}

const SIZES: readonly Size[] = [
  { layers: 4, width: 256, heads: 4 },
  { layers: 12, width: 768, heads: 12 },
  { layers: 24, width: 1024, heads: 16 },
  { layers: 48, width: 1600, heads: 25 },
];
const SHARES = [0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9];
const EXACT_SECONDS = 2;

export interface Cell {
  readonly model: 'gpt2' | 'llama';
  readonly size: Size;
  readonly accumulate: number;
  /** Of the model data: what the budget leaves for chunks. */
  readonly share: number;
}

/** GPT-2 and Llama, 4 to 48 layers, 5 % to 90 % of the model data, one micro-batch a step and four. */
export const CELLS: readonly Cell[] = (['gpt2', 'llama'] as const).flatMap((model) =>
  SIZES.flatMap((size) => [1, 4].flatMap((accumulate) => SHARES.map((share) => ({ model, size, accumulate, share })))),
);

/** The trace of a cell, and the slots that its budget leaves at each moment. */
export function cellTrace({ model: family, size, accumulate, share }: Cell): { trace: Trace; slots: number[] } {
  const heads = family === 'llama' ? { kvHeads: size.heads % 4 === 0 ? size.heads / 4 : size.heads / 5 } : {};
  const vocabSize = family === 'llama' ? 32000 : 50257;
  const model = makeModel(configOf({ model: family, ...size, ...heads, context: 128, vocabSize }));
  const bytes =
    4 * ELEMENT_BYTES * model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const layout = searchLayout(model.parameters, chunkRange(model.parameters, share * bytes, BINDING_BYTES));
  const trace = dryRun(traceStep(model, 1, 128), { trainable: layout }, { accumulate });
  return { trace, slots: slotsUnder(trace, share * bytes) };
}

function compareAll(host: Host, highs: Highs, json: boolean): void {
  const { write } = host.terminal;
  const policies = [PLANNER, ...Object.keys(ORDERS)];
  const widths = policies.map((name) => Math.max(7, name.length));
  const columns = (values: readonly string[]) => values.map((value, i) => value.padStart(widths[i])).join('  ');
  const results: Compared[] = [];
  if (!json) {
    write('Chunks moved per step as a multiple of the linear bound; * proven to be the optimum\n');
    write(`model  layers  micro-batches  budget  chunks   bound   exact  ${columns(policies)}\n`);
  }
  for (const cell of CELLS) {
    const { trace, slots } = cellTrace(cell);
    const result = compare(highs, trace, slots, EXACT_SECONDS);
    results.push(result);
    const { linear, exact, costs } = result;
    const ratios = policies.map((name) => ratioTo(linear, costs.get(name) as never));
    if (json) {
      const moved = Object.fromEntries(
        [...costs].map(([name, cost]) => [name, { h2d: cost.h2dBytes, d2h: cost.d2hBytes }]),
      );
      const { model, size, accumulate, share } = cell;
      const facts = {
        model,
        layers: size.layers,
        accumulate,
        budget: share,
        chunks: chunkCount(trace),
        chunkBytes: trace.chunkBytes,
      };
      const bound = { lp: linear * trace.chunkBytes, ...(exact !== undefined && { milp: exact * trace.chunkBytes }) };
      const ratio = Object.fromEntries(policies.map((name, i) => [name, ratios[i]]));
      write(`${JSON.stringify({ ...facts, bound, bytesPerStep: moved, ratio })}\n`);
      continue;
    }
    const optimal = exact !== undefined && movedChunks(costs.get(PLANNER) as never) === exact;
    const texts = ratios.map((ratio, i) => ratio.toFixed(3) + (i === 0 ? (optimal ? '*' : ' ') : ''));
    write(
      `${cell.model.padEnd(5)}  ${String(cell.size.layers).padStart(6)}  ${String(cell.accumulate).padStart(13)}  ` +
        `${`${cell.share * 100} %`.padStart(6)}  ${String(chunkCount(trace)).padStart(6)}  ${linear.toFixed(1).padStart(6)}  ` +
        `${String(exact ?? '').padStart(6)}  ${columns(texts)}\n`,
    );
  }
  const summary = policies.map((name) => {
    const ratios = results.map(({ linear, costs }) => ratioTo(linear, costs.get(name) as never));
    return { name, median: median(ratios), worst: Math.max(...ratios) };
  });
  if (json) {
    write(`${JSON.stringify({ cells: results.length, summary })}\n`);
    return;
  }
  const rest = ' '.repeat(45);
  write(`\n${'median'.padEnd(15)}${rest.slice(0, 45)}${columns(summary.map(({ median }) => median.toFixed(3)))}\n`);
  write(`${'worst'.padEnd(15)}${rest.slice(0, 45)}${columns(summary.map(({ worst }) => worst.toFixed(3)))}\n`);
  write(
    '\nPatrickStar’s and Gemini’s orders and ZeRO-Offload’s split are reimplementations of their choice of victims only;\n' +
      'all policies drop clean chunks and free dead ones, as Holdfast does.\n',
  );
}

// ---- Models and programs -------------------------------------------------------------------------------

function configOf({ model, layers, width, heads, kvHeads = heads, context, vocabSize }: Shape): ModelConfig {
  if (width % heads !== 0) {
    throw new HoldfastError(
      `--width ${width} is not divisible by --heads ${heads}; ${Math.max(1, Math.round(width / heads)) * heads} would work`,
    );
  }
  if (model === 'gpt2') {
    if (kvHeads !== heads)
      throw new HoldfastError('--kv-heads: gpt2 has as many as heads; use --model llama for grouped heads');
    const shape = { n_layer: layers, n_embd: width, n_head: heads, n_positions: context };
    return parseConfig({ model_type: 'gpt2', vocab_size: vocabSize, ...shape }, 'the flags');
  }
  return parseConfig(
    {
      model_type: 'llama',
      vocab_size: vocabSize,
      hidden_size: width,
      intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads,
      max_position_embeddings: context,
      tie_word_embeddings: false,
    },
    'the flags',
  );
}

/** The programs of a step, as the trainer traces them, on no device. */
export function traceStep(model: Model, batch: number, seq: number): StepPrograms {
  const tokens = makeTokens(batch, seq);
  const scalars = makeStepScalars();
  const parameters = parameterTensors(model, true);
  const gradients = new Map<Tensor, Tensor>();
  for (const parameter of parameters.values()) {
    if (parameter.wantsGradient) gradients.set(parameter, makeTensor(parameter.name, parameter.shape, 'gradient'));
  }
  const weights = lookup(parameters);
  const trace = (name: string, accumulate: boolean, backward: boolean): Program => {
    const g = new Graph(name, { gradientOf: (parameter) => gradients.get(parameter) as Tensor, accumulate });
    const { hidden, head } = model.forward(g, tokens, weights);
    const scale = backward ? { scale: scalars.lossScale } : {};
    crossEntropyHead(g, hidden, head, tokens, { sum: scalars.lossSum, accumulate, ...scale });
    if (backward) g.backward([...parameters.values()]);
    return g.program();
  };
  return {
    first: trace('first micro-batch', false, true),
    next: trace('next micro-batch', true, true),
    evaluate: trace('evaluate', true, false),
    scalars,
  };
}
