// `holdfast finetune`: the run that it is, by what `train` would have to be told; its defaults, which follow from the model
// and the data; and what is refused in one line.

import { beforeAll, describe, expect, test } from 'vitest';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(4);

const files = new MemoryFiles({
  'text.txt': 'a rope that holds fast, holds; '.repeat(60),
  'chats.jsonl': Array.from({ length: 30 }, (_, i) =>
    JSON.stringify({
      messages: [
        { role: 'user', content: `${i}?` },
        { role: 'assistant', content: 'it holds' },
      ],
    }),
  ).join('\n'),
});
const finetune = (...args: string[]) => inProcess(files, ['finetune', ...args]);
const QUICK = ['--eval-windows', '3', '--sample-tokens', '0'];
const stateOf = (run: string) => savedState(memoryHost(files), run);
const weights = (run: string, step: number) => files.read(`${run}/checkpoint-${step}/model.safetensors`);

beforeAll(async () => {
  const shape = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '96', '--batch', '2', '--warmup', '0'];
  await done(files, ['train', ...shape, ...QUICK, '--data', 'text.txt', '--steps', '2', '--out', 'base']);
});

test('conversations are learned from the answers alone, for three epochs at a rate for the model, and it learns', async () => {
  const out = await done(files, ['finetune', 'base', '--data', 'chats.jsonl', '--out', 'tuned', ...QUICK]);
  expect(out).toMatch(/^chat template: chatml, as the model has none$/m);
  expect(out).toContain('holdfast generate tuned --chat');
  const { settings, history, trainer } = await stateOf('tuned');
  // 27 conversations of 74 to 76 bytes train, one a row of 96: 81 rows in three epochs.
  expect(trainer.step).toBe(Math.ceil((3 * 27) / 4));
  expect(settings).toMatchObject({
    ...{ from: 'base/checkpoint-2', epochs: 3, steps: 21, batch: 4, seq: 96, weightDecay: 0.01 },
    // 0.04 / 16, and a thirtieth of the steps.
    ...{ lr: 0.0025, minLr: 0.00025, warmup: 1, evalEvery: 7, sampleEvery: 7, saveEvery: 7, clip: 1 },
    records: { trainOn: 'answers', pack: 'yes', template: { name: 'chatml' } },
  });
  const [first, ...rest] = history.validations;
  expect([first?.step, ...rest.map(({ step }) => step)]).toEqual([7, 14, 21]);
  expect(rest.at(-1)?.loss).toBeLessThan(first?.loss ?? 0);
});

test('it is `train` with other defaults: told them, train ends in the same bits', async () => {
  const said = ['--epochs', '1', '--seed', '5', ...QUICK];
  await done(files, ['finetune', 'base', '--data', 'text.txt', ...said, '--out', 'short']);
  const { settings } = await stateOf('short');
  const numbers = ['lr', 'warmup', 'batch'] as const;
  const told = numbers.flatMap((name) => [`--${name}`, `${settings[name]}`]);
  const rest = ['--weight-decay', '0.01', '--model', 'base', '--data', 'text.txt', '--context', '96'];
  await done(files, ['train', ...rest, ...told, ...said, '--out', 'trained']);
  const { steps } = settings;
  expect(steps).toBeGreaterThan(3);
  expect(Buffer.compare(await weights('short', steps), await weights('trained', steps))).toBe(0);
});

test('what is given outweighs what is worked out; a low-rank update takes ten times the rate', async () => {
  const given = ['--steps', '4', '--eval-every', '0', '--save-every', '3', '--lora-rank', '2', '--context', '80'];
  await done(files, ['finetune', 'base', '--data', 'chats.jsonl', ...given, ...QUICK, '--out', 'low']);
  const { settings, history } = await stateOf('low');
  expect(settings).toMatchObject({ steps: 4, lr: 0.025, evalEvery: 0, sampleEvery: 4, saveEvery: 3, seq: 80 });
  expect(settings.epochs).toBeUndefined();
  expect(history.validations.map(({ step }) => step)).toEqual([4]);
  // Going on takes what was saved, by either command.
  await done(files, ['finetune', '--resume', '--out', 'low', '--steps', '5']);
  expect((await stateOf('low')).trainer.step).toBe(5);
  await done(files, ['train', '--resume', '--out', 'low', '--steps', '6']);
  expect((await stateOf('low')).settings).toMatchObject({ lr: 0.025, saveEvery: 3 });
  // Stopping early keeps the best here, too.
  const early = ['--steps', '7', '--eval-every', '1', '--early-stopping-patience', '5'];
  const out = await done(files, ['train', '--resume', '--out', 'low', ...early]);
  expect((await stateOf('low')).settings).toMatchObject({ earlyStoppingPatience: 5, keepBest: true });
  // Where no validation was better, none is there to be named.
  const [, best] = /^best validation [\d.]+ after step \d+: (\S+)$/m.exec(out) ?? [];
  if (best) expect(await files.stat(best)).toBeDefined();
});

test('it ends where validations do not get better, and names the best checkpoint, which is kept', async () => {
  const rate = ['--lr', '0.3', '--steps', '40', '--eval-every', '1', '--save-every', '0', '--warmup', '0'];
  const early = [...rate, '--early-stopping-patience', '2', '--early-stopping-threshold', '0.001'];
  const out = await done(files, ['finetune', 'base', '--data', 'text.txt', ...early, ...QUICK, '--out', 'early']);
  const { settings, history } = await stateOf('early');
  expect(settings).toMatchObject({ earlyStoppingPatience: 2, earlyStoppingThreshold: 0.001, keepBest: true });
  const last = history.validations.at(-1)?.step ?? 0;
  expect(last).toBeLessThan(40);
  expect(out).toContain(`done after ${last} steps`);
  expect(out).toContain(', early: validations do not get better\n');
  const [, best] = /^best validation [\d.]+ after step \d+: (\S+)$/m.exec(out) ?? [];
  expect(out).toContain(`holdfast generate ${best}`);
  await done(files, ['generate', best ?? '', '--prompt', 'a', '--tokens', '2']);
});

describe('refused in one line', () => {
  test.each<[string[], string]>([
    [[], 'name the model to fine-tune: holdfast finetune DIR --data FILES'],
    [['base'], '--data: name what to fine-tune on'],
    [['gpt2', '--data', 'text.txt'], 'gpt2: no such folder'],
    [['empty', '--data', 'text.txt'], 'empty: has no weights to fine-tune; name a folder that has'],
    [['low', '--data', 'text.txt'], 'holds an adapter and not its model'],
    [['base', '--data', 'text.txt', '--early-stopping-threshold', '1'], 'give --early-stopping-patience, too'],
    [['base', '--data', 'text.txt', '--early-stopping-patience', '2', '--eval-every', '0'], 'give --eval-every'],
    [['base', '--data', 'text.txt', '--layers', '2'], "unknown option '--layers'"],
    [['base', '--data', 'text.txt', '--context', '97'], '--context 97: the model in base has at most 96 positions'],
    [['base', '--resume', '--out', 'low', '--batch', '2'], '--batch 2: the checkpoint in low was made with 4'],
  ])('%j', async (args, message) => {
    await files.writeAtomic('empty/config.json', await files.read('base/checkpoint-2/config.json'));
    const { status, said } = await finetune(...args);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });
});
