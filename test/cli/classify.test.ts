// Classifiers of texts: a published checkpoint beside a computation in float64 of its own; fine-tuned with a head that is
// drawn or with their own, of every checkpoint that has a body; gone on with, in the same bits; and what is refused in one line.

import { describe, expect, test } from 'vitest';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { png } from '../data/png-writer.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { crossEntropy, logitsOf } from './bert-float64.ts';
import { done, inProcess } from './in-process.ts';
import {
  type Architecture,
  C,
  CONFIG,
  lines,
  published,
  QUICK,
  REVIEWS,
  SIZES,
  STILL,
  TEXTS,
} from './published-bert.ts';

chooseVariants(5);

/** By `generate --json`. */
interface Told {
  readonly prompt: string;
  readonly class: string;
  readonly probabilities: Readonly<Record<string, number>>;
}

describe('a published checkpoint', () => {
  // the 4, cat 5, ##s 6, s 7, 日 12, . 13; CLS 2, SEP 3.
  const ROWS: [number[], number[]][] = [
    [[2, 4, 5, 6, 3], []],
    [[2, 5, 3], []],
    [[2, ...Array.from({ length: 9 }, () => 4), 3], []],
    [[2, 3], []],
    [[2, 4, 5, 7, 13, 12, 4, 3], []],
  ];
  const { files, values } = published('BertForSequenceClassification');
  const weight = (name: string) => Array.from(entry(values, name));
  const lossOf = ([first, second]: [number[], number[]], label: number) => {
    const types = [...first.map(() => 0), ...second.map(() => 1)];
    const logits = logitsOf(SIZES, weight, [...first, ...second], types);
    return { loss: crossEntropy(logits, label), right: Math.max(...logits) === logits[label] };
  };

  test('has the loss and the accuracy of a computation in float64, whatever fills its rows up and wherever they are cut', async () => {
    const found = ROWS.map((row, i) => lossOf(row, (i * 2) % 3));
    const here = new MemoryFiles({ ...files, 'r.jsonl': REVIEWS });
    const shareOf = (label: number) => {
      const own = found.filter((_, i) => (i * 2) % 3 === label);
      return own.filter(({ right }) => right).length / own.length;
    };
    const accuracyByClass = { bad: shareOf(0), good: shareOf(1), odd: shareOf(2) };
    for (const batch of EVERY_CASE ? ['1', '2', '8'] : ['2']) {
      const out = await done(here, ['eval', 'm', '--data', 'r.jsonl', '--json', '--batch', batch]);
      const { loss, accuracy, texts, ...rest } = JSON.parse(out) as Record<string, number>;
      expect(Math.abs(loss! - found.reduce((sum, { loss }) => sum + loss, 0) / 5)).toBeLessThan(2e-6);
      expect(accuracy).toBe(found.filter(({ right }) => right).length / 5);
      expect([texts, rest]).toEqual([
        5,
        { bytes: REVIEWS.length + 2, context: 11, classes: { bad: 2, good: 1, odd: 2 }, accuracyByClass },
      ]);
    }
    const said = await done(here, ['eval', 'm', '--data', 'r.jsonl']);
    const percent = (share: number) => (100 * share).toFixed(2).padStart(6).replace('.', '\\.');
    const { bad, good, odd } = accuracyByClass;
    expect(said).toMatch(
      new RegExp(
        `^accuracy \\d+\\.00 % \\(\\d of 5 texts\\)\n  bad  ${percent(bad)} % \\(\\d of 2\\)\n  odd  ${percent(odd)} % \\(\\d of 2\\)\n  good ${percent(good)} % \\(\\d of 1\\)\nloss [\\d.]+ nats per text\n$`,
      ),
    );
  });

  test('tells the classes of a text, or of each line of a file, as that computation has them', async () => {
    const here = new MemoryFiles({ ...files, 'texts.txt': 'the cat\n日.\n' });
    const rows = [
      ['the cat', [2, 4, 5, 3]],
      ['日.', [2, 12, 13, 3]],
    ] as const;
    const shares = rows.map(([, row]) => {
      const logits = logitsOf(
        SIZES,
        weight,
        [...row],
        row.map(() => 0),
      );
      return logits.map((_, label) => Math.exp(-crossEntropy(logits, label)));
    });
    const out = await done(here, ['generate', 'm', '--prompts', 'texts.txt', '--json']);
    const found = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Told);
    for (const [i, [text]] of rows.entries()) {
      const share = shares[i] ?? [];
      const told = ['bad', 'good', 'odd'][share.indexOf(Math.max(...share))];
      expect(found[i]).toMatchObject({ prompt: text, class: told });
      const { bad, good, odd } = found[i]!.probabilities;
      for (const [j, each] of [bad, good, odd].entries()) expect(Math.abs(each! - share[j]!)).toBeLessThan(2e-6);
    }
    const [first = []] = shares;
    const order = [0, 1, 2].sort((a, b) => first[b]! - first[a]!);
    const line = order.map((i) => `${['bad', 'good', 'odd'][i]} ${(100 * first[i]!).toFixed(1)} %`).join(', ');
    expect(await done(here, ['generate', 'm', '--prompt', 'the cat'])).toBe(`${line}\n`);
    expect(await done(here, ['generate', 'm', '--prompts', 'texts.txt'])).toContain(`${line}: the cat\n`);
    for (const [args, problem] of [
      [[], 'm: tells texts apart; give one, with --prompt, or some, with --prompts'],
      [
        ['--prompt', 'a', '--top-k', '2'],
        '--top-k: is of a model that writes, and this one tells classes apart; leave the flag out',
      ],
      [['--chat'], '--chat: is of a model that writes, and this one tells classes apart; leave the flag out'],
    ] as const) {
      const { status, said } = await inProcess(here, ['generate', 'm', ...args]);
      expect([status, said]).toEqual([2, `holdfast: ${problem}\n`]);
    }
  });

  test('and of pairs, the longer of which is cut first, by number', async () => {
    const pairs = [
      ['the cat', 'cats'],
      ['the the the the the the the', 'cat'],
      ['the the the the the the the', 's s s s s s s s'],
    ];
    const rows: [number[], number[]][] = [
      [
        [2, 4, 5, 3],
        [5, 6, 3],
      ],
      [
        [2, 4, 4, 4, 4, 4, 4, 4, 3],
        [5, 3],
      ],
      [
        [2, 4, 4, 4, 4, 3],
        [7, 7, 7, 7, 3],
      ],
    ];
    for (const [first, second] of [
      ['sentence1', 'sentence2'] as const,
      ...(EVERY_CASE ? [['text', 'text_pair'] as const] : []),
    ]) {
      const data = lines(...pairs.map((pair, i) => ({ [first]: pair[0], [second]: pair[1], label: i })));
      const here = new MemoryFiles({ ...files, 'r.jsonl': data });
      const { loss } = JSON.parse(await done(here, ['eval', 'm', '--data', 'r.jsonl', '--json'])) as { loss: number };
      expect(Math.abs(loss - rows.reduce((sum, row, i) => sum + lossOf(row, i).loss, 0) / 3)).toBeLessThan(2e-6);
    }
    const unlabelled = lines(...pairs.map(([premise, hypothesis]) => ({ premise, hypothesis })));
    const here = new MemoryFiles({
      ...files,
      'p.jsonl': unlabelled,
      't.jsonl': lines({ text: 'the cat' }),
      'n.jsonl': '{"a": 1}\n',
    });
    const out = await done(here, ['generate', 'm', '--prompts', 'p.jsonl', '--json']);
    const told = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Told);
    expect(told).toHaveLength(3);
    for (const [i, { probabilities, ...asked }] of told.entries()) {
      const [prompt, pair] = pairs[i] ?? [];
      expect(asked).toMatchObject({ prompt, pair });
      for (const [label, name] of ['bad', 'good', 'odd'].entries())
        expect(Math.abs(probabilities[name]! - Math.exp(-lossOf(rows[i]!, label).loss))).toBeLessThan(2e-6);
    }
    const [first = '', second = ''] = pairs[0] ?? [];
    const one = ['generate', 'm', '--prompt', first];
    expect(await done(here, [...one, '--pair', second, '--json'])).toBe(`${out.split('\n', 1)[0]}\n`);
    expect(await done(here, ['generate', 'm', '--prompts', 'p.jsonl'])).toContain(' %: the cat | cats\n');
    expect(await done(here, ['generate', 'm', '--prompts', 't.jsonl'])).toBe(await done(here, one));
    const bytes = new TextEncoder().encode('the cat\n');
    const piped = await inProcess(here, ['generate', 'm', '--prompts', '-'], [], {
      readStandardInput: async () => bytes,
    });
    expect(piped.out).toBe(await done(here, one));
    const wide = await inProcess(here, ['generate', 'm', '--prompts', '-'], [], {
      readStandardInput: async () => new Uint8Array([0xff, 0xfe, 0x61, 0]),
    });
    expect([wide.status, wide.said]).toEqual([
      2,
      expect.stringMatching(/^holdfast: --prompts: standard input: is in UTF-16, /),
    ]);
    for (const [args, problem] of [
      [
        ['--pair', 'a'],
        '--pair: is the second text of two; give the first with --prompt, or both as JSONL: --prompts FILE.jsonl',
      ],
      [['--prompts', 'n.jsonl'], 'n.jsonl:1 is an object without a text; it must have label, and text and text_pair'],
    ] as const) {
      const { status, said } = await inProcess(here, ['generate', 'm', ...args]);
      expect([status, said.startsWith(`holdfast: ${problem}`)], said).toEqual([2, true]);
    }
  });

  test('is trained on with its own head, and written as it was found: names, classes, and by a step of no size every bit', async () => {
    const here = new MemoryFiles({ ...files, 'r.jsonl': REVIEWS });
    const out = await done(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', 'run', ...QUICK, ...STILL]);
    expect(out).not.toContain('head:');
    expect(out).toContain('tell:    holdfast generate run --prompt "a text"');
    expect(out).toContain(
      'data: 5 texts with labels in r.jsonl (2 bad, 2 odd, 1 good), of 13 tokens at most, 1 longer than 11 and cut off; 4 to train',
    );
    const { config, weights } = await loadWeights(here, 'run');
    expect(config).toMatchObject({ architectures: ['BertForSequenceClassification'], id2label: CONFIG.id2label });
    expect(await collect(weights)).toEqual(values);
  });
});

describe('a head that is drawn', () => {
  test.each<[Architecture, boolean]>([
    ['BertModel', true],
    ['BertForMaskedLM', false],
    ...(EVERY_CASE ? [['BertForPreTraining', true] as [Architecture, boolean]] : []),
  ])('of a %s: what it has stays, and classes are those of the data', async (architecture, hasPooler) => {
    const { files, values } = published(architecture);
    const data = lines(...TEXTS.map((text, i) => ({ sentence: text, label: i % 2 === 0 ? 'up' : 'down' })));
    const here = new MemoryFiles({ ...files, 'r.jsonl': data });
    const out = await done(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', 'run', ...QUICK, ...STILL]);
    expect(out).toMatch(/^head: a new one is drawn, which learns to tell down, up apart$/m);
    const { config, weights } = await loadWeights(here, 'run');
    expect(config).toMatchObject({ id2label: { 0: 'down', 1: 'up' }, label2id: { down: 0, up: 1 } });
    const found = await collect(weights);
    const drawn = [...found.keys()].filter((name) => {
      const own = values.get(name) ?? values.get(name.replace(/^bert\./, ''));
      if (own) expect(found.get(name), name).toEqual(own);
      return !own;
    });
    const pooler = hasPooler ? [] : ['bert.pooler.dense.weight', 'bert.pooler.dense.bias'];
    expect(drawn.sort()).toEqual([...pooler, 'classifier.weight', 'classifier.bias'].sort());
    expect(entry(found, 'classifier.weight').every((value) => value !== 0)).toBe(true);
    expect(entry(found, 'classifier.bias').every((value) => Math.abs(value) < 1e-20)).toBe(true);
  });

  test.runIf(EVERY_CASE)('of a classifier, where it knows none of the classes', async () => {
    const { files, values } = published('BertForSequenceClassification');
    const data = lines(...TEXTS.map((text, i) => ({ text, label: `kind ${i % 4}` })));
    const here = new MemoryFiles({ ...files, 'r.jsonl': data });
    const out = await done(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', 'run', ...QUICK, ...STILL]);
    expect(out).toContain('head: a new one is drawn, which learns to tell kind 0, kind 1, kind 2, kind 3 apart');
    const found = await collect((await loadWeights(here, 'run')).weights);
    expect(entry(found, 'classifier.weight')).toHaveLength(4 * C);
    expect(entry(found, 'bert.pooler.dense.weight')).toEqual(entry(values, 'bert.pooler.dense.weight'));
  });

  test('is learned: of words that say it, texts that were held back are told right', async () => {
    const words = ['the', 'cat', '日', '.'];
    const random = new Random(3, 'reviews');
    const data = lines(
      ...Array.from({ length: 120 }, (_, i) => {
        const list = Array.from({ length: 1 + random.below(4) }, () => words[random.below(4)]!);
        list.splice(random.below(list.length + 1), 0, i % 2 === 0 ? 's' : 'cafe');
        return { text: list.join(' '), label: i % 2 };
      }),
    );
    const here = new MemoryFiles({ ...published('BertForMaskedLM').files, 'r.jsonl': data });
    const flags = ['--lr', '1e-2', '--batch', '6', '--steps', '30', '--eval-every', '0', '--warmup', '2', '--json'];
    const train = async (out: string, ...more: string[]) => {
      const said = await inProcess(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', out, ...flags, ...more]);
      expect(`${said.status} ${said.said}`).toMatch(/^0 dropout: none; [^\n]*\nhead: [^\n]*LABEL_0, LABEL_1 apart\n/);
      return said.out;
    };
    const last = (await train('whole')).trim().split('\n').at(-1)!;
    expect((JSON.parse(last) as { summary: { accuracy: number } }).summary.accuracy).toBe(1);
    if (!EVERY_CASE) return;
    // Gone on with, in the same bits.
    await train('parts', '--until', '20');
    const rest = await inProcess(here, ['train', '--resume', '--out', 'parts']);
    expect([rest.status, rest.said]).toEqual([0, '']);
    const weights = (run: string) => here.read(`${run}/checkpoint-30/model.safetensors`);
    expect(await weights('parts')).toEqual(await weights('whole'));
  });

  test('and so is a model that is drawn whole', async () => {
    const here = new MemoryFiles({ 'r.jsonl': lines(...TEXTS.map((text, i) => ({ text, label: i % 3 }))) });
    const shape = ['--model', 'bert', '--layers', '1', '--width', '8', '--heads', '2', '--context', '40'];
    const out = await done(here, ['train', ...shape, '--data', 'r.jsonl', '--out', 'run', ...QUICK]);
    expect(out).toContain('nats per text');
    expect((await loadWeights(here, 'run')).config).toMatchObject({ id2label: { 2: 'LABEL_2' }, vocab_size: 256 });
  });
});

test('images are told as the last validation of the run told them, of all that it had not seen', async () => {
  const here = new MemoryFiles();
  const shape = ['--model', 'vit', '--layers', '1', '--width', '8', '--heads', '2', '--patch', '16', '--batch', '32'];
  const { status, out } = await inProcess(here, [
    ...['train', ...shape, '--data', 'synthetic', '--eval-windows', '256', '--steps', '4', '--out', 'run'],
    ...['--warmup', '0', '--eval-every', '0', '--json'],
  ]);
  expect(status).toBe(0);
  const { summary } = JSON.parse(out.trim().split('\n').at(-1)!) as { summary: Record<string, number> };
  const report = await done(here, ['eval', 'run', '--data', 'synthetic', '--batch', '32', '--json']);
  const { accuracy, loss, images } = JSON.parse(report) as Record<string, number>;
  expect([accuracy, images]).toEqual([summary['accuracy'], 256]);
  // Eight sums of batches, added up in 32 bits or in 64.
  expect(Math.abs(loss! / summary['validationLoss']! - 1)).toBeLessThan(8 * 2 ** -23);
});

test('a folder of PNG images: its classes are the model’s, and others are told by a new head', async () => {
  const image = (value: number) => png(new Uint8Array(4 * 4).fill(value), { width: 4, height: 4, kind: 0 });
  const folder = (name: string, classes: readonly string[]) =>
    Object.fromEntries(
      classes.flatMap((label, i) =>
        Array.from({ length: 8 }, (_, n) => [`${name}/${label}/${n}.png`, image((200 * i) / (classes.length - 1) + n)]),
      ),
    );
  const here = new MemoryFiles({
    ...folder('d', ['dark', 'light']),
    ...Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`same/light/${n}.png`, image(n)])),
    ...{ ...folder('e', ['a', 'b', 'c']), ...folder('mixed', ['a', 'light']) },
  });
  const shape = ['--model', 'vit', '--layers', '1', '--width', '8', '--heads', '2', '--patch', '2'];
  const flags = ['--lr', '2e-2', '--batch', '6', '--steps', '16', '--warmup', '0', '--eval-every', '0'];
  const out = await done(here, ['train', ...shape, '--data', 'd', ...flags, '--out', 'run']);
  expect(out).toContain(
    'data: 14 images of 1 x 4 x 4 in 2 classes to train on, 2 of 2 others to validate on (16 files: 8 dark, 8 light)',
  );
  const { config } = await loadWeights(here, 'run');
  expect(config).toMatchObject({ id2label: { 0: 'dark', 1: 'light' } });
  expect(await done(here, ['eval', 'run', '--data', 'd'])).toContain('accuracy 100.00 % (16 of 16 images)');
  // Numbered 0 there, and 1 by the model; all of it is as dark as can be.
  if (EVERY_CASE)
    expect(await done(here, ['eval', 'run', '--data', 'same'])).toContain('accuracy 0.00 % (0 of 8 images)');
  // Of any size, they are brought to the model's.
  const sized = (label: string, value: number, width: number) =>
    here.writeAtomic(
      `sizes/${label}/${width}.png`,
      png(new Uint8Array(width * 3).fill(value), { width, height: 3, kind: 0 }),
    );
  await sized('dark', 2, 5);
  await sized('light', 203, 2);
  expect(await done(here, ['eval', 'run', '--data', 'sizes'])).toContain('accuracy 100.00 % (2 of 2 images)');
  // What is changed in it is to be read.
  await here.remove('run/checkpoint-16/SHA256SUMS');
  const preprocessed = async (fields: object) => {
    await here.writeAtomic('run/checkpoint-16/preprocessor_config.json', JSON.stringify(fields));
    return inProcess(here, ['eval', 'run', '--data', 'sizes']);
  };
  const usual = { do_resize: true, image_mean: [0.5], image_std: [0.5], resample: 2, size: { height: 4, width: 4 } };
  expect((await preprocessed({ ...usual, resample: 1 })).said).toBe(
    'holdfast: run/checkpoint-16/preprocessor_config.json: resample is 1; images are read with 2, bilinear, or 3, bicubic here\n',
  );
  expect((await preprocessed(usual)).status).toBe(0);
  const tune = (data: string) =>
    inProcess(here, ['finetune', 'run', '--data', data, '--out', `tuned-${data}`, ...QUICK, ...STILL]);
  expect((await tune('e')).out).toContain('head: a new one is drawn, which learns to tell a, b, c apart');
  const [before, after] = [await loadWeights(here, 'run'), await loadWeights(here, 'tuned-e')];
  const [old, tuned] = [await collect(before.weights), await collect(after.weights)];
  for (const [name, values] of old) if (!name.startsWith('classifier.')) expect(tuned.get(name), name).toEqual(values);
  expect(entry(tuned, 'classifier.weight')).toHaveLength(3 * 8);
  expect(await tune('mixed')).toMatchObject({
    status: 2,
    said: 'holdfast: mixed: the class "a" is none of the model\'s; it tells dark, light apart\n',
  });
});

describe('refused in one line', () => {
  const classifier = published('BertForSequenceClassification').files;
  const masked = published('BertForMaskedLM').files;
  test.each<[string, Record<string, string | Uint8Array>, string, string[], string]>([
    [
      'a class that the model lacks',
      classifier,
      '{"text":"a","label":"good"}\n{"text":"b","label":"fine"}',
      [],
      'r.jsonl:2: the class "fine" is none of the model\'s; it tells bad, good, odd apart',
    ],
    [
      'a number that it lacks',
      classifier,
      '{"text":"a","label":7}',
      [],
      'r.jsonl: has 8 classes, the model tells 3 apart',
    ],
    [
      'a record without a label',
      classifier,
      '{"text":"a","label":"bad"}\n\n{"text":"b"}',
      [],
      'r.jsonl:3: label is missing; it must be a name, or a whole number from 0 on',
    ],
    [
      'a label of another kind',
      classifier,
      '{"text":"a","label":1}\n{"text":"b","label":"bad"}',
      [],
      'r.jsonl:2: label is "bad", a name; those before it are numbers',
    ],
    [
      'a label that is none',
      classifier,
      '{"text":"a","label":-1}',
      [],
      'r.jsonl:1: label is -1; it must be a name, or a whole number from 0 on',
    ],
    [
      'a text that is none',
      classifier,
      '{"text":["a"],"label":1}',
      [],
      'r.jsonl:1: text is a list of 1; it must be a text',
    ],
    [
      'a record without a text',
      classifier,
      '{"words":"a","label":1}',
      [],
      'r.jsonl:1 is an object without a text; it must have label, and text and text_pair',
    ],
    [
      'one text where two were',
      classifier,
      '{"text":"a","text_pair":"b","label":1}\n{"text":"a","label":1}',
      [],
      'r.jsonl:2: text_pair is missing',
    ],
    ['what is no JSON', classifier, '{"text":"a","label":1}\n{', [], 'r.jsonl:2: not JSON'],
    [
      'one class alone',
      masked,
      '{"text":"a","label":"x"}\n{"text":"b","label":"x"}',
      [],
      'r.jsonl: all of one class; a classifier learns to tell two or more apart',
    ],
    ['records without labels', masked, '{"text":"a"}', [], 'r.jsonl:1 has fields "text", and of records a model that'],
    [
      'records whose fields have other names',
      masked,
      '{"review":"a","label":"b"}',
      [],
      'r.jsonl:1 has fields "review, label", and of records a model that writes no text learns classes; it must have label, and text',
    ],
    [
      'a class without a name',
      masked,
      lines({ text: 'a', label: 'b' }, { text: 'c', label: ' ' }),
      [],
      'r.jsonl:2: label is " "',
    ],
    ['a flag of what writes', classifier, REVIEWS, ['--pack', 'no'], '--pack: is of what a model writes'],
    [
      'no labels at all',
      classifier,
      REVIEWS,
      ['--data', 'synthetic'],
      'synthetic: has no labels; a classifier of texts learns from JSON records',
    ],
    [
      'a bare model and no labels',
      published('BertModel').files,
      REVIEWS,
      ['--data', 'r.txt'],
      'a bare BertModel has no head',
    ],
    [
      'a regression',
      published('BertForSequenceClassification', { id2label: { 0: 'x' }, label2id: { x: 0 } }).files,
      REVIEWS,
      [],
      'm/config.json: id2label is of 1 class, which makes it a regression',
    ],
    [
      'several labels at once',
      published('BertForSequenceClassification', { problem_type: 'multi_label_classification' }).files,
      REVIEWS,
      [],
      'm/config.json: problem_type is "multi_label_classification"; supported: "single_label_classification"',
    ],
  ])('%s', async (_, files, data, flags, message) => {
    const here = new MemoryFiles({ ...files, 'r.jsonl': data, 'r.txt': 'text' });
    const named = flags.includes('--data') ? [] : ['--data', 'r.jsonl'];
    const { status, said } = await inProcess(here, ['finetune', 'm', ...named, '--out', 'run', ...QUICK, ...flags]);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });

  test('so is data that a classifier is not measured with', async () => {
    const here = new MemoryFiles({ ...classifier, 'r.jsonl': REVIEWS });
    for (const [flags, message] of [
      [['--stride', '2'], '--stride: is of a model that writes'],
      [['--context', '3'], 'rows of 3 tokens: with its marks, a text needs 4 at least'],
    ] as const) {
      const { status, said } = await inProcess(here, ['eval', 'm', '--data', 'r.jsonl', ...flags]);
      expect([status, said]).toEqual([2, expect.stringContaining(message)]);
    }
  });
});
