// A model family that a folder is called like, as one that was cloned from the hub: `--model` names the family, and says so.

import { expect, test } from 'vitest';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

const CONFIG = { model_type: 'gpt2', vocab_size: 256, n_positions: 16, n_embd: 8, n_layer: 3, n_head: 2 };
const TOLD = 'holdfast: --model gpt2 is a new model of this family; the folder of this name is ./gpt2\n';

test.each(['plan', 'train'])(
  '%s of a family that is a folder, too, is of a new model and names the folder',
  async (command) => {
    const shape = ['--model', 'gpt2', '--layers', '1', '--width', '4', '--heads', '1', '--context', '16'];
    const few = ['--steps', '1', '--batch', '1', '--data', 'text.txt', '--sample-tokens', '0', '--json'];
    const text = { 'text.txt': 'hold fast. '.repeat(90) };
    const parametersOf = (out: string) => Number(/"parameters":(\d+)/.exec(out)?.[1]);
    const alone = await inProcess(new MemoryFiles(text), [command, ...shape, ...few]);
    expect(alone.said).not.toContain('holdfast:');
    const files = new MemoryFiles({ ...text, 'gpt2/config.json': JSON.stringify(CONFIG) });
    const both = await inProcess(files, [command, ...shape, ...few]);
    expect(both.said).toBe(TOLD + alone.said);
    expect([both.status, parametersOf(both.out)]).toEqual([0, parametersOf(alone.out)]);
  },
);
