// holdfast parity DIR...: replays cases of the numeric reference and says how far off this adapter is.

import { Command } from 'commander';
import { type ChoiceRecord, loadChoices, saveChoices } from '../engine/choices.ts';
import { openDevice } from '../gpu/device.ts';
import { type Host, join } from '../runtime/host.ts';
import { ALLOWED_MULTIPLE, type CaseResult, replay } from '../train/parity.ts';
import { loadCase } from '../train/reference-case.ts';
import { HoldfastError } from '../util/errors.ts';
import { addMemoryOptions, type MemoryFlags, memoryFromFlags } from './memory-flags.ts';

const AFTER_HELP = `
Exit status: 0 if all cases pass, 1 if one fails, 2 for a case that cannot be read or replayed.
--json prints, a line a case: {"case", "metrics": {name: {"value", "tolerance", "multiple"}}, "worst", "pass"}.
"multiple" is value / tolerance and "worst" the largest of them; a case passes up to ${ALLOWED_MULTIPLE}.
What is infinite or not a number is printed as ${Number.MAX_VALUE}.`;

export function parityCommand(host: Host, setStatus: (status: number) => void): Command {
  const command = new Command('parity')
    .description('replay cases of the numeric reference: losses, gradients, activations, final weights')
    .argument('<folder...>', 'a case (with its ref.json), or a folder of cases')
    .option('--json', 'one JSON object a line per case instead of tables')
    .option('--adapter <name>', 'auto, software, or a part of an adapter name', 'auto')
    .addHelpText('after', AFTER_HELP);
  return addMemoryOptions(command).action(
    async (
      folders: string[],
      { json = false, adapter, ...flags }: MemoryFlags & { json?: boolean; adapter: string },
    ) => {
      const memory = memoryFromFlags(host, flags);
      // All cases are read before the first runs: bad input is refused at once.
      const cases = [];
      for (const folder of await caseFolders(host, folders)) cases.push(await loadCase(host, folder));
      const device = await openDevice(host, { adapter });
      try {
        let choices: ChoiceRecord = await loadChoices(host, device);
        if (!json) host.terminal.write(`${device.adapter.name}: a case passes up to ${ALLOWED_MULTIPLE} tolerances\n`);
        let failed = 0;
        for (const reference of cases) {
          const result = await replay(device, reference, { choices, memory });
          choices = { ...choices, ...result.choices };
          if (!result.pass) failed++;
          host.terminal.write(json ? `${toJSON(result)}\n` : table(result));
        }
        if (!json) host.terminal.write(`\n${cases.length - failed} of ${cases.length} cases pass\n`);
        await saveChoices(host, device, choices);
        setStatus(failed > 0 ? 1 : 0);
      } finally {
        device.close();
      }
    },
  );
}

/** The cases that the arguments name; a folder of cases stands for all of them. */
async function caseFolders(host: Host, folders: readonly string[]): Promise<string[]> {
  const has = async (folder: string, file: string) => (await host.files.stat(join(folder, file))) !== undefined;
  const found: string[] = [];
  for (const folder of folders) {
    const kind = (await host.files.stat(folder))?.kind;
    if (kind !== 'folder')
      throw new HoldfastError(`${folder} is ${kind ? 'a file' : 'not there'}; name the folder of a case`);
    // A configuration without ref.json is a damaged case, for loadCase to refuse, not one to pass over.
    const isCase = async (path: string) => (await has(path, 'ref.json')) || (await has(path, 'config.json'));
    if (await isCase(folder)) {
      found.push(folder);
      continue;
    }
    const inside = [];
    for (const name of await host.files.list(folder)) {
      if (await isCase(join(folder, name))) inside.push(join(folder, name));
    }
    if (inside.length === 0) {
      throw new HoldfastError(
        `${folder} has no ref.json, nor has a folder in it; name the folder of a case, or one of cases`,
      );
    }
    found.push(...inside);
  }
  return found;
}

/** JSON has no infinity: the largest double stands for it, and for NaN, so that every comparison fails. */
const finite = (value: number): number => (Number.isFinite(value) ? value : Number.MAX_VALUE);

function toJSON({ name, metrics, worst, pass }: CaseResult): string {
  const plain = Object.fromEntries(
    [...metrics].map(([metric, { value, tolerance, multiple }]) => [
      metric,
      { value: finite(value), tolerance, multiple: finite(multiple) },
    ]),
  );
  return JSON.stringify({ case: name, metrics: plain, worst: finite(worst), pass });
}

/** The worst metric is marked with an arrow. */
function table({ name, metrics, worst, pass, unchecked }: CaseResult): string {
  const lines = [
    `\n${name}: ${pass ? 'pass' : 'FAIL'}, worst ${times(worst)} tolerances`,
    row(' ', 'metric', 'value', 'tolerance', 'multiple'),
  ];
  for (const [metric, { value, tolerance, multiple, where }] of metrics) {
    const mark = multiple === worst ? '>' : ' ';
    lines.push(row(mark, metric, value.toExponential(1), tolerance.toExponential(0), times(multiple), where));
  }
  if (unchecked.length > 0) lines.push(`  not checked: ${unchecked.join(', ')}`);
  return `${lines.join('\n')}\n`;
}

function row(mark: string, metric: string, value: string, tolerance: string, multiple: string, where = ''): string {
  return `${mark} ${metric.padEnd(22)}${value.padStart(9)}${tolerance.padStart(11)}${multiple.padStart(10)}  ${where}`.trimEnd();
}

const times = (multiple: number): string => (multiple < 100 ? multiple.toFixed(3) : multiple.toExponential(1));
