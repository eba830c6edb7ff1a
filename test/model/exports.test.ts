// Every export of the library, and every method of its device, called with wrong values (wrong-arguments.ts).

import { expect, test, vi } from 'vitest';
import * as library from '../../src/index.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { CHECKPOINT, RUN, savedRun } from '../saved-run.ts';
import { type Call, mistakesOf, strangersTaken, taken } from '../wrong-arguments.ts';
import { batchesOf, SMALLEST } from './runs.ts';

const { model, batch, seq } = { model: SMALLEST, batch: 2, seq: 8 };
const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;

type Handled = Parameters<library.EarlyStopping['onEvaluate']>;

async function calls(): Promise<Record<string, Call>> {
  const device = await testDevice();
  const { files, state } = await savedRun();
  const host = memoryHost(files);
  const weights = library.initialWeights(model, 1);
  const low = library.withLora(model, { rank: 2 });
  const tokens = Uint16Array.from({ length: 60 }, (_, i) => i % 40);
  const bytes = new library.ByteTokenizer();
  const random = () => new library.Random(1, 'test');
  const saved = await library.loadCheckpoint(files, CHECKPOINT);
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const [[one]] = [...batchesOf({ model, batch, seq, accumulate: 1, steps: 1 })] as never as [[library.Batch]];
  const trainer = await library.Trainer.create(device, model, { batch, seq, schedule });
  await trainer.setWeights(weights);
  const generator = await library.Generator.open(device, model, weights);
  const texts = await library.BatchGenerator.open(device, model, weights, { batch: 2 });
  const evaluator = await library.Evaluator.open(device, model, weights, { batch, seq });
  const seer = library.makeModel(
    library.parseConfig(
      {
        ...{ model_type: 'vit', image_size: 4, patch_size: 2, hidden_size: 16, intermediate_size: 32 },
        ...{ num_hidden_layers: 1, num_attention_heads: 2, num_labels: 3 },
      },
      'a classifier',
    ),
  );
  const image = { pixels: new Float32Array(3 * 4 * 4), batch: 1, seq: seer.shape.context };
  const classifier = await library.Classifier.open(device, seer, library.initialWeights(seer, 1));
  const sizes = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 };
  const bert = { model_type: 'bert', architectures: ['BertForSequenceClassification'], vocab_size: 256, ...sizes };
  const reader = library.makeModel(library.parseConfig({ ...bert, max_position_embeddings: 8 }, 'a classifier'));
  const reading = await library.Classifier.open(device, reader, library.initialWeights(reader, 1));
  const windows = () => new library.RandomWindows(tokens, 2, 8, 1);
  const closing = async (made: Promise<{ close(): Promise<void> }>) => (await made).close();
  const template = { name: 'chatml', text: '{{ messages[0].content }}', date: '2026-01-01' };
  const conversation = { tokens: 2, template };
  const tokenizer = {
    ...bytes,
    encode: () => Int32Array.of(1, 2),
    stream: () => ({ push: () => 'a', end: () => '' }),
    specials: { eos: [] },
    addsBos: false,
  };
  return {
    BatchGenerator: {
      args: [device, model, weights, { batch: 2, capacity: 8, memory: { gpu: 1e8 } }],
      call: (...args) => closing((library.BatchGenerator.open as never as (...a: unknown[]) => never)(...args)),
    },
    'BatchGenerator.generate': {
      args: [Int32Array.of(1), 2, { temperature: 1, topK: 2, topP: 0.5 }, random(), { adapter: 'none' }],
      call: (...args) => taken(texts.generate(...(args as Parameters<typeof texts.generate>))),
    },
    ByteTokenizer: { args: [], call: () => new library.ByteTokenizer() },
    'ByteTokenizer.encode': { args: ['text'], call: (text) => bytes.encode(text) },
    'ByteTokenizer.decode': { args: [[1, 2]], call: (ids) => bytes.decode(ids) },
    'ByteTokenizer.show': { args: [1], call: (id) => bytes.show(id) },
    'ByteTokenizer.stream': { args: [1], call: (id) => bytes.stream().push(id) },
    Conversation: {
      args: [generator, tokenizer, { ...conversation, system: 'be', stop: ['x'], messages: [] }, random()],
      call: (...args) =>
        new library.Conversation(...(args as ConstructorParameters<typeof library.Conversation>)).messages,
    },
    'Conversation.answer': {
      args: ['hi'],
      call: (text) => taken(new library.Conversation(generator, tokenizer, conversation, random()).answer(text)),
    },
    'Device.check': { args: [], call: () => device.check() },
    'Device.idle': { args: [], call: () => device.idle() },
    'Device.reopen': { args: [], call: async () => (await device.reopen()).close() },
    EarlyStopping: {
      args: [1, 0],
      call: (patience, threshold) => new library.EarlyStopping(patience, threshold),
    },
    'EarlyStopping.onEvaluate': {
      args: [{ log_history: [{ eval_loss: 1, epoch: 1, step: 1 }] }, { shouldTrainingStop: false }],
      call: (...args) => new library.EarlyStopping(1).onEvaluate(...(args as Handled)),
    },
    'EarlyStopping.onTrainBegin': {
      args: [{ log_history: [{ eval_loss: 1, epoch: 1, step: 1 }] }, { shouldTrainingStop: false }],
      call: (...args) => new library.EarlyStopping(1).onTrainBegin(...(args as Handled)),
    },
    Classifier: {
      args: [device, seer, library.initialWeights(seer, 1), { choices: {}, memory: { gpu: 1e8 } }],
      call: (...args) => closing((library.Classifier.open as never as (...a: unknown[]) => never)(...args)),
    },
    'Classifier.tell': { args: [{ ...image }], call: (given) => classifier.tell(given) },
    'Classifier.tellText': {
      args: [bytes, 'text', 'pair'],
      call: (...args) => reading.tellText(...(args as Parameters<typeof reading.tellText>)),
    },
    Evaluator: {
      args: [device, model, weights, { batch, seq, packed: false, memory: { gpu: 1e8 } }],
      call: (...args) => closing((library.Evaluator.open as never as (...a: unknown[]) => never)(...args)),
    },
    'Evaluator.lossOf': { args: [{ ...one }], call: (given) => evaluator.lossOf(given) },
    Generator: {
      args: [device, model, weights, { capacity: 8, choices: {}, memory: { gpu: 1e8 } }],
      call: (...args) => closing((library.Generator.open as never as (...a: unknown[]) => never)(...args)),
    },
    'Generator.generate': {
      args: [Int32Array.of(1), 2, { temperature: 1, topK: 2, topP: 0.5 }, random(), { adapter: 'none' }],
      call: (...args) => taken(generator.generate(...(args as Parameters<typeof generator.generate>))),
    },
    'Generator.next': {
      args: [Int32Array.of(1), { adapter: 'none' }],
      call: (...args) => generator.next(...(args as Parameters<typeof generator.next>)),
    },
    HoldfastError: { args: ['message'], call: (message) => new library.HoldfastError(message) },
    Random: { args: [1, 'stream'], call: (seed, stream) => new library.Random(seed, stream) },
    Stopped: { args: ['message'], call: (message) => new library.Stopped(message) },
    'Random.below': { args: [3], call: (n) => random().below(n) },
    'Random.restore': { args: [random().state()], call: (given) => random().restore(given) },
    RandomWindows: {
      args: [tokens, 2, 8, 1, 1],
      call: (...args) =>
        new library.RandomWindows(...(args as ConstructorParameters<typeof library.RandomWindows>)).next(),
    },
    'RandomWindows.restore': { args: [windows().state()], call: (given) => windows().restore(given) },
    Trainer: {
      args: [
        device,
        model,
        {
          ...{ batch, seq, accumulate: 1, seed: 1, packed: false, generates: false, schedule, choices: {} },
          ...{ optimizer: { beta1: 0.9 }, optimizerDevice: 'gpu', optimizerSplit: undefined, update: 'at-end' },
          ...{ activationDtype: 'f32', memory: { gpu: 1e8 }, ranks: undefined, threads: undefined, signal: undefined },
        },
      ],
      call: async (...args) => {
        const made = await library.Trainer.create(...(args as Parameters<typeof library.Trainer.create>));
        await made.destroy();
      },
    },
    'Trainer, memory': {
      args: [{ gpu: 1e8, host: 1e8, disk: undefined, policy: 'lru', prefetch: true, recovery: 'step' }],
      call: async (memory) => (await library.Trainer.create(device, model, { batch, seq, schedule, memory })).destroy(),
    },
    'Trainer, schedule': {
      args: [schedule],
      call: async (given) => (await library.Trainer.create(device, model, { batch, seq, schedule: given })).destroy(),
    },
    'Trainer.start': {
      args: [[{ ...one }], {}],
      call: (batches, hooks) => trainer.start(batches, hooks),
    },
    'Trainer.start, batch': { args: [{ ...one }], call: (given) => trainer.start([given]) },
    'Trainer.evaluate': { args: [{ ...one }], call: (given) => trainer.evaluate(given) },
    'Trainer.score': { args: [{ ...one }], call: (given) => trainer.score(given) },
    'Trainer.values': { args: ['parameter'], call: (kind) => library.collect(trainer.values(kind)) },
    'Trainer.setValues': {
      args: ['moment1', library.initialWeights(model, 1)],
      call: (kind, source) => trainer.setValues(kind, source),
    },
    'Trainer.setWeights': { args: [weights], call: (source) => trainer.setWeights(source) },
    'Trainer.setBudget': { args: [1e8], call: (budget) => trainer.setBudget(budget) },
    'Trainer.fits': { args: [1e8], call: (budget) => trainer.fits(budget) },
    'Trainer.restore': { args: [{ ...(await trainer.state()) }], call: (given) => trainer.restore(given) },
    'Trainer.collect': { args: [async () => 1], call: (work) => trainer.collect(work) },
    'Trainer.share': { args: [async () => 1], call: (work) => trainer.share(work) },
    checkWeights: { args: [shapes, model.parameters, 'here'], call: library.checkWeights },
    collect: { args: [weights], call: library.collect },
    computedIn: { args: [model, 'bf16'], call: library.computedIn },
    configOfShape: {
      args: [
        { ...library.DEFAULT_SHAPE, family: 'vit', images: { image: 8, patch: 4, channels: 3, classes: 2 } },
        'shape',
      ],
      call: library.configOfShape,
    },
    defaultCorpus: { args: [{ ...host, exampleText: async () => new Uint8Array(4) }], call: library.defaultCorpus },
    defaultSettings: { args: [{ config: model.config, lr: 1, batch: 2 }], call: library.defaultSettings },
    evenWindows: { args: [tokens, 8, 2, 1], call: library.evenWindows },
    findChatTemplate: {
      args: [files, { name: 'chatml', model: RUN, tokenizer: undefined, date: '2026-01-01' }],
      call: library.findChatTemplate,
    },
    findTokenizer: { args: [files, RUN], call: library.findTokenizer },
    holdRecords: { args: [host, ['text.txt']], call: library.holdRecords },
    initialWeights: {
      args: [model, 1, 100],
      call: (...args) => library.collect(library.initialWeights(...(args as [typeof model, number]))),
    },
    listAdapters: { args: [{ ...host, gpuSources: async () => [] }], call: library.listAdapters },
    loadAdapter: { args: [files, RUN, model.config], call: library.loadAdapter },
    loadCheckpoint: { args: [files, RUN], call: library.loadCheckpoint },
    makeRanks: {
      args: [
        { rank: 0, size: 4, library: 'none', send: async () => {}, receive: async () => {} },
        { stage: 2, tensor: 2, pipeline: 1, sequenceParallel: false, watchdog: undefined },
      ],
      call: library.makeRanks,
    },
    measureRates: { args: [device], call: library.measureRates },
    loadChoices: { args: [host, device], call: library.loadChoices },
    loadCorpus: { args: [host, ['text.txt']], call: library.loadCorpus },
    loadWeights: { args: [files, RUN, undefined], call: library.loadWeights },
    makeModel: { args: [{ ...model.config }], call: library.makeModel },
    mergedWeights: {
      args: [low, library.initialWeights(low, 1), 'default'],
      call: async (...args) => library.collect(await library.mergedWeights(...(args as [typeof low, typeof weights]))),
    },
    momentsIn: { args: [model, 'bf16'], call: library.momentsIn },
    openDevice: { args: [{ ...host, gpuSources: async () => [] }, { adapter: 'auto' }], call: library.openDevice },
    parameterCount: { args: [model], call: library.parameterCount },
    parseConfig: { args: [{ ...model.config }, 'here'], call: library.parseConfig },
    parseSafetensors: {
      args: [library.serializeSafetensors([['a', { shape: [2], data: new Float32Array(2) }]]), 'here'],
      call: library.parseSafetensors,
    },
    planRun: {
      args: [
        { ...library.defaultSettings({ sampleTokens: 0, batch: 2 }) },
        {
          memory: { gpu: 2e6, host: 1e8, disk: 1e8, policy: 'lru' },
          device,
          host,
          rates: undefined,
          stored: new Map(),
        },
      ],
      call: library.planRun,
    },
    promptIds: { args: [bytes, 'text'], call: library.promptIds },
    saveCheckpoint: {
      args: [
        new MemoryFiles(),
        'run',
        1,
        { config: model.config, state: {}, shapes, weights, moment1: weights, moment2: weights },
        { best: undefined },
      ],
      call: library.saveCheckpoint,
    },
    saveChoices: { args: [host, device, { a: 'b' }], call: library.saveChoices },
    serializeSafetensors: {
      args: [[['a', { shape: [2], data: new Float32Array(2) }]], { a: 'b' }],
      call: library.serializeSafetensors,
    },
    'serializeSafetensors, tensor': {
      args: [{ shape: [2], data: new Float32Array(2) }],
      call: (tensor) => library.serializeSafetensors([['a', tensor]]),
    },
    sourceOf: {
      args: [new Map([['a', new Float32Array(2)]]), 1],
      call: (...args) => library.collect(library.sourceOf(...(args as Parameters<typeof library.sourceOf>))),
    },
    split: { args: [{ bytes: new Uint8Array(20), lineBytes: 2 }, 0.5], call: library.split },
    stridedWindows: { args: [tokens, { context: 8, stride: 2, batch: 2 }], call: library.stridedWindows },
    tokenizerFrom: {
      args: [{ path: 'here', sha256: '', contents: new Map([['tokenizer.json', new Uint8Array()]]) }],
      call: library.tokenizerFrom,
    },
    trainRun: {
      args: [host, device, { ...library.defaultSettings(), data: ['nothing'] }, 'other', { until: 1, resume: false }],
      call: library.trainRun,
    },
    withLora: {
      args: [
        model,
        { rank: 2, alpha: 1, targets: ['c_attn'], dropout: 0.1, rslora: false, modulesToSave: undefined },
        'default',
      ],
      call: library.withLora,
    },
    withModel: { args: [files, RUN, { base: undefined, adapters: {} }, async () => 1], call: library.withModel },
    withStored: { args: [model, () => 'bf16'], call: library.withStored },
    'withStored, element': { args: ['bf16'], call: (element) => library.withStored(model, () => element) },
    writeGGUF: {
      args: [files, RUN, 'nowhere/m.gguf', { type: 'F16', modelfile: false, base: undefined, signal: undefined }],
      call: async (given, run, out, options) => {
        await library.writeGGUF(given, run, out, options);
        await files.remove(out);
      },
    },
    writeReport: {
      args: [host, RUN, {}, state],
      call: (given, out, _, saved) => library.writeReport(given, out, undefined as never, saved),
    },
    writeText: {
      args: [generator, tokenizer, 'a', { tokens: 2, stop: ['x'], adapter: 'none', temperature: 1 }, random()],
      call: (...args) => taken(library.writeText(...(args as Parameters<typeof library.writeText>))),
    },
    writeTimeline: { args: [host, 'file', undefined, []], call: library.writeTimeline },
    'a tensor that was saved': {
      args: ['wte.weight'],
      call: (name) => saved.weights.read(name),
    },
  };
}

/** Data, not options: a file or another program may have more in it than is known here. */
const HOLDS_MORE = new RegExp(
  [
    '\\.(?:choices|config|template|tokenizer|adapters)$',
    '^(?:EarlyStopping\\.|Classifier\\.tell|Evaluator\\.lossOf|Trainer\\.(?:start, batch|evaluate|score|restore)|split)',
    '^(?:loadAdapter|makeModel|parseConfig|saveChoices|saveCheckpoint, argument 3|serialize|tokenizerFrom|writeReport)',
  ].join('|'),
);

/** No calls: data. */
const DATA = ['ADAMW_DEFAULTS', 'DEFAULT_SHAPE', 'STEP_READS'];

test('a wrong argument is refused in one line, or taken; an option that there is not is refused', async () => {
  chooseVariants(1);
  try {
    const all = await calls();
    const named = new Set(Object.keys(all).map((name) => name.replace(/[.,].*$/, '')));
    expect(Object.keys(library).filter((name) => !named.has(name) && !DATA.includes(name))).toEqual([]);
    expect(await mistakesOf(all)).toEqual([]);
    expect((await strangersTaken(all)).filter((what) => !HOLDS_MORE.test(what))).toEqual([]);
  } finally {
    vi.restoreAllMocks();
  }
});
