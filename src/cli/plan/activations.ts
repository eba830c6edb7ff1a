// `holdfast plan --compare --activations`: what becomes of activations under this project's plan and under the policies of the
// literature, on one machine: the smallest budget, and within some budgets a step's time, what it moves and makes again.

import { usableMemory } from '../../engine/simulate/machine.ts';
import { loadSolver } from '../../memory/plan/bound.ts';
import type { Host } from '../../runtime/host.ts';
import { compareActivations, type PolicyStep } from '../../train/plan/activation-comparison.ts';
import { formatBytes } from '../../util/bytes.ts';
import { type PlannedRun, plannedModel, plannedName, sharesRows } from './flags.ts';
import { changed, machineNamed } from './machine.ts';
import { duration } from './words.ts';

/** Where none is named: one whose memory is small beside what it computes. */
const DEFAULT_MACHINE = 'rtx-3050-laptop';

export async function compareOnActivations(host: Host, run: PlannedRun): Promise<void> {
  const { hardware: [name = DEFAULT_MACHINE] = [], hostMemory, gpuMemory, json = false, ...changes } = run.flags;
  const { recovery = 'auto' } = run.flags;
  const { batch, seq: context, accumulate } = run.settings;
  const compared = { model: plannedModel(run), batch, context, accumulate, recovery, packed: sharesRows(run.settings) };
  const { write } = host.terminal;
  const machine = changed(await machineNamed(host, name), changes);
  const below = hostMemory ?? usableMemory(machine).host;
  const { budgets, resident, policies: found, bounds } = compareActivations(compared, machine, below, gpuMemory);
  const policies = [...found];
  const least = bounds(await loadSolver());
  if (json) {
    for (const { steps, ...policy } of policies) {
      const within = budgets.map((budget, i) => ({
        budget,
        ...(least[i] !== undefined && { bound: Number.isFinite(least[i]) ? least[i] : null }),
        ...(steps[i] ?? { seconds: null }),
      }));
      write(`${JSON.stringify({ machine: machine.title, resident, ...policy, steps: within })}\n`);
    }
    return;
  }
  write(`${plannedName(run)} on ${machine.title}\n`);
  write(
    `everything on the GPU: ${formatBytes(resident.bytes)}, ${duration(resident.seconds)} a step; in columns: a step in multiples of that, ` +
      'what it moves over the link, and what it computes again\n\n',
  );
  const columns = budgets.map((budget) => `within ${formatBytes(budget)}`.padStart(CELL));
  write(`${'policy'.padEnd(NAME)}${'smallest'.padStart(10)}${columns.join('')}\n`);
  for (const { name, smallest, steps } of policies) {
    const budget = Number.isFinite(smallest) ? formatBytes(smallest) : '–';
    const cells = steps.map((step) => (step ? cell(step, resident.seconds) : '–').padStart(CELL));
    write(`${name.padEnd(NAME)}${budget.padStart(10)}${cells.join('')}\n`);
  }
  const cells = least.map((seconds) => bound(seconds, resident.seconds).padStart(CELL));
  write(`${BOUND.padEnd(NAME)}${''.padStart(10)}${cells.join('')}\n`);
  write(
    `\n– does not fit; ${BOUND}: no plan is faster whose blocks do not go in slices of rows, ? where that is not worked out (several\n` +
      'micro-batches, or more than a minute). All have this project’s placement, plan for chunks and executor; one that fills the\n',
  );
  write(
    'room that it is given has the best of several rooms. What is theirs is the choice of activations, reimplemented:\n',
  );
  for (const { name, paper, approximated } of policies) {
    if (paper) write(`  ${name}: ${paper}${approximated ? `; here, ${approximated}` : ''}\n`);
  }
}

/** The row of the linear program. */
const BOUND = 'least (bound)';

const NAME = 20;
const CELL = 28;

/** As wide behind its multiple as `cell`. */
const bound = (seconds: number | undefined, resident: number): string =>
  seconds === undefined
    ? '?'
    : !Number.isFinite(seconds)
      ? '–'
      : `${(seconds / resident).toFixed(3)} x${' '.repeat(17)}`;

const cell = ({ seconds, moved, recomputedShare }: PolicyStep, resident: number): string =>
  `${(seconds / resident).toFixed(3)} x  ${formatBytes(moved)}  ${(100 * recomputedShare).toFixed(1).padStart(4)} %`;
