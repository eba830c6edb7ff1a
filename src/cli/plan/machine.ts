// `holdfast plan --hardware`: what training would take on a machine that is described in a file, in words that one acts
// on; and with --sweep, the time of a step over the budget as a picture.

import { type ExchangeAxis, gridPlacesOf } from '../../engine/ranks/grid.ts';
import { hardwareNames, knownMachine, parseHardware } from '../../engine/simulate/hardware.ts';
import { type ExchangeWay, type Machine, usableMemory } from '../../engine/simulate/machine.ts';
import type { SimulatedStep, Waited } from '../../engine/simulate/step.ts';
import { renderSweep, SWEEP_BEGINS } from '../../report/sweep.ts';
import type { Host } from '../../runtime/host.ts';
import { MOST_SETTINGS_BYTES, readWhole } from '../../runtime/read-whole.ts';
import { type Prediction, Predictor } from '../../train/plan/prediction.ts';
import type { Scenario } from '../../train/plan/prediction-part.ts';
import { type Scaling, scale } from '../../train/plan/scaling.ts';
import { rankText } from '../../train/run/ranks.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { describeOrder } from '../accumulate-order.ts';
import { checkWritable } from '../options.ts';
import { adviceOn, type Budgets, optimizesOnHost, WORTH_SAYING } from './advice.ts';
import { scalingLines } from './scaling.ts';
import { SWEPT_BUDGETS, sweepMachines } from './sweep.ts';
import { count, duration, LOSES_STEPS, percent } from './words.ts';

export interface MachineFlags {
  readonly hardware: readonly string[];
  readonly gpuMemory?: number;
  readonly hostMemory?: number;
  readonly disk?: string;
  readonly diskLimit?: number;
  readonly reached?: number;
  readonly copies?: 'serial' | 'duplex';
  readonly exchange?: ExchangeWay;
  readonly scaling?: Scaling;
  readonly sweep?: string;
  readonly json?: boolean;
}

/** Predicts for the machines that the flags name; only a picture has room for several. `what` names the model. */
export async function planOnMachines(host: Host, what: string, scenario: Scenario, flags: MachineFlags): Promise<void> {
  if (flags.sweep !== undefined) await checkWritable(host.files, flags.sweep, SWEEP_BEGINS);
  const machines = await Promise.all(
    flags.hardware.map(async (name) => changed(await machineNamed(host, name), flags)),
  );
  if (flags.sweep !== undefined) {
    const { lines, leftOut } = sweepMachines(scenario, machines, (predictor) => budgetsOf(predictor, flags).host);
    await host.files.writeAtomic(flags.sweep, renderSweep(what, lines, 'the memory that the machine has'));
    if (flags.json) host.terminal.write(`${JSON.stringify({ sweep: flags.sweep, machines: lines, leftOut })}\n`);
    else {
      host.terminal.write(`${flags.sweep}: step time over ${SWEPT_BUDGETS} budgets\n`);
      for (const { label, reason } of leftOut) host.terminal.write(`not in it: ${label}: ${reason}\n`);
    }
    return;
  }
  const [machine, second] = machines;
  if (!machine || second)
    throw new HoldfastError('--hardware: several machines need --sweep, a picture of all of them');
  if (flags.scaling) showScaling(host, what, scenario, machine, { ...flags, scaling: flags.scaling });
  else predictOne(host, what, scenario, machine, flags);
}

function showScaling(
  host: Host,
  what: string,
  scenario: Scenario,
  machine: Machine,
  flags: MachineFlags & { scaling: Scaling },
): void {
  const rows = scale(scenario, machine, flags.scaling, (predictor) => budgetsOf(predictor, flags));
  const { write } = host.terminal;
  if (flags.json) write(`${JSON.stringify({ machine: machine.title, scaling: flags.scaling, rows })}\n`);
  else
    write(
      [
        `${what} on ${machine.title}${ranksOf(scenario)}`,
        ...scalingLines(rows, flags.scaling),
        assumed(machine, scenario),
        '',
      ].join('\n'),
    );
}

function ranksOf({ ranks }: Scenario): string {
  if (!ranks) return '';
  const grid = gridPlacesOf({ rank: 0, size: ranks.size }, ranks);
  return `, ${rankText({ size: ranks.size, grid })}${grid.data.size > 1 ? `, ZeRO ${ranks.stage}` : ''}`;
}

const assumed = (
  { reached, reachedBy, launchSeconds, link, network, hostMemory }: Machine,
  scenario: Scenario,
): string =>
  `${reachedBy ? `measured: what ${Object.keys(reachedBy).length} kernels reach of what the GPU allows them; others` : 'assumed: kernels'} reach ${percent(reached)} of the peak (--reached), ${(launchSeconds * 1e6).toFixed(1)} us a dispatch, copies ${link.copies === 'duplex' ? 'both ways beside arithmetic' : 'and arithmetic take turns'} (--copies)${network ? `, ranks exchange ${EXCHANGED[network.exchange]} (--exchange)` : ''}${hostMemory && optimizesOnHost(scenario) ? `, AdamW on the host ${percent(hostMemory.reached)} of its memory’s ${formatBytes(hostMemory.bytesPerSecond)}/s` : ''}`;

/** As one rank has it. */
const withoutNetwork = ({ network: _, ...machine }: Machine): Machine => machine;

const EXCHANGED: Readonly<Record<ExchangeWay, string>> = {
  host: 'through host memory, one value after the other, and wait for it, save chunks that are gathered while GPUs compute',
  direct: 'from GPU to GPU in a ring, beside arithmetic',
};

/** A file if there is one of that name, else one of those that come along. */
export async function machineNamed(host: Host, name: string): Promise<Machine> {
  const there = await host.files.stat(name);
  if (there?.kind === 'file')
    return parseHardware(new TextDecoder().decode(await readWhole(host.files, name, MOST_SETTINGS_BYTES)), name);
  const known = knownMachine(name);
  if (known) return known;
  const what = there ? 'no file' : 'no such file';
  throw new HoldfastError(`--hardware ${name}: ${what}, and no machine of that name; there are ${hardwareNames()}`);
}

/** Another machine in what the flags say of it. Errors: HoldfastError for a flag of a disk where it has none. */
export function changed(
  { reachedBy, ...machine }: Machine,
  { reached, copies, exchange, disk, diskLimit = Number.POSITIVE_INFINITY }: MachineChanges,
): Machine {
  if (disk !== undefined && !machine.disk)
    throw new HoldfastError(`--disk: ${machine.title} has none; leave it out, or add a disk to its file`);
  return {
    ...machine,
    ...(reached === undefined ? reachedBy && { reachedBy } : { reached }),
    ...(copies && { link: { ...machine.link, copies } }),
    ...(exchange && machine.network && { network: { ...machine.network, exchange } }),
    ...(machine.disk && { disk: { ...machine.disk, bytes: Math.min(machine.disk.bytes, diskLimit) } }),
  };
}

type MachineChanges = Pick<MachineFlags, 'reached' | 'copies' | 'exchange' | 'disk' | 'diskLimit'>;

/** As the flags say, else what the machine has, less a margin: none for the GPU where everything fits. */
function budgetsOf({ machine, resident }: Predictor, { gpuMemory, hostMemory }: MachineFlags): Budgets {
  const { gpu, host } = usableMemory(machine);
  return { gpu: gpuMemory ?? (resident.bytes <= gpu ? undefined : gpu), host: hostMemory ?? host };
}

function predictOne(host: Host, what: string, scenario: Scenario, machine: Machine, flags: MachineFlags): void {
  const predictor = new Predictor(scenario, machine);
  const budgets = budgetsOf(predictor, flags);
  const found = predictor.at(budgets.gpu, budgets.host);
  const { smallest, resident, fastest, blocks } = predictor;
  // Each try of a large model on several ranks takes seconds; with stages no budget ends all waiting.
  const isStaged = (scenario.ranks?.pipeline ?? 1) > 1;
  const tries = !isStaged && (!scenario.ranks || blocks === scenario.layers);
  const comfortable = tries ? predictor.comfortable(Number.POSITIVE_INFINITY) : undefined;
  const all = optimizesOnHost(scenario) ? 'everything but the optimizer' : 'everything';
  if (flags.json) {
    const { title } = machine;
    const facts = { machine: title, ...found, hostMemory: budgets.host, smallestBudget: smallest };
    const whole = { bytes: resident.bytes, seconds: resident.seconds };
    host.terminal.write(
      `${JSON.stringify({ ...facts, comfortableBudget: comfortable ?? null, resident: whole, fastestSeconds: fastest, ...(isStaged && { stages: predictor.memory }), blocks: { all: scenario.layers, simulated: blocks } })}\n`,
    );
    return;
  }
  host.terminal.write(
    [
      `${what} on ${machine.title}${ranksOf(scenario)}`,
      `  ${duration(found.seconds).padStart(8)}  a step, ${count(found.tokensPerSecond)} tokens/s: ${percent(found.efficiency)} of the speed with ${all} on the GPU${optimizesOnHost(scenario) ? ' and nothing to wait for' : ''}, ${percent(found.shareOfPeak)} of its peak`,
      `            ${computing(found)}${waits(found)}`,
      `            moves ${moved(found, scenario)}`,
      ...(budgets.gpu !== undefined && found.losesSteps ? [`            ${LOSES_STEPS}`] : []),
      ...(scenario.accumulate > 1 ? [`            ${describeOrder(found.order)}`] : []),
      ...adviceOn({ predictor, scenario, machine, budgets, found, comfortable, tries }).map(
        (line) => `            ${line}`,
      ),
      `  ${formatBytes(found.budget).padStart(8)}  of GPU memory${budgets.gpu === undefined ? `, with ${all} in it` : ''}${budgets.gpu === undefined && !optimizesOnHost(scenario) ? '' : `, ${belowOf(found, budgets, predictor.machine)}`}`,
      `  ${formatBytes(smallest).padStart(8)}  is the smallest budget that works, without samples (--sample-tokens 0)`,
      ...(tries
        ? [
            comfortable === undefined
              ? `            no budget is within 5 % of the step with ${all} on the GPU${sinceWhat(scenario, predictor)}`
              : `  ${formatBytes(comfortable).padStart(8)}  is a comfortable one: within 5 % of ${duration(fastest)}, with host memory for the rest`,
          ]
        : []),
      `  ${formatBytes(resident.bytes).padStart(8)}  is ${all} on the GPU`,
      ...stageLines(predictor, scenario),
      ...(blocks < scenario.layers
        ? [
            `worked out on ${blocks} of ${scenario.layers} blocks, which are alike; waits are theirs at the same share of memory`,
          ]
        : []),
      assumed(scenario.ranks ? machine : withoutNetwork(machine), scenario),
      '',
    ].join('\n'),
  );
}

/** Why no budget ends all that a step takes longer. */
function sinceWhat(scenario: Scenario, { resident, fastest }: Predictor): string {
  if (resident.seconds > fastest)
    return ` and all activations kept, which --activations ${scenario.activations} rules out`;
  return !optimizesOnHost(scenario) && scenario.recovery === 'step' ? ', since each step is kept below it as well' : '';
}

/** Where stages differ. */
function stageLines({ memory }: Predictor, { ranks }: Scenario): string[] {
  const { pipeline = 1 } = ranks ?? {};
  if (pipeline === 1) return [];
  const stageOf = (i: number) => (i < memory.length - 1 ? i : pipeline - 1) + 1;
  return memory.map(
    ({ smallest, resident }, i) =>
      `  ${formatBytes(resident).padStart(8)}  of it in stage ${stageOf(i)} of ${pipeline}, whose smallest budget is ${formatBytes(smallest)}`,
  );
}

function belowOf({ below, onDisk }: Prediction, { host }: Budgets, { disk }: Machine): string {
  const has = `${formatBytes(host)} of host memory${disk ? `, ${formatBytes(disk.bytes)} of disk` : ''}`;
  return below > 0 ? `${has}: ${formatBytes(below)} lie below the GPU, ${formatBytes(onDisk)} of them on disk` : has;
}

const WAITED: Readonly<Record<Waited, string>> = {
  up: 'the link up',
  down: 'the link down',
  host: 'AdamW on the host',
  network: 'the network',
  bubble: 'other stages (the bubble)',
  diskRead: 'disk reads',
  diskWrite: 'disk writes',
};

/** Launches are worth words where they are some of the step. */
function computing({ computeSeconds, launchSeconds, seconds }: Prediction): string {
  if (launchSeconds < WORTH_SAYING * seconds) return `arithmetic ${percent(computeSeconds / seconds)}`;
  return `arithmetic ${percent((computeSeconds - launchSeconds) / seconds)}, launches of dispatches ${percent(launchSeconds / seconds)}`;
}

function waits({ waits, seconds }: SimulatedStep): string {
  const said = (Object.entries(waits) as [Waited, number][])
    .filter(([, waited]) => waited >= WORTH_SAYING * seconds)
    .map(([cause, waited]) => `, waiting for ${WAITED[cause]} ${percent(waited / seconds)}`);
  return said.join('') || ', next to nothing is waited for';
}

const ALONG: Readonly<Record<ExchangeAxis, string>> = {
  data: 'to copies of the model',
  tensor: 'of shared layers',
  pipeline: 'to other stages',
  ends: 'between both ends',
};

function moved({ bytes, network: byAxis }: Prediction, scenario: Scenario): string {
  const { up, down, recovery, network, diskRead, diskWrite } = bytes;
  const { policy = 'planned' } = scenario;
  const by = policy === 'planned' ? '' : ` by ${policy}`;
  // What the host updates is there anyway.
  const kept =
    recovery > 0 && !optimizesOnHost(scenario) ? `, ${formatBytes(recovery)} of it against the loss of a device` : '';
  const disk =
    diskRead + diskWrite > 0 ? `, from disk ${formatBytes(diskRead)}, to disk ${formatBytes(diskWrite)}` : '';
  const along = Object.entries(byAxis).filter(([, bytes]) => bytes > 0);
  const parts = along.map(([axis, bytes]) => `${formatBytes(bytes)} ${ALONG[axis as ExchangeAxis]}`);
  const each = along.length > 1 ? ` (${parts.join(', ')})` : '';
  const sent = network > 0 ? `, sends ${formatBytes(network)} over the network${each}` : '';
  return `${formatBytes(up)} up, ${formatBytes(down)} down${by}${kept}${disk}${sent}`;
}
