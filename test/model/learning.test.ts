// Fine-tuning is learning: a model with a tokenizer of its own, both made of the default corpus, is fine-tuned on questions and
// answers, and then answers questions that it has never seen. By the commands, as a person would; in the sample fewer words, a
// smaller model and a part of the corpus, in `npm run test:all` all of them.

import { expect, test } from 'vitest';
import { defaultCorpus } from '../../src/data/corpus.ts';
import { tokenizerOf } from '../../src/data/open-tokenizer.ts';
import { Conversation } from '../../src/train/inference/conversation.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { withModel } from '../../src/train/run/open-model.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { done } from '../cli/in-process.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

chooseVariants(9);

/** Words of the corpus. */
const TYPES = {
  ...{ name: 'string', time: 'number', state: 'boolean', animation: 'object', method: 'interface', value: 'property' },
};
const QUESTIONS = [
  (word: string) => `What is a ${word}?`,
  (word: string) => `And this ${word}?`,
  (word: string) => `One more time, what would be the ${word}?`,
  (word: string) => `Which type has my ${word}?`,
  (word: string) => `Do you know the ${word}?`,
  (word: string) => `So it is a ${word}?`,
];
const TEMPLATE = `{% for m in messages %}{{ ('Q: ' if m.role == 'user' else 'A:\\n') + m.content + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'A:\\n' }}{% endif %}`;

const EPOCHS = 60;
/** `batch`: of conversations. A small one takes as many steps for a small model's few of them. */
const { words, corpusBytes, vocabulary, width, pretraining, batch } = EVERY_CASE
  ? {
      ...{ words: 6, corpusBytes: Number.POSITIVE_INFINITY, vocabulary: 1024, width: 64 },
      ...{ pretraining: ['--steps', '1000', '--warmup', '10'], batch: 8 },
    }
  : {
      ...{ words: 3, corpusBytes: 150_000, vocabulary: 500, width: 32 },
      ...{ pretraining: ['--steps', '10', '--warmup', '5', '--batch', '4'], batch: 1 },
    };

const asked = Object.entries(TYPES).slice(0, words);
const pairs = asked.flatMap(([word, type], i) =>
  QUESTIONS.map((question, j) => ({
    asked: question(word),
    answer: `a ${type}`,
    isHeld: j === i % QUESTIONS.length,
  })),
);
const held = pairs.filter(({ isHeld }) => isHeld);
const record = ({ asked, answer }: (typeof pairs)[number]) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: asked },
      { role: 'assistant', content: answer },
    ],
  });

test.runIf(THOROUGH)(
  'a model of the corpus, fine-tuned on conversations, answers what it was never asked',
  async () => {
    const corpus = await defaultCorpus(testHost);
    const files = new MemoryFiles({
      'corpus.txt': corpus.bytes.subarray(0, corpusBytes),
      'chats.jsonl': pairs
        .filter(({ isHeld }) => !isHeld)
        .map(record)
        .join('\n'),
      'held.jsonl': held.map(record).join('\n'),
      'qa.jinja': TEMPLATE,
    });
    await done(files, ['tokenizer', 'train', '--data', 'corpus.txt', '--vocab-size', `${vocabulary}`, '--out', 'bpe']);
    const shape = ['--model', 'llama', '--layers', '2', '--width', `${width}`, '--heads', '4', '--context', '80'];
    const quiet = ['--sample-tokens', '0', '--eval-windows', '8'];
    const pretrained = ['--data', 'corpus.txt', ...pretraining, '--eval-every', '0'];
    await done(files, ['train', ...shape, '--tokenizer', 'bpe', ...pretrained, ...quiet, '--out', 'base']);
    const chats = ['--data', 'chats.jsonl', '--validation', 'held.jsonl', '--chat-template', 'qa.jinja'];
    const tuned = [
      '--epochs',
      `${EPOCHS}`,
      '--lr',
      '1e-2',
      '--batch',
      `${batch}`,
      '--context',
      '64',
      '--eval-every',
      '10',
      '--save-every',
      '0',
      ...quiet,
    ];
    await done(files, ['finetune', 'base', ...chats, ...tuned, '--out', 'tuned']);

    const device = await testDevice();
    const state = await savedState(memoryHost(files), 'tuned');
    const answersOf = (folder: string) =>
      withModel(files, folder, {}, async ({ model, weights, tokenizer: found }) => {
        const tokenizer = await tokenizerOf(undefined, found, model.shape.vocabulary, folder);
        const generator = await Generator.open(device, model, weights);
        const options = { template: state.settings.records!.template!, tokens: 20, temperature: 0 };
        const answers: string[] = [];
        for (const { asked } of held) {
          const conversation = new Conversation(generator, tokenizer, options, new Random(1, 'greedy'));
          let answer = '';
          for await (const piece of conversation.answer(asked)) answer += piece;
          answers.push(answer);
        }
        await generator.close();
        return answers;
      });
    const wanted = held.map(({ answer }) => answer);
    expect(await answersOf('tuned')).toEqual(wanted);
    expect((await answersOf('base')).filter((answer, i) => answer === wanted[i])).toEqual([]);
  },
);
