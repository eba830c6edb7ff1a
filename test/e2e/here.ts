// The command line in this process, over the files of the machine: for what needs no process of its own. Commands share the
// device that is open here, and its compiled kernels.

import { run } from '../../src/cli/run.ts';
import type { Threads } from '../../src/runtime/host.ts';
import { messageOf } from '../../src/util/errors.ts';
import { ADAPTER, testHost } from '../host.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { sharedGPUSources } from '../shared-gpu.ts';
import { type Finished, root, usesDevice } from './cli.ts';

/** As `holdfast` of cli.ts. */
export async function here(
  args: readonly string[],
  {
    cwd = root,
    cacheFolder = testHost.cacheFolder,
    threads,
  }: { cwd?: string; cacheFolder?: string; threads?: Threads } = {},
): Promise<Finished> {
  const terminal = recordedTerminal();
  const adapter = usesDevice(args) ? ['--adapter', ADAPTER] : [];
  const host = { ...testHost, args: [...args, ...adapter], terminal, cacheFolder, gpuSources: sharedGPUSources };
  const before = process.cwd();
  process.chdir(cwd);
  try {
    const status = await run({ ...host, ...(threads && { threads }), onInterrupt() {} });
    return { status, stdout: terminal.out, stderr: terminal.said.trim() };
  } catch (error) {
    return { status: 1, stdout: terminal.out, stderr: `${terminal.said}${messageOf(error)}`.trim() };
  } finally {
    process.chdir(before);
  }
}
