// The commands of `holdfast`, and what becomes of errors: bad input is one line and exit status 2, never a
// stack trace; nothing is left half-written.

import { Command, CommanderError } from 'commander';
import { type Host, UNWRITTEN } from '../runtime/host.ts';
import { HoldfastError, messageOf, oneLine, Stopped } from '../util/errors.ts';
import { benchCommand } from './bench.ts';
import { devicesCommand } from './devices.ts';
import { evalCommand } from './eval.ts';
import { exportCommand } from './export.ts';
import { finetuneCommand } from './finetune.ts';
import { generateCommand } from './generate.ts';
import { parityCommand } from './parity.ts';
import { planCommand } from './plan.ts';
import { sayBadFlags, showOnce } from './rank-errors.ts';
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

/** `name`: of the command that an error is of, whose help has its flags. `show` takes that help, `warn` what is wrong with the flags. */
const outputOf = (show: (text: string) => void, warn: (text: string) => void, name: string, command: Command) => ({
  writeOut: show,
  writeErr: warn,
  // Commander's "error: ...", with its suggestion, made one line like every other error.
  outputError: (text: string) => {
    const problem = oneLine(text.replace(/^error: /, '')).replace(/\.$/, '');
    warn(`holdfast: ${explained(problem, name, command)}; see ${name} --help\n`);
  },
});

/** The problem with its cause and what works instead: of arguments the one that is too many, and what the command takes. */
function explained(problem: string, name: string, command: Command): string {
  const { args, commands, options, registeredArguments: wanted } = command;
  if (problem.startsWith("unknown option '--") && commands.length > 0)
    return `${problem}; a command comes first, then its flags`;
  const extra = args[wanted.length];
  const isOfArguments = /^(too many arguments|missing required argument)/.test(problem);
  // One that is like it is suggested; and an argument may be what was meant.
  const isStrange = /^unknown option '[^']*'$/.test(problem) && wanted.length > 0;
  if (!isOfArguments && !isStrange) return problem;
  const isExtra = isOfArguments && extra !== undefined;
  const named = isExtra ? `${JSON.stringify(extra)} belongs to no flag` : problem;
  const takesData = isExtra && options.some(({ long }) => long === '--data');
  return `${named}; the command is: ${name} ${command.usage()}${takesData ? ', with files of data behind --data' : ''}`;
}

/** Runs the command that the host's arguments name. Returns the exit status. */
export async function run(host: Host): Promise<number> {
  let status = 0;
  let [help, wrong] = ['', ''];
  const show = (text: string) => {
    help += text;
  };
  const warn = (text: string) => {
    wrong += text;
  };
  const output = (name: string, command: Command) => outputOf(show, warn, name, command);
  const program = new Command('holdfast')
    .description('Train transformers with WebGPU, headless')
    .helpCommand('help [command]', 'the same as --help, of the command')
    .exitOverride();
  program.configureOutput(output('holdfast', program));
  const version = await host.version?.();
  if (version !== undefined) program.version(version, '--version', 'which version this is');
  const setStatus = (value: number) => {
    status = value;
  };
  for (const add of COMMANDS) {
    const command = add(host, setStatus).copyInheritedSettings(program);
    command.configureOutput(output(`holdfast ${command.name()}`, command));
    if (!ON_RANKS.includes(add))
      command.hook('preAction', async () => {
        if (await refusesRanks(host, command.name())) throw silently();
      });
    for (const inner of command.commands)
      inner.copyInheritedSettings(command).configureOutput(output(`holdfast ${command.name()} ${inner.name()}`, inner));
    program.addCommand(command);
  }
  const [first, asked = ''] = host.args;
  // Else the help of all that there is would be the answer.
  const isStrange = first === 'help' && asked !== '' && !program.commands.some((command) => command.name() === asked);
  try {
    await program.parseAsync(isStrange ? [asked] : [...host.args], { from: 'user' });
    return status;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (help !== '') await showOnce(host, help);
      if (wrong !== '') await sayBadFlags(host, wrong);
      return error.exitCode === 0 ? 0 : BAD_INPUT;
    }
    if (error instanceof HoldfastError) {
      // Why it was stopped was said.
      if (error instanceof Stopped && host.terminal.isLost) return UNWRITTEN;
      host.terminal.warn(`holdfast: ${oneLine(messageOf(error))}\n`);
      return BAD_INPUT;
    }
    throw error;
  }
}
