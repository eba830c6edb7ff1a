// `holdfast plan --compare`: how near each eviction policy comes to the least that any schedule moves, over
// models, budgets and micro-batches of all sizes.

import type { Highs } from 'highs';
import { stepPass } from '../../engine/compile/pass.ts';
import { DEFAULT_LIMITS } from '../../engine/compile/workload.ts';
import { parseConfig } from '../../formats/config.ts';
import { FAMILIES, type FamilyName, shapeOf } from '../../formats/families/index.ts';
import { mapChunks } from '../../memory/layout/chunk-map.ts';
import { type MomentDtype, trainedElementBytes } from '../../memory/layout/kinds.ts';
import { chunkRange } from '../../memory/layout/layout.ts';
import { compare, costOf, movedChunks, PLANNER, type PlanComparison, ratioTo } from '../../memory/plan/compare.ts';
import { ORDERS } from '../../memory/plan/policies.ts';
import { chunkCount, slotsUnder, type Trace } from '../../memory/plan/trace.ts';
import { makeModel } from '../../nn/index.ts';
import { momentsIn, parameterCount } from '../../nn/model.ts';
import type { Host } from '../../runtime/host.ts';
import { traceStep } from '../../train/step/step-programs.ts';
import { at } from '../../util/at.ts';
import { median } from '../../util/median.ts';
import { configFromFlags } from '../model-flags.ts';

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
  readonly model: FamilyName;
  readonly size: Size;
  readonly accumulate: number;
  /** Of the model data: what the budget leaves for chunks. */
  readonly share: number;
}

/** GPT-2 and Llama, whose sizes the other families have, 4 to 48 layers, 5 % to 90 % of the model data, one micro-batch a step and four. */
export const CELLS: readonly Cell[] = (['gpt2', 'llama'] as const).flatMap((model) =>
  SIZES.flatMap((size) => [1, 4].flatMap((accumulate) => SHARES.map((share) => ({ model, size, accumulate, share })))),
);

/** The trace of a cell with moments kept so, and the slots that its budget leaves at each moment. */
export function cellTrace(
  { model: family, size, accumulate, share }: Cell,
  momentDtype: MomentDtype = 'f32',
): { trace: Trace; slots: number[] } {
  const grouped = size.heads % 4 === 0 ? size.heads / 4 : size.heads / 5;
  const heads = FAMILIES[family].groupedHeads ? { kvHeads: grouped } : {};
  const { vocabulary: vocabSize } = shapeOf(parseConfig({ model_type: family }, 'its defaults'));
  const config = configFromFlags({ model: family, ...size, ...heads, context: 128, vocabSize, tied: false });
  const model = momentsIn(makeModel(config), momentDtype);
  const bytes = trainedElementBytes('f32', momentDtype) * parameterCount(model);
  const map = mapChunks(model.parameters, true, chunkRange(model.parameters, share * bytes, DEFAULT_LIMITS.binding));
  const { trace } = stepPass(traceStep(model, 1, 128), map, accumulate);
  return { trace, slots: slotsUnder(trace, share * bytes) };
}

/** Prints how near each policy comes to the linear bound, cell by cell, then the medians and the worst. */
export function printComparison(host: Host, highs: Highs, json: boolean, momentDtype: MomentDtype): void {
  const { write } = host.terminal;
  const policies = [PLANNER, ...Object.keys(ORDERS)];
  const widths = policies.map((name) => Math.max(7, name.length));
  const columns = (values: readonly string[]) => values.map((value, i) => value.padStart(at(widths, i))).join('  ');
  const results: PlanComparison[] = [];
  if (!json) {
    write('Chunks moved per step as a multiple of the linear bound; * proven to be the optimum\n');
    write(`model  layers  micro-batches  budget  chunks   bound   exact  ${columns(policies)}\n`);
  }
  for (const cell of CELLS) {
    const { trace, slots } = cellTrace(cell, momentDtype);
    const result = compare(highs, trace, slots, EXACT_SECONDS);
    results.push(result);
    const { linear, exact, costs } = result;
    const ratios = policies.map((name) => ratioTo(linear, costOf(costs, name)));
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
    const optimal = exact !== undefined && movedChunks(costOf(costs, PLANNER)) === exact;
    const texts = ratios.map((ratio, i) => ratio.toFixed(3) + (i === 0 ? (optimal ? '*' : ' ') : ''));
    write(
      `${cell.model.padEnd(5)}  ${String(cell.size.layers).padStart(6)}  ${String(cell.accumulate).padStart(13)}  ` +
        `${`${cell.share * 100} %`.padStart(6)}  ${String(chunkCount(trace)).padStart(6)}  ${linear.toFixed(1).padStart(6)}  ` +
        `${String(exact ?? '').padStart(6)}  ${columns(texts)}\n`,
    );
  }
  const summary = policies.map((name) => {
    const ratios = results.map(({ linear, costs }) => ratioTo(linear, costOf(costs, name)));
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
