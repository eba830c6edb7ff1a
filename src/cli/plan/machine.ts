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
import { flagBytes, formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { describeOrder } from '../accumulate-order.ts';
import { checkWritable } from '../options.ts';
import { scalingLines } from './scaling.ts';
import { SWEPT_BUDGETS, sweepMachines } from './sweep.ts';
import { count, duration, percent } from './words.ts';

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

/** Waits that are worth words, as a share of a step, and a change that is worth advice. */
const WORTH_SAYING = 0.02;
const WORTH_DOING = 0.95;
/** Launches that are worth advice, as a share of a step. */
const MANY_LAUNCHES = 0.3;

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
  `${reachedBy ? `measured: what ${Object.keys(reachedBy).length} kernels reach of what the GPU allows them; others` : 'assumed: kernels'} reach ${percent(reached)} of the peak (--reached), ${(launchSeconds * 1e6).toFixed(1)} us a dispatch, copies ${link.copies === 'duplex' ? 'both ways beside arithmetic' : 'and arithmetic take turns'} (--copies)${network ? `, ranks exchange ${EXCHANGED[network.exchange]} (--exchange)` : ''}${hostMemory && isOnHost(scenario) ? `, AdamW on the host ${percent(hostMemory.reached)} of its memory’s ${formatBytes(hostMemory.bytesPerSecond)}/s` : ''}`;

const isOnHost = ({ optimizerDevice }: Pick<Scenario, 'optimizerDevice'>): boolean => optimizerDevice === 'cpu';

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

/** Bytes; without a budget for the GPU everything is there. */
interface Budgets {
  readonly gpu: number | undefined;
  readonly host: number;
}

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
  const all = isOnHost(scenario) ? 'everything but the optimizer' : 'everything';
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
      `  ${duration(found.seconds).padStart(8)}  a step, ${count(found.tokensPerSecond)} tokens/s: ${percent(found.efficiency)} of the speed with ${all} on the GPU${isOnHost(scenario) ? ' and nothing to wait for' : ''}, ${percent(found.shareOfPeak)} of its peak`,
      `            ${computing(found)}${waits(found)}`,
      `            moves ${moved(found, scenario)}`,
      ...(scenario.accumulate > 1 ? [`            ${describeOrder(found.order)}`] : []),
      ...advice(predictor, budgets, found, scenario, comfortable, machine, tries).map((line) => `            ${line}`),
      `  ${formatBytes(found.budget).padStart(8)}  of GPU memory${budgets.gpu === undefined ? `, with ${all} in it` : ''}${budgets.gpu === undefined && !isOnHost(scenario) ? '' : `, ${belowOf(found, budgets, predictor.machine)}`}`,
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
  return !isOnHost(scenario) && scenario.recovery === 'step' ? ', since each step is kept below it as well' : '';
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
    recovery > 0 && !isOnHost(scenario) ? `, ${formatBytes(recovery)} of it against the loss of a device` : '';
  const disk =
    diskRead + diskWrite > 0 ? `, from disk ${formatBytes(diskRead)}, to disk ${formatBytes(diskWrite)}` : '';
  const along = Object.entries(byAxis).filter(([, bytes]) => bytes > 0);
  const parts = along.map(([axis, bytes]) => `${formatBytes(bytes)} ${ALONG[axis as ExchangeAxis]}`);
  const each = along.length > 1 ? ` (${parts.join(', ')})` : '';
  const sent = network > 0 ? `, sends ${formatBytes(network)} over the network${each}` : '';
  return `${formatBytes(up)} up, ${formatBytes(down)} down${by}${kept}${disk}${sent}`;
}

/** What would help, tried out: each with what a step would then take. */
function advice(
  predictor: Predictor,
  { gpu, host }: Budgets,
  found: Prediction,
  scenario: Scenario,
  comfortable: number | undefined,
  machine: Machine,
  tries: boolean,
): string[] {
  const { recovery, activations, ranks } = scenario;
  const onHost = isOnHost(scenario);
  const { diskRead, diskWrite, up, down } = found.waits;
  const disk = (diskRead + diskWrite) / found.seconds;
  const link = (up + down) / found.seconds;
  const has = usableMemory(predictor.machine);
  const lines: string[] = [];
  const tried = (why: string, what: string, then: () => Prediction) => {
    if (!tries) return;
    const seconds = secondsOr(then);
    if (seconds < WORTH_DOING * found.seconds) lines.push(`${why}: ${what} ${duration(seconds)}`);
  };
  if (disk >= WORTH_SAYING && found.onDisk > 0) {
    const more = `${formatBytes(found.onDisk)} more of host memory`;
    const what = found.below <= has.host ? `--host-memory ${flagBytes(found.below)}, ${more},` : more;
    tried(`waiting for disk ${percent(disk)}`, `${what} would make it`, () =>
      predictor.at(gpu, Number.POSITIVE_INFINITY),
    );
  }
  if (disk + link >= WORTH_SAYING) {
    const waiting = `waiting for ${disk > link ? 'disk' : 'the link'} ${percent(Math.max(disk, link))}`;
    if (activations === 'auto' && !found.modes.every((mode) => mode === 'recompute')) {
      tried(waiting, '--activations recompute would make it', () =>
        predictor.at(gpu, host, { activations: 'recompute' }),
      );
    }
    if (recovery === 'step' && found.bytes.recovery > 0 && !onHost) {
      tried('each step is kept below the GPU as well', '--recovery checkpoint would make it', () =>
        predictor.at(gpu, host, { recovery: 'checkpoint' }),
      );
    }
  }
  const updating = found.waits.host / found.seconds;
  if (onHost ? updating >= WORTH_SAYING : machine.hostMemory && link >= WORTH_SAYING) {
    const device = onHost ? 'gpu' : 'cpu';
    const why = onHost ? `waiting for AdamW on the host ${percent(updating)}` : `waiting for the link ${percent(link)}`;
    tried(why, `--optimizer-device ${device} would make it`, () => {
      const other = new Predictor({ ...scenario, optimizerDevice: device }, machine);
      return other.at(gpu ?? (other.resident.bytes <= has.gpu ? undefined : has.gpu), host);
    });
  }
  const launching = found.launchSeconds / found.seconds;
  if (launching >= MANY_LAUNCHES) {
    const why = `launches of dispatches ${percent(launching)}`;
    const twice = gpu === undefined ? 0 : Math.min(2 * gpu, predictor.resident.bytes, has.gpu);
    if (gpu !== undefined && twice > gpu)
      tried(why, `--gpu-memory ${flagBytes(twice)}, with room for larger chunks and slices, would make it`, () =>
        predictor.at(twice, host),
      );
    lines.push(`${why}: a larger batch has as many for more tokens`);
  }
  const network = found.waits.network / found.seconds;
  if (network >= WORTH_SAYING) {
    const why = `waiting for the network ${percent(network)}`;
    lines.push(`${why}: more micro-batches a step (--accumulate) wait less for each token`);
    if (ranks?.stage === 3) {
      const others = new Predictor({ ...scenario, ranks: { ...ranks, stage: 2 } }, machine);
      const within = gpu ?? (others.resident.bytes <= has.gpu ? undefined : has.gpu);
      tried(why, '--zero 2 would make it', () => others.at(within, host));
    }
  }
  const { pipeline = 1 } = ranks ?? {};
  const bubble = found.waits.bubble / found.seconds;
  if (bubble >= WORTH_SAYING) {
    const { accumulate } = scenario;
    const least = percent((pipeline - 1) / (accumulate + pipeline - 1));
    lines.push(
      `waiting for other stages ${percent(bubble)}, of ${pipeline} with ${accumulate} micro-batches at least ${least}: give more (--accumulate)`,
    );
  }
  if (link >= WORTH_SAYING) {
    const isThere = comfortable !== undefined && gpu !== undefined && comfortable > gpu && comfortable <= has.gpu;
    const more = isThere ? `--gpu-memory ${flagBytes(comfortable)} would end it; ` : '';
    lines.push(`waiting for the link ${percent(link)}: ${more}a larger batch waits less for each token`);
  }
  return lines;
}

/** What does not fit helps nothing. */
function secondsOr(then: () => Prediction): number {
  try {
    return then().seconds;
  } catch (error) {
    if (error instanceof HoldfastError) return Number.POSITIVE_INFINITY;
    throw error;
  }
}
