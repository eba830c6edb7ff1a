// The command line in this process, over files in memory, on the adapter under test.

import { expect } from 'vitest';
import { run } from '../../src/cli/run.ts';
import type { Host } from '../../src/runtime/host.ts';
import { ADAPTER } from '../host.ts';
import { type MemoryFiles, memoryHost } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { sharedGPUSources } from '../shared-gpu.ts';

export interface Said {
  readonly status: number;
  /** On standard output. */
  readonly out: string;
  /** On standard error. */
  readonly said: string;
}

const USE_A_DEVICE = ['train', 'finetune', 'eval', 'generate', 'parity'];

/** `holdfast ARGS` over these files; `lines` come from the terminal, one behind each answer. `host`: what is another there. */
export async function inProcess(
  files: MemoryFiles,
  args: readonly string[],
  lines: readonly string[] = [],
  host: Partial<Host> = {},
): Promise<Said> {
  const terminal = recordedTerminal();
  const adapter = USE_A_DEVICE.includes(args[0] ?? '') ? ['--adapter', ADAPTER] : [];
  async function* readLines() {
    yield* lines;
  }
  const here = { args: [...args, ...adapter], terminal, gpuSources: sharedGPUSources, readLines, ...host };
  const status = await run(memoryHost(files, here));
  return { status, out: terminal.out, said: terminal.said };
}

/** The same for what must succeed, and says nothing on standard error: standard output. */
export async function done(files: MemoryFiles, args: readonly string[]): Promise<string> {
  const { status, out, said } = await inProcess(files, args);
  expect(`${status} ${said}`).toBe('0 ');
  return out;
}

/** `holdfast ARGS`, in a place where the adapter under test is the one that is chosen; it must succeed: standard output. */
export async function onChosen(files: MemoryFiles, args: readonly string[]): Promise<string> {
  const terminal = recordedTerminal();
  const gpuSources = async () =>
    (await sharedGPUSources()).filter(({ embedded }) => embedded === (ADAPTER === 'software'));
  const status = await run(memoryHost(files, { args, terminal, gpuSources }));
  expect(status, terminal.said).toBe(0);
  return terminal.out;
}
