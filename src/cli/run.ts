// The commands of `holdfast`, and what becomes of errors: bad input is one line and exit status 2, never a
// stack trace; nothing is left half-written.

import { Command, CommanderError } from 'commander';
import type { Host } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { benchCommand } from './bench.ts';
import { devicesCommand } from './devices.ts';
import { generateCommand } from './generate.ts';
import { parityCommand } from './parity.ts';
import { trainCommand } from './train.ts';

const BAD_INPUT = 2;

/** Runs the command that the host's arguments name. Returns the exit status. */
export async function run(host: Host): Promise<number> {
  let status = 0;
  const program = new Command('holdfast')
    .description('Train transformers with WebGPU, headless')
    .helpCommand(false)
    .showHelpAfterError('(see holdfast --help)')
    .configureOutput({ writeOut: host.terminal.write, writeErr: host.terminal.warn });
  const setStatus = (value: number) => {
    status = value;
  };
  for (const add of [trainCommand, generateCommand, parityCommand, devicesCommand, benchCommand]) {
    program.addCommand(add(host, setStatus).exitOverride().copyInheritedSettings(program));
  }
  program.exitOverride();
  try {
    await program.parseAsync([...host.args], { from: 'user' });
    return status;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : BAD_INPUT;
    if (error instanceof HoldfastError) {
      host.terminal.warn(`holdfast: ${messageOf(error)}\n`);
      return BAD_INPUT;
    }
    throw error;
  }
}
