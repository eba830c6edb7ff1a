// The commands of `holdfast`, and what becomes of errors: bad input is one line and exit status 2, never a
// stack trace; nothing is left half-written.

import { Command, CommanderError } from 'commander';
import type { Host } from '../runtime/host.ts';
import { HoldfastError, messageOf, oneLine } from '../util/errors.ts';
import { benchCommand } from './bench.ts';
import { devicesCommand } from './devices.ts';
import { evalCommand } from './eval.ts';
import { exportCommand } from './export.ts';
import { finetuneCommand } from './finetune.ts';
import { generateCommand } from './generate.ts';
import { parityCommand } from './parity.ts';
import { planCommand } from './plan.ts';
import { sayBadFlags } from './rank-errors.ts';
import { BAD_INPUT, refusesRanks, silently } from './rank-flags.ts';
import { tokenizerCommand } from './tokenizer.ts';
import { trainCommand } from './train.ts';

const COMMANDS = [
  trainCommand,
  finetuneCommand,
  generateCommand,
  evalCommand,
  exportCommand,
  tokenizerCommand,
  parityCommand,
  devicesCommand,
  benchCommand,
  planCommand,
];

/** Those that several ranks run together. */
const ON_RANKS: readonly unknown[] = [trainCommand, finetuneCommand];

/** `name`: the command that an error is of, whose help has its flags. `warn`: takes what is wrong with the flags. */
const outputOf = ({ terminal }: Host, warn: (text: string) => void, name: string) => ({
  writeOut: terminal.write,
  writeErr: warn,
  // Commander's "error: ...", with its suggestion, made one line like every other error.
  outputError: (text: string) => warn(`holdfast: ${oneLine(text.replace(/^error: /, ''))}; see ${name} --help\n`),
});

/** Runs the command that the host's arguments name. Returns the exit status. */
export async function run(host: Host): Promise<number> {
  let status = 0;
  let wrong = '';
  const output = (name: string) =>
    outputOf(
      host,
      (text) => {
        wrong += text;
      },
      name,
    );
  const program = new Command('holdfast')
    .description('Train transformers with WebGPU, headless')
    .helpCommand(false)
    .exitOverride()
    .configureOutput(output('holdfast'));
  const version = await host.version?.();
  if (version !== undefined) program.version(version, '--version', 'which version this is');
  const setStatus = (value: number) => {
    status = value;
  };
  for (const add of COMMANDS) {
    const command = add(host, setStatus).copyInheritedSettings(program);
    command.configureOutput(output(`holdfast ${command.name()}`));
    if (!ON_RANKS.includes(add))
      command.hook('preAction', async () => {
        if (await refusesRanks(host, command.name())) throw silently();
      });
    for (const inner of command.commands)
      inner.copyInheritedSettings(command).configureOutput(output(`holdfast ${command.name()} ${inner.name()}`));
    program.addCommand(command);
  }
  try {
    await program.parseAsync([...host.args], { from: 'user' });
    return status;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (wrong !== '') await sayBadFlags(host, wrong);
      return error.exitCode === 0 ? 0 : BAD_INPUT;
    }
    if (error instanceof HoldfastError) {
      host.terminal.warn(`holdfast: ${oneLine(messageOf(error))}\n`);
      return BAD_INPUT;
    }
    throw error;
  }
}
