// holdfast parity PATH...: replays cases of the numeric reference, or runs that were trained elsewhere, and says how far
// off this adapter is.

import { Command } from 'commander';
import { type ChoiceRecord, loadChoices, saveChoices } from '../engine/compile/choices.ts';
import { RUN_STATE, TRAINER_STATE, WEIGHTS } from '../formats/checkpoint/folder.ts';
import { INDEX_NAMES } from '../formats/checkpoint/shard-names.ts';
import { checkpointsOf } from '../formats/checkpoint.ts';
import { openDevice } from '../gpu/device.ts';
import type { ActivationDtype } from '../graph/narrow-activations.ts';
import type { OptimizerDevice, Update } from '../graph/operators/optimizer.ts';
import type { MomentDtype, TrainingDtype } from '../memory/layout/kinds.ts';
import { loadCase, type ReferenceCase } from '../parity/reference-case.ts';
import { replay } from '../parity/replay-case.ts';
import { loadRun, type RecordedRun, type RunSources, type RunVerdict, replayRun } from '../parity/replay-run.ts';
import { ALLOWED_MULTIPLE, type Verdict } from '../parity/verdict.ts';
import { FolderHeld, type Host, join } from '../runtime/host.ts';
import { counted } from '../util/counted.ts';
import { finishing, HoldfastError } from '../util/errors.ts';
import { addMemoryOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';
import {
  activationDtypeOption,
  adapterOption,
  dtypeOption,
  eitherDeviceOption,
  optimizerStateOption,
  wholeNumberFrom,
} from './options.ts';
import { checkUpdate, updateOption } from './update-flags.ts';

const AFTER_HELP = `
Exit status: 0 if all pass, 1 if one fails, 2 for what cannot be read or replayed.
--json prints, a line a case or run: {"case", "metrics": {name: {"value", "tolerance", "multiple"}}, "worst", "pass"},
of a run also "sameBits".
"multiple" is value / tolerance and "worst" the largest of them; up to ${ALLOWED_MULTIPLE} it passes.
With --dtype a case is also replayed in f32, as it is and with parameters that are off by the rounding of that width, which says
how far that may take each figure: its tolerance, of which 1 passes. With --activation-dtype activations are moved likewise where
they are made, with --optimizer-state moments behind each step.
What is infinite or not a number is printed as ${Number.MAX_VALUE}.
A run is trained again, from its seed to its checkpoint, and compared with what was recorded of it; its folder is locked
meanwhile, as one that is trained in. On the same adapter
the bits are the same. Elsewhere it is trained once more from start weights that differ in the last bit, and a tolerance
is 4 times what that alone changes.`;

interface Flags extends MemoryFlags {
  json?: boolean;
  adapter: string;
  data?: string[];
  model?: string;
  steps?: number;
  optimizerDevice: OptimizerDevice;
  update: Update;
  dtype: TrainingDtype;
  optimizerState: MomentDtype;
  activationDtype: ActivationDtype;
}

export function parityCommand(host: Host, setStatus: (status: number) => void): Command {
  const command = new Command('parity')
    .description('replay cases of the numeric reference, or a run: losses, gradients, activations, final weights')
    .argument('<path...>', 'a case (with its ref.json), a run, its checkpoint or a zip of it, or a folder of such')
    .option('--json', 'one JSON object a line instead of tables')
    .option('--data <path...>', 'the text of a run, where it is not what its settings name')
    .option('--model <path>', 'the weights that a run began from, likewise')
    .option('--steps <n>', 'of a run, only so many (default: all that were recorded)', wholeNumberFrom(1))
    .addOption(eitherDeviceOption())
    .addOption(updateOption())
    .addOption(dtypeOption())
    .addOption(optimizerStateOption())
    .addOption(activationDtypeOption())
    .addOption(adapterOption())
    .addHelpText('after', AFTER_HELP);
  const replayAll = async (subjects: readonly Subject[], flags: Flags): Promise<void> => {
    const { json = false, adapter, steps, optimizerDevice, update, dtype, optimizerState, activationDtype } = flags;
    const memory = memoryFromFlags(host, flags);
    const given = (name: string) => command.getOptionValueSource(name) === 'cli';
    if (!subjects.some(({ run }) => run)) {
      const flag = ['data', 'model', 'steps'].find((name) => Object.hasOwn(flags, name));
      if (flag) throw new HoldfastError(`--${flag}: is for runs, and these are reference cases; leave the flag out`);
    }
    if (subjects.some(({ run }) => run)) checkAsItRan(flags);
    for (const { reference } of subjects)
      if (reference) checkUpdate(update, { ...flags, accumulate: reference.accumulate }, given);
    const device = await openDevice(host, { adapter });
    try {
      let choices: ChoiceRecord = await loadChoices(host, device);
      const narrow = [
        dtype,
        ...(activationDtype === 'f32' ? [] : [`activations in ${activationDtype}`]),
        ...(optimizerState === 'f32' ? [] : [`moments in ${optimizerState}`]),
      ];
      const isWide = [dtype, activationDtype, optimizerState].every((width) => width === 'f32');
      const most = isWide
        ? `${ALLOWED_MULTIPLE} tolerances pass`
        : `the tolerances derived for ${narrow.join(', ')} pass`;
      if (!json) host.terminal.write(`${device.adapter.name}: up to ${most}\n`);
      let failed = 0;
      for (const { reference, run } of subjects) {
        let result: Verdict | RunVerdict;
        if (run)
          result = await withProgress(host, run.name, (onStep) => replayRun(device, run, { memory, steps, onStep }));
        else {
          const widths = { dtype, activationDtype, momentDtype: optimizerState };
          const how = { memory, optimizerDevice, update, ...widths, threads: host.threads };
          const replayed = await replay(device, reference, { choices, ...how });
          choices = { ...choices, ...replayed.choices };
          result = replayed;
        }
        if (!result.pass) failed++;
        host.terminal.write(json ? `${toJSON(result)}\n` : table(result));
      }
      const what = subjects.every(({ run }) => run)
        ? 'runs'
        : subjects.some(({ run }) => run)
          ? 'cases and runs'
          : 'cases';
      if (!json) host.terminal.write(`\n${subjects.length - failed} of ${subjects.length} ${what} pass\n`);
      await saveChoices(host, device, choices);
      setStatus(failed > 0 ? 1 : 0);
    } finally {
      device.close();
    }
  };
  return addMemoryOptions(command).action((paths: string[], flags: Flags) => {
    const subjects: Subject[] = [];
    const ends: (() => unknown)[] = [];
    const claimed = new Set<string>();
    /** Keeps other processes from a run. One that cannot be written to is kept from by that. */
    const claim = async (run: string) => {
      const id = (await host.files.stat(run))?.id ?? run;
      if (claimed.has(id)) return;
      try {
        const taken = await host.claimFolder?.(run);
        ends.push(() => taken?.release());
      } catch (error) {
        if (!(error instanceof FolderHeld)) return;
        throw new HoldfastError(`${error.message}, or name a checkpoint in it, which is replayed without a lock`);
      }
      claimed.add(id);
    };
    const replayed = async () => {
      // All is read before the first runs: bad input is refused at once.
      for (const path of paths)
        for await (const subject of subjectsAt(host, path, { data: flags.data, from: flags.model }, claim)) {
          subjects.push(subject);
          ends.push(() => subject.run?.release());
        }
      await replayAll(subjects, flags);
    };
    return finishing(replayed, () => finishing(async () => {}, ...ends));
  });
}

/** Errors: HoldfastError for a flag that would replay a run in another way than it ran. */
function checkAsItRan({ optimizerDevice, update, dtype, optimizerState, activationDtype }: Flags): void {
  const refused =
    (optimizerDevice !== 'gpu' && '--optimizer-device: a run is replayed where it ran') ||
    (update !== 'at-end' && '--update: a run is replayed as it ran') ||
    (optimizerState !== 'f32' && '--optimizer-state: a run is replayed with the moments that it had') ||
    (activationDtype !== 'f32' && '--activation-dtype: a run is replayed with the activations that it had') ||
    (dtype !== 'f32' && '--dtype: a run is replayed in the width that it ran in');
  if (refused) throw new HoldfastError(`${refused}; leave the flag out`);
}

/** What is replayed: a case or a run. */
type Subject = { reference: ReferenceCase; run?: undefined } | { reference?: undefined; run: RecordedRun };

/** What a path names; a folder of cases and runs stands for all of them. Runs are claimed before they are read, and are to be released. */
async function* subjectsAt(
  host: Host,
  path: string,
  sources: RunSources,
  claim: (run: string) => Promise<void>,
): AsyncGenerator<Subject, void> {
  const stat = (at: string) => host.files.stat(at);
  const read = async (at: string): Promise<Subject | 'model' | undefined> => {
    if (await stat(join(at, 'ref.json'))) return { reference: await loadCase(host, at) };
    for (const state of [RUN_STATE, TRAINER_STATE])
      if (await stat(join(at, state))) return { run: await loadRun(host, at, sources) };
    if ((await checkpointsOf(host.files, at)).length > 0) {
      await claim(at);
      return { run: await loadRun(host, at, sources) };
    }
    for (const weights of [WEIGHTS, INDEX_NAMES[WEIGHTS]]) if (await stat(join(at, weights))) return 'model';
    // A configuration with neither is a damaged case, to be refused, not one to pass over.
    return (await stat(join(at, 'config.json'))) && { reference: await loadCase(host, at) };
  };
  const kind = (await stat(path))?.kind;
  if (kind === 'file' && /\.zip$/i.test(path)) return yield { run: await loadRun(host, path, sources) };
  if (kind !== 'folder') {
    throw new HoldfastError(
      `${path} is ${kind ? 'a file' : 'not there'}; name the folder of a case or run, or its zip`,
    );
  }
  const itself = await read(path);
  if (itself === 'model')
    throw new HoldfastError(
      `${path} is a model, and no case or run: nothing is recorded of it to compare with; name the folder of a case or run`,
    );
  if (itself) return yield itself;
  let isEmpty = true;
  for (const name of await host.files.list(path)) {
    const found = (await stat(join(path, name)))?.kind === 'folder' ? await read(join(path, name)) : undefined;
    if (!found) continue;
    if (found === 'model') {
      host.terminal.warn(`${join(path, name)}: a model, and no case or run; passed over\n`);
      continue;
    }
    isEmpty = false;
    yield found;
  }
  if (!isEmpty) return;
  throw new HoldfastError(
    `${path} has no ref.json and no checkpoint, nor has a folder in it; name the folder of a case or run, or one of such`,
  );
}

/** On a terminal, a line that says how far a replay is. */
async function withProgress<T>(
  { terminal }: Host,
  name: string,
  work: (onStep: (done: number, total: number) => void) => Promise<T>,
): Promise<T> {
  if (!terminal.interactive) return work(() => {});
  try {
    return await work((done, total) => terminal.warn(`\r${name}: step ${done} of ${total}\x1b[K`));
  } finally {
    terminal.warn('\r\x1b[K');
  }
}

/** JSON has no infinity: the largest double stands for it, and for NaN, so that every comparison fails. */
const finite = (value: number): number => (Number.isFinite(value) ? value : Number.MAX_VALUE);

function toJSON({ name, metrics, worst, pass, ...rest }: Verdict | RunVerdict): string {
  const plain = Object.fromEntries(
    [...metrics].map(([metric, { value, tolerance, multiple }]) => [
      metric,
      { value: finite(value), tolerance, multiple: finite(multiple) },
    ]),
  );
  const bits = 'sameBits' in rest ? { sameBits: rest.sameBits } : {};
  return JSON.stringify({ case: name, metrics: plain, worst: finite(worst), pass, ...bits });
}

/** The worst metric is marked with an arrow. */
function table({ name, metrics, worst, pass, unchecked, ...rest }: Verdict | RunVerdict): string {
  const run = 'steps' in rest ? `, ${counted(rest.steps, 'step')}${rest.sameBits ? ', the same bits' : ''}` : '';
  const lines = [
    `\n${name}: ${pass ? 'pass' : 'FAIL'}, worst ${times(worst)} tolerances${run}`,
    row(' ', 'metric', 'value', 'tolerance', 'multiple'),
  ];
  for (const [metric, { value, tolerance, multiple, where }] of metrics) {
    const mark = multiple === worst && worst > 0 ? '>' : ' ';
    lines.push(row(mark, metric, value.toExponential(1), tolerance.toExponential(0), times(multiple), where));
  }
  if (unchecked.length > 0) lines.push(`  not checked: ${unchecked.join(', ')}`);
  return `${lines.join('\n')}\n`;
}

function row(mark: string, metric: string, value: string, tolerance: string, multiple: string, where = ''): string {
  return `${mark} ${metric.padEnd(22)}${value.padStart(9)}${tolerance.padStart(11)}${multiple.padStart(10)}  ${where}`.trimEnd();
}

const times = (multiple: number): string => (multiple < 100 ? multiple.toFixed(3) : multiple.toExponential(1));
