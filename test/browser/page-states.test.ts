// States of the demo page's parts in its own markup: where the focus is after each press, and what each says that is next.

import { afterAll, beforeEach, expect, test } from 'vitest';
import '../../demo/style.css';
import { RunCurves } from '../../demo/curve-data.ts';
import { DataPanel } from '../../demo/data.ts';
import { FormEstimate } from '../../demo/form-estimate.ts';
import markup from '../../demo/index.html?raw';
import { Live } from '../../demo/live.ts';
import { Timeline } from '../../demo/memory/timeline.ts';
import { MemoryPanel } from '../../demo/memory-panel.ts';
import { ModelForm } from '../../demo/model.ts';
import { Notes, sayEvent } from '../../demo/notes.ts';
import { OwnModel } from '../../demo/own-model.ts';
import { RunButtons } from '../../demo/run-buttons.ts';
import { RunList, type RunListEvents } from '../../demo/runs.ts';
import type { Training } from '../../demo/training.ts';
import { Writing } from '../../demo/writing.ts';
import type {
  Estimate,
  Holdfast,
  MemorySettings,
  RunEvent,
  RunInfo,
  RunSettings,
  StepPicture,
} from '../../src/browser/index.ts';
import { deferred } from '../../src/util/deferred.ts';

const TITLE = document.title;
beforeEach(() => {
  document.body.innerHTML = /<body[^>]*>([\s\S]*)<\/body>/.exec(markup)?.[1] ?? '';
  for (const script of document.body.querySelectorAll('script')) script.remove();
});
afterAll(() => {
  document.body.replaceChildren();
  document.title = TITLE;
});
const byId = (id: string) => document.getElementById(id) as HTMLElement;
const focus = () => document.activeElement?.id;
const drawn = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
const settled = () => new Promise((resolve) => setTimeout(resolve));
const SETTINGS = { steps: 40, lr: 0.01, minLr: 0.002, data: [] as readonly string[] } as RunSettings;
const run = (id: string, more: Partial<RunInfo> = {}) =>
  ({ id, name: id, savedStep: 10, status: 'stopped', open: 'no', created: 1, settings: SETTINGS, ...more }) as RunInfo;

test('the focus of Train and Pause waits at the status line while they are out of use, and comes back', () => {
  const nothing = () => {};
  const buttons = new RunButtons({ train: nothing, pause: nothing, step: nothing, stop: nothing });
  const show = (phase: Training['phase'], stoppable = true) =>
    buttons.show({ phase, stoppable, open: phase !== 'none' });
  buttons.canTrain = true;
  byId('train').focus();
  buttons.canTrain = false;
  expect(focus()).toBe('status');
  show('preparing', false);
  buttons.canTrain = true;
  expect(focus()).toBe('status');
  show('preparing');
  expect(focus()).toBe('status');
  show('training');
  expect(focus()).toBe('pause');
  show('pausing', false);
  expect(focus()).toBe('status');
  show('paused');
  expect(focus()).toBe('pause');
  byId('step').focus();
  show('paused');
  expect(focus()).toBe('step');
  byId('stop').focus();
  show('stopping', false);
  show('none', false);
  expect(focus()).toBe('train');
  byId('prompt').focus();
  show('preparing', false);
  show('training');
  expect(focus()).toBe('prompt');
});

test('a run that is removed leaves the focus to the one in its place, the last to what is left', async () => {
  const { list, runs, refresh } = await listOf([run('a'), run('b')]);
  const remove = () => [...list.querySelectorAll('button')].find(({ textContent }) => textContent === 'Remove');
  for (const details of list.querySelectorAll('details')) details.open = true;
  remove()?.focus();
  await refresh([run('b')]);
  expect(document.activeElement).toBe(list.querySelector('.name'));
  runs.show('b', true);
  expect(document.activeElement).toBe(list.querySelector('.name'));
  await refresh([]);
  expect(focus()).toBe('import');
});

test('buttons of the same words are told apart by their run', async () => {
  const { list } = await listOf([run('a', { name: 'mine' }), run('b', { name: 'yours' })]);
  const of = (element: Element) => byId(element.getAttribute('aria-describedby') ?? '')?.textContent;
  const forks = [...list.querySelectorAll('button')].filter(({ textContent }) => textContent === 'Fork');
  expect(forks.map(of)).toEqual(['mine', 'yours']);
  expect([...list.querySelectorAll('input')].map(of)).toEqual(['mine', 'yours']);
});

test('a run that has all its steps goes on as a fork with more, which trains at once', async () => {
  const { list, asked } = await listOf([run('a', { savedStep: 40, status: 'finished' })]);
  const further = [...list.querySelectorAll('button')].find(({ textContent }) => textContent === 'Train further');
  further?.click();
  await settled();
  const dialog = byId('dialog');
  expect(dialog.textContent).toContain('It has all its 40 steps.');
  dialog.querySelector<HTMLButtonElement>('.primary')?.click();
  await expect.poll(() => asked.goOn).toEqual(['fork']);
  expect(asked.forked).toEqual([{ name: 'a, forked', changes: { lr: 0.01, minLr: 0.002, steps: 80 } }]);
});

test('a run that is exported is said to be written, and what its file is', async () => {
  const { list, asked } = await listOf([run('a')]);
  const zip = [...list.querySelectorAll('button')].find(({ textContent }) => textContent === 'Export zip');
  zip?.click();
  await settled();
  expect(asked.said).toEqual(['Writing the files …', 'a.zip: 3 B']);
});

test('a step that is taken in a pause is said', () => {
  const notes = new Notes();
  sayEvent(notes, { type: 'paused', run: 'a', step: 40 }, 'paused');
  sayEvent(notes, { type: 'step', run: 'a', step: 40 } as RunEvent, 'paused');
  expect(byId('status').textContent).toBe('Paused after 41 steps');
  sayEvent(notes, { type: 'step', run: 'a', step: 41 } as RunEvent, 'training');
  expect(byId('status').textContent).toBe('Paused after 41 steps');
});

test('how far a text is tokenized is said by tens, and not listed', () => {
  const notes = new Notes();
  notes.say('Preparing');
  sayEvent(notes, { type: 'tokenizing', run: 'a', done: 27, total: 100 }, 'preparing');
  expect(byId('status').textContent).toBe('Preparing: 20 % of the text is tokenized …');
  expect(byId('log').childElementCount).toBe(1);
});

test('the tab’s title says how far a run is that is open', async () => {
  document.title = TITLE;
  const curves = new RunCurves();
  curves.addStep({ step: 9, loss: 1, lr: 1, gradNorm: 1, tokensPerSecond: 1 });
  const training = { curves, run: run('a'), steps: 40, open: true, phase: 'training' } as Training;
  const live = new Live();
  live.show(training);
  await drawn();
  expect(document.title).toMatch(/^25 % · ./);
  live.show({ ...training, open: false } as Training);
  await drawn();
  expect(document.title).not.toMatch(/%/);
});

test('files that are no text are named beside those that are, also once these are known to be records', async () => {
  const data = new DataPanel(
    async () => 'messages',
    () => {},
  );
  const given = [
    ['r.jsonl', '{"messages": []}\n'],
    ['p.jpg', '\xff\0'],
  ] as const;
  await data.take(given.map(([path, text]) => ({ path, file: new File([text], path) })));
  await data.looked;
  expect(byId('text-note').textContent).toBe('r.jsonl: 17 B (not p.jpg, which is not read), conversations');
});

test('a table of records is refused in the words of the command line, and named beside files that are read', async () => {
  const data = new DataPanel(
    async (text) => ((await text.text()).startsWith('{') ? 'messages' : undefined),
    () => {},
  );
  const take = async (files: Readonly<Record<string, string>>) => {
    await data.take(Object.entries(files).map(([path, text]) => ({ path, file: new File([text], path) })));
    await data.looked;
    return byId('text-note').textContent;
  };
  const table = 'text,label\nfine,good\n';
  expect(await take({ 'r.csv': table })).toMatch(
    /^r\.csv: a table of records, with the columns "text, label", is not read; write JSONL: python3 -c .*"\.$/,
  );
  expect(await take({ 'r.jsonl.gz': '\x1f\x8b\0' })).toBe(
    'r.jsonl.gz: such files are not read here; unpack it: gzip -dk "r.jsonl.gz".',
  );
  expect(data.own).toEqual({});
  expect(await take({ 'r.tsv': 'prompt\tanswer\n', 'a.txt': 'some text' })).toBe(
    'a.txt: 9 B (not r.tsv, which is not read)',
  );
  expect(await take({ 'prices.csv': 'year,price\n1990,7\n' })).toBe('prices.csv: 18 B');
  expect(await take({ 'r.jsonl': '{"messages": []}\n' })).toBe('r.jsonl: 17 B, conversations');
  expect(await take({ 'r.csv': table })).toMatch(/^r\.csv: a table of records/);
});

test('pairs with labels are no damaged records once a model learns their classes, and what is said of another file stays', async () => {
  const data = new DataPanel(
    async () => undefined,
    () => {},
  );
  const take = async (name: string, content: string) => {
    await data.take([{ path: name, file: new File([content], name) }]);
    await data.looked;
  };
  const note = byId('text-note');
  const said = () => [note.textContent, note.classList.contains('problem')];
  const problem = [
    expect.stringMatching(
      /^p\.jsonl: 40 B\. p\.jsonl:1 has fields "sentence, label": a classifier learns such records, .* or text\.$/,
    ),
    true,
  ];
  await take('p.jsonl', '{"sentence": "fine", "label": "good"}\n\n\n');
  expect(said()).toEqual(problem);
  expect(() => data.text(8)).toThrow(/^p\.jsonl:1 has fields "sentence, label": a classifier learns such records/);
  data.classesFound(true);
  expect(said()).toEqual(['p.jsonl: 40 B, records with labels', false]);
  data.classesFound(false);
  expect(said()).toEqual(problem);
  await take('r.jsonl.gz', '\x1f');
  data.classesFound(true);
  expect(said()).toEqual([expect.stringMatching(/^r\.jsonl\.gz: such files are not read here/), true]);
});

test('what a text begins with suits what the run has learned, and what a person has typed stays', () => {
  const trainer = new Proxy({}, { get: () => () => new Promise(() => {}) }) as Holdfast['trainer'];
  const writing = new Writing(() => trainer);
  const prompt = byId('prompt') as HTMLInputElement;
  const shown = (id: string, settings: object) => {
    writing.show(run(id, { settings: { ...SETTINGS, ...settings } as RunSettings }), new RunCurves());
    return prompt.value;
  };
  expect(shown('a', {})).toBe('interface ');
  expect(shown('b', { data: ['b/text'] })).toBe('');
  expect(shown('c', { task: 'addition' })).toMatch(/^\d.*=$/);
  prompt.value = 'mine';
  expect(shown('d', {})).toBe('mine');
});

test('Write keeps the focus while it writes, stops that, and a conversation is not read out before it is whole', async () => {
  const answer = deferred<unknown>();
  let listener: ((piece: string) => unknown) | undefined;
  const chat = (_: string, __: unknown, onText: (piece: string) => unknown) => {
    listener = onText;
    return answer.promise;
  };
  const sides = { voiceOf: async () => ({ writes: true, chats: true, adapter: false }), chat };
  const writing = new Writing(() => sides as unknown as Holdfast['trainer']);
  const states = () => {
    const { textContent, ariaDisabled } = byId('write');
    return [focus(), textContent, ariaDisabled, byId('chat').ariaBusy];
  };
  writing.show(run('a'), new RunCurves());
  await settled();
  (byId('prompt') as HTMLInputElement).value = 'who?';
  byId('write').focus();
  byId('write').click();
  await settled();
  expect(states()).toEqual(['write', 'Stop', null, 'true']);
  expect(listener?.('m')).toBe(true);
  byId('write').click();
  expect(states()).toEqual(['write', 'Stop', 'true', 'true']);
  expect(listener?.('e')).toBe(false);
  answer.resolve('me');
  await settled();
  expect(states()).toEqual(['write', 'Send', null, 'false']);
  expect(byId('sample-title').textContent).toBe('a conversation, stopped');
  expect(byId('chat').role).toBe('log');
});

test('the timeline has a value at all times, and one that stays while it plays', () => {
  const shown = new Timeline(() => {});
  shown.show(0);
  expect([shown.element.ariaValueNow, shown.element.ariaValueText]).toEqual(['1', 'nothing yet']);
  shown.show(6, 'moment 7');
  expect([shown.element.ariaValueNow, shown.element.ariaValueText]).toEqual(['7', 'moment 7']);
});

test('what a run needs is shown while its speed is measured', async () => {
  const measured = deferred<Estimate>();
  const found = { ...{ parameters: 1234, trained: 1234, unlimited: 9e6, smallest: 7e5, checkpoints: 1, modelData: 1 } };
  const known = { ...found, room: { quota: 1e9, used: 0, persisted: true } } as Estimate;
  const asked: unknown[] = [];
  const estimate = (...given: unknown[]) => {
    asked.push(given[3]);
    return given[3] === 'known' ? Promise.resolve(known) : measured.promise;
  };
  const holdfast = { trainer: { estimate } } as unknown as Holdfast;
  const own = new OwnModel(
    async () => holdfast.trainer,
    () => {},
    () => {},
  );
  const model = new ModelForm(own, () => {});
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const form = new FormEstimate(
    { model, own, memory },
    () => ({ holdfast, training: undefined }),
    () => model.settings(),
  );
  const shown = form.now();
  await settled();
  const facts = () => ['parameters', 'smallest', 'speed'].map((name) => byId(`fact-${name}`).textContent);
  expect(facts()).toEqual(['1,234', '700 KB', 'measuring …']);
  expect((byId('budget') as HTMLInputElement).disabled).toBe(false);
  measured.resolve({ ...known, tokensPerSecond: { value: 500, from: 'probe' } });
  await shown;
  expect(facts()[2]).toBe('about 500 tokens/s');
  expect(asked).toEqual(['known', 'measured']);
});

test('a GPT-2 has no field of key and value heads, whatever was in it, a Llama has', () => {
  const own = new OwnModel(
    () => new Promise(() => {}),
    () => {},
    () => {},
  );
  const model = new ModelForm(own, () => {});
  const heads = byId('field-kvHeads') as HTMLInputElement;
  const choose = (family: string, kvHeads: string) => {
    (byId('field-family') as HTMLSelectElement).value = family;
    heads.value = kvHeads;
    heads.dispatchEvent(new Event('input', { bubbles: true }));
  };
  expect(heads.hidden).toBe(true);
  choose('llama', '3');
  expect(heads.hidden).toBe(false);
  expect(() => model.settings()).toThrow(/3/);
  choose('gpt2', '');
  expect(heads.hidden).toBe(true);
  expect(model.settings().config).toMatchObject({ model_type: 'gpt2', n_layer: 2 });
});

test('of budgets that are asked for while one is being taken, the last is taken', async () => {
  const asked: [MemorySettings, ReturnType<typeof deferred<void>>][] = [];
  const memory = new MemoryPanel({
    wanted: (wanted) => {
      const taken = deferred<void>();
      asked.push([wanted, taken]);
      return taken.promise;
    },
    picture: async () => undefined,
  });
  memory.showEstimate({ smallest: 100, unlimited: 10_000 } as Estimate);
  const slider = byId('budget') as HTMLInputElement;
  for (const place of ['50', '40', '30']) {
    slider.value = place;
    slider.dispatchEvent(new Event('change'));
    await settled();
  }
  expect(asked.map(([{ gpu }]) => gpu)).toEqual([1000]);
  asked[0]?.[1].reject(new Error('refused'));
  await settled();
  expect(asked.map(([{ gpu }]) => gpu)).toEqual([1000, 399]);
  asked[1]?.[1].resolve();
  await settled();
  expect([slider.value, memory.memory]).toEqual(['30', { gpu: 399 }]);
});

test('a step within another budget than the one in force is told as such, until the next', async () => {
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const picture = (budget?: number) =>
    ({
      ...{
        run: 'a',
        step: 1,
        milliseconds: 1,
        offloaded: 0,
        fetched: 0,
        planned: { h2d: 0, d2h: 0 },
        policy: 'planned',
      },
      bytes: { h2d: 0, d2h: 0, diskRead: 0, diskWrite: 0 },
      ...(budget !== undefined && { budget }),
      history: {
        ...{ chunkBytes: 8, tensors: [], phases: [], operators: [0], labels: [''], chunks: [[0, 1]], staged: [0, 1] },
        ...{ lists: [{ kind: 'parameter', first: 0, chunks: 1 }], slots: 1, staging: 1, stagingBytes: 0 },
        ...{ activations: { tensors: [], codes: [], working: [] }, activationBytes: 0, otherBytes: 0 },
      },
    }) as unknown as StepPicture;
  const note = () => document.querySelector('.nothing-moves')?.textContent;
  await drawn();
  memory.view.show(picture());
  expect(note()).toMatch(/^Everything fits on the GPU/);
  memory.show({ gpu: 100 });
  expect(note()).toMatch(/^This step was within another budget/);
  memory.view.show(picture(100));
  expect(note()).toMatch(/^Everything fits on the GPU/);
});

test('a limit that is no number of bytes is told in sentences, and the one before is back', async () => {
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  memory.show({});
  const host = byId('host-limit') as HTMLInputElement;
  host.value = 'abc';
  host.dispatchEvent(new Event('change'));
  await settled();
  expect(byId('budget-note').textContent).toMatch(
    /^"abc" is not a byte count.* 64MB\. The budgets stay as they were\.$/,
  );
  expect(host.value).toBe('');
});

/** The list of runs, and what it asked for. */
async function listOf(first: readonly RunInfo[]) {
  let there = first;
  const asked = { goOn: [] as string[], forked: [] as unknown[], said: [] as string[] };
  const trainer = {
    runs: async () => there,
    exportZip: async () => new File(['zip'], 'a.zip'),
    fork: async (_: string, wanted: unknown) => {
      asked.forked.push(wanted);
      return run('fork');
    },
  } as unknown as Holdfast['trainer'];
  const events: RunListEvents = {
    look: async () => {},
    goOn: async ({ id }) => void asked.goOn.push(id),
    use: async () => {},
    compared: () => {},
    gone: () => {},
    attempt: async (work) => void (await work()),
    say: (text) => void asked.said.push(text),
  };
  const runs = new RunList(() => trainer, events);
  await runs.refresh();
  const refresh = (left: readonly RunInfo[]) => {
    there = left;
    return runs.refresh();
  };
  return { runs, list: byId('runs'), refresh, asked };
}
