// `holdfast plan --compare --activations`: what becomes of activations under this project's plan and under the policies of the
// literature, on one machine: the smallest budget, and within some budgets a step's time, what it moves and makes again.

import { usableMemory } from '../../engine/simulate/machine.ts';
import type { Host } from '../../runtime/host.ts';
import { type ComparedTraining, compareActivations, type PolicyStep } from '../../train/plan/activation-comparison.ts';
import { formatBytes } from '../../util/bytes.ts';
import { changed, machineNamed } from './machine.ts';
import { duration } from './words.ts';

/** Where none is named: one whose memory is small beside what it computes. */
const DEFAULT_MACHINE = 'rtx-3050-laptop';

export interface ActivationFlags {
  readonly hardware?: readonly string[];
  readonly hostMemory?: number;
  readonly gpuMemory?: number;
  readonly reached?: number;
  readonly copies?: 'serial' | 'duplex';
  readonly json?: boolean;
}

/** `what` names the model. */
export async function compareOnActivations(
  host: Host,
  what: string,
  compared: ComparedTraining,
  { hardware: [name = DEFAULT_MACHINE] = [], hostMemory, gpuMemory, json = false, ...changes }: ActivationFlags,
): Promise<void> {
  const { write } = host.terminal;
  const machine = changed(await machineNamed(host, name), changes);
  const below = hostMemory ?? usableMemory(machine).host;
  const { budgets, resident, policies: found } = compareActivations(compared, machine, below, gpuMemory);
  const policies = [...found];
  if (json) {
    for (const { steps, ...policy } of policies) {
      const within = budgets.map((budget, i) => ({ budget, ...(steps[i] ?? { seconds: null }) }));
      write(`${JSON.stringify({ machine: machine.title, resident, ...policy, steps: within })}\n`);
    }
    return;
  }
  write(`${what} on ${machine.title}\n`);
  write(
    `everything on the GPU: ${formatBytes(resident.bytes)}, ${duration(resident.seconds)} a step; in columns: a step in multiples of that, ` +
      'what it moves over the link, and what it computes again\n\n',
  );
  const columns = budgets.map((budget) => `within ${formatBytes(budget)}`.padStart(CELL));
  write(`${'policy'.padEnd(NAME)}${'smallest'.padStart(10)}${columns.join('')}\n`);
  for (const { name, smallest, steps } of policies) {
    const least = Number.isFinite(smallest) ? formatBytes(smallest) : '–';
    const cells = steps.map((step) => (step ? cell(step, resident.seconds) : '–').padStart(CELL));
    write(`${name.padEnd(NAME)}${least.padStart(10)}${cells.join('')}\n`);
  }
  write(
    '\n– does not fit. All have this project’s placement, plan for chunks and executor; one that fills the room that it is\n',
  );
  write('given has the best of several rooms. What is theirs is the choice of activations, reimplemented:\n');
  for (const { name, paper, approximated } of policies) {
    if (paper) write(`  ${name}: ${paper}${approximated ? `; here, ${approximated}` : ''}\n`);
  }
}

const NAME = 20;
const CELL = 28;

const cell = ({ seconds, moved, recomputedShare }: PolicyStep, resident: number): string =>
  `${(seconds / resident).toFixed(3)} x  ${formatBytes(moved)}  ${(100 * recomputedShare).toFixed(1).padStart(4)} %`;
