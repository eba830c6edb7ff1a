// `holdfast plan`: what training a model under a GPU budget would move and need, worked out with no GPU. What each way of
// asking prints is in plan/.

import { Command, InvalidArgumentError, Option } from 'commander';
import { hardwareNames } from '../engine/simulate/hardware.ts';
import { EXCHANGE_WAYS } from '../engine/simulate/machine.ts';
import { loadSolver } from '../memory/plan/bound.ts';
import type { Host } from '../runtime/host.ts';
import { SCALINGS } from '../train/plan/scaling.ts';
import { defaultSettings } from '../train/run/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { realNumber, wholeNumber } from '../util/range.ts';
import { addMemoryOptions, tiersFromFlags } from './memory-flags.ts';
import { addShapeOptions } from './model-flags.ts';
import { wholeNumberFrom, within } from './options.ts';
import { compareOnActivations } from './plan/activations.ts';
import { planOne } from './plan/budget.ts';
import { printComparison } from './plan/compare.ts';
import { PLANNED_SHAPE, type PlanFlags, plannedName, plannedRun, scenarioOf } from './plan/flags.ts';
import { LISTINGS, type Listing } from './plan/listings.ts';
import { planOnMachines } from './plan/machine.ts';
import { planOnRanks } from './plan/ranks.ts';
import { planBasis } from './plan/rates.ts';
import { addGridOptions, checkGrid, checkRankFlags, DEFAULT_STAGE, ofSeveralRanks } from './rank-flags.ts';
import { addRunOptions, NEW_WARMUP } from './train/flags.ts';
import { checkUpdate } from './update-flags.ts';

/** More processes than any machine of today has GPUs. */
const MOST_RANKS = 2 ** 20;

/** As they are given: --activations without a mode is for comparing. */
interface Given extends Omit<PlanFlags, 'activations'> {
  activations: NonNullable<PlanFlags['activations']> | true;
}

export function planCommand(host: Host): Command {
  const command = addShapeOptions(new Command('plan'), PLANNED_SHAPE)
    .description('what training within a GPU budget would need and move, with no GPU: takes the flags of train')
    .option(
      '--vocab-size <n>',
      `tokens of a new model (default: those of --tokenizer, else ${PLANNED_SHAPE.vocabulary})`,
      wholeNumberFrom(2),
    );
  addRunOptions(command, { ...defaultSettings(), batch: 1, warmup: NEW_WARMUP }, 'none');
  addMemoryOptions(command, 'the budget, as 64MB or 1.5GiB (default: with room for half of the model data)', '[what]');
  command
    .option(
      '--ranks <n>',
      'processes that train together under mpiexec: what each holds and sends',
      within(wholeNumber(2, MOST_RANKS)),
    )
    .option('--hardware <names>', 'predict a step on this machine: a file, or one that comes along', machineNames)
    .option(
      '--reached <share>',
      'with --hardware: what kernels reach of its peak arithmetic',
      within(realNumber(0.001, 1)),
    )
    .addOption(
      new Option('--copies <how>', 'with --hardware: copies and arithmetic take turns, or not').choices([
        'serial',
        'duplex',
      ]),
    )
    .addOption(
      new Option(
        '--exchange <how>',
        'with --hardware and --ranks: values go through host memory and are waited for, but for chunks gathered ahead of their turns, as they do here (host), or from GPU to GPU in a ring, beside arithmetic (direct)',
      ).choices(EXCHANGE_WAYS),
    )
    .addOption(
      new Option(
        '--scaling <how>',
        'with --hardware and --ranks: a table from one rank to so many, with the same micro-batches on each (weak) or in all (strong)',
      ).choices(SCALINGS),
    )
    .option('--sweep <file>', 'with --hardware, of several machines too: step time over the budget as a picture (SVG)')
    .option('--print <parts>', `list these in full: ${Object.keys(LISTINGS).join(', ')}`, listings)
    .option(
      '--compare',
      'eviction policies against the bound, on models and budgets of all sizes; with --activations, policies for activations',
    )
    .option('--json', 'one JSON object (with --compare, one a line)');
  return addGridOptions(command, 'with --ranks', '1').action(
    async ({ activations, ...given }: Given, command: Command) => {
      const { hardware, ranks, zero = DEFAULT_STAGE } = given;
      const isGiven = (name: string) => command.getOptionValueSource(name) === 'cli';
      const flags: PlanFlags = { ...given, activations: activations === true ? 'auto' : activations };
      checkRanks(flags, isGiven);
      if (flags.update === 'in-backward' && flags.compare)
        throw new HoldfastError('--update in-backward: policies are compared with the update at the end; leave it out');
      checkOptimizerDevice(flags);
      checkActivationDtype(flags);
      checkRead(command, isGiven);
      if (activations === true && !flags.compare)
        throw new HoldfastError('--activations: say what becomes of them, or give --compare, too');
      if (isGiven('sampleTokens') && flags.sampleTokens > 0 && (hardware || activations === true))
        throw new HoldfastError(SAMPLES_LEFT_OUT);
      if (flags.compare && activations !== true && flags.dtype !== 'f32')
        throw new HoldfastError(
          '--dtype: policies are compared on models in f32; leave it out, or leave out --compare',
        );
      const shared = (['exchange', 'scaling'] as const).find((flag) => flags[flag] !== undefined);
      if (shared && (ranks === undefined || !hardware))
        throw new HoldfastError(`--${shared}: is of several ranks on a machine; give --ranks and --hardware`);
      if (flags.scaling && flags.sweep !== undefined)
        throw new HoldfastError('--scaling: is a table, and --sweep a picture over budgets; give one of them');
      const alone = (['reached', 'copies', 'sweep'] as const).find((flag) => flags[flag] !== undefined);
      if (alone && !hardware && !flags.compare) throw new HoldfastError(`--${alone}: give --hardware, a machine`);
      tiersFromFlags(host, flags);
      if (flags.compare && activations !== true) {
        printComparison(host, await loadSolver(), flags.json ?? false, flags.optimizerState);
        return;
      }
      const run = await plannedRun(host, flags, isGiven);
      checkUpdate(run.settings.update ?? 'at-end', { ...flags, accumulate: run.settings.accumulate }, isGiven);
      if (flags.compare) {
        if (hardware && hardware.length > 1)
          throw new HoldfastError('--hardware: policies are compared on one machine');
        await compareOnActivations(host, run);
        return;
      }
      if (hardware) {
        await planOnMachines(host, plannedName(run), scenarioOf(run), { ...run.flags, hardware });
        return;
      }
      checkTiers(command, isGiven);
      const basis = await planBasis(host, flags.adapter);
      if (ranks !== undefined) planOnRanks(host, run, { size: ranks, stage: zero }, basis);
      else planOne(host, await loadSolver(), run, basis);
    },
  );
}

const SAMPLES_LEFT_OUT = '--sample-tokens: steps are predicted and compared without samples; leave it out';

const DISK_FLAGS = ['disk', 'diskLimit', 'prefetch'];

/** Models and budgets of its own. */
const COMPARED_ALONE = 'compares eviction policies on models and budgets of its own';

/** Errors: HoldfastError for a flag that another one leaves without effect. */
function checkRead(command: Command, isGiven: (name: string) => boolean): void {
  const given = command.options.filter((option) => isGiven(option.attributeName()));
  const refuse = (asking: string, why: string, isRead: (name: string) => boolean) => {
    const ignored = given.find((option) => !isRead(option.attributeName()));
    if (ignored) throw new HoldfastError(`${ignored.long}: ${asking} ${why}; leave one of them out`);
  };
  const allBut =
    (...names: string[]) =>
    (name: string) =>
      !names.includes(name);
  if (isGiven('compare') && isGiven('activations'))
    refuse('--compare', 'of activations is a table on one machine, of a step on one rank', allBut(...NOT_COMPARED));
  else if (isGiven('compare'))
    refuse('--compare', COMPARED_ALONE, (name) => ['compare', 'optimizerState', 'dtype', 'json'].includes(name));
  else if (isGiven('hardware')) refuse('--hardware', 'predicts a step, and has no such parts', allBut('print'));
  if (isGiven('sweep')) refuse('--sweep', 'draws all budgets', allBut('gpuMemory'));
  if (isGiven('json')) refuse('--json', 'has figures, and no listings', allBut('print'));
}

/** What `--compare --activations` does not read. */
const NOT_COMPARED = ['exchange', 'scaling', 'sweep', 'print', 'accumulateOrder', 'ranks', ...DISK_FLAGS, 'policy'];

/** Errors: HoldfastError for what of the tiers makes no difference without a machine. */
function checkTiers(command: Command, isGiven: (name: string) => boolean): void {
  if (!isGiven('ranks')) return;
  const given = command.options.find(
    (option) =>
      ['hostMemory', 'policy', ...DISK_FLAGS].includes(option.attributeName()) && isGiven(option.attributeName()),
  );
  if (given)
    throw new HoldfastError(
      `${given.long}: with --ranks it is told how much lies below each GPU, by this planner, and not where; leave it out, or give --hardware`,
    );
}

/** Errors: HoldfastError for what several ranks do not go with, and for what needs them. */
function checkRanks(flags: PlanFlags, given: (name: 'recovery') => boolean): void {
  const { ranks, compare, print } = flags;
  if (ranks === undefined) {
    const asked = ofSeveralRanks(flags);
    if (asked) throw new HoldfastError(`${asked}: is for several ranks; give --ranks, too`);
    return;
  }
  checkGrid(flags, ranks);
  checkRankFlags(flags, given);
  const refused =
    (compare && '--compare: policies are compared on one rank; leave out --ranks') ||
    (print && '--print: parts are listed of a run on one rank; leave out --ranks');
  if (refused) throw new HoldfastError(refused);
}

/** Errors: HoldfastError for what activations in sixteen bits do not go with. */
function checkActivationDtype({ activationDtype, compare }: PlanFlags): void {
  if (activationDtype !== 'f32' && compare)
    throw new HoldfastError(
      `--activation-dtype ${activationDtype}: policies are compared on activations in f32; leave it out, or --compare`,
    );
}

/** Errors: HoldfastError for what an optimizer on the host does not go with. */
function checkOptimizerDevice({ optimizerDevice, recovery, compare }: PlanFlags): void {
  if (optimizerDevice === 'gpu') return;
  const refused =
    (optimizerDevice === 'cpu' &&
      recovery === 'checkpoint' &&
      'the state of every step lies below the GPU anyway; leave out --recovery') ||
    (compare && 'policies are compared with the optimizer on the GPU; leave it out');
  if (refused) throw new HoldfastError(`--optimizer-device ${optimizerDevice}: ${refused}`);
}

function listings(text: string): Listing[] {
  return names(text).map((name) => {
    const part = Object.keys(LISTINGS).find((part) => part === name) as Listing | undefined;
    if (!part) throw new InvalidArgumentError(`${name} is none of ${Object.keys(LISTINGS).join(', ')}`);
    return part;
  });
}

function machineNames(text: string): string[] {
  const found = names(text);
  if (found.length === 0) throw new InvalidArgumentError(`It must name a file, or one of ${hardwareNames()}.`);
  return found;
}

const names = (text: string): string[] => text.split(',').filter((name) => name !== '');
