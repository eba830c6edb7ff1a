// Parts of the demo page in its own markup, one by one: what each shows of answers that come late, or in another order than
// they were asked for. The worker is one that answers when the test does.

import { afterAll, expect, test, vi } from 'vitest';
import '../../demo/style.css';
import { RunCurves } from '../../demo/curve-data.ts';
import { type ComparedRun, Curves } from '../../demo/curves.ts';
import { DataPanel } from '../../demo/data.ts';
import markup from '../../demo/index.html?raw';
import { Live } from '../../demo/live.ts';
import { MemoryPanel } from '../../demo/memory-panel.ts';
import { Panels } from '../../demo/panels.ts';
import { RunList, type RunListEvents } from '../../demo/runs.ts';
import { Seeing } from '../../demo/seeing.ts';
import { Telling } from '../../demo/telling.ts';
import type { Training } from '../../demo/training.ts';
import { Writing } from '../../demo/writing.ts';
import type { Estimate, Holdfast, RunForecast, RunInfo, RunSettings, StepEvent } from '../../src/browser/index.ts';
import { type Deferred, deferred } from '../../src/util/deferred.ts';

type Trainer = Holdfast['trainer'];

document.body.innerHTML = /<body[^>]*>([\s\S]*)<\/body>/.exec(markup)?.[1] ?? '';
for (const script of document.body.querySelectorAll('script')) script.remove();
// The files that follow have the same document.
afterAll(() => document.body.replaceChildren());
const byId = (id: string) => document.getElementById(id) as HTMLElement;
const press = (id: string) => byId(id).click();

interface Question {
  readonly name: string;
  readonly given: readonly unknown[];
  readonly answer: Deferred<unknown>;
}

/** Answers at once where `known` has an answer, else when the test does. */
function worker(known: Readonly<Record<string, unknown>> = {}) {
  const asked: Question[] = [];
  const trainer = new Proxy(
    {},
    {
      get:
        (_, name: string) =>
        (...given: unknown[]) => {
          const answer = deferred<unknown>();
          if (name in known) answer.resolve(known[name]);
          else asked.push({ name, given, answer });
          return answer.promise;
        },
    },
  ) as Trainer;
  return { trainer, of: (name: string) => asked.filter((question) => question.name === name) };
}

/** Of a model that tells texts apart. */
const TELLS = { writes: false, chats: false, adapter: false, tells: 'texts', pairs: false };

/** All that follows from what was answered. */
const settled = () => new Promise((resolve) => setTimeout(resolve));

const run = (id: string, more: Partial<RunInfo> = {}) =>
  ({ id, name: id, savedStep: 10, status: 'finished', open: 'no', created: 1, ...more }) as RunInfo;
const metrics = (step: number): StepEvent =>
  ({ step, loss: 2, lr: 0.1, gradNorm: 1, tokensPerSecond: 100 }) as StepEvent;
const history = { steps: [metrics(0), metrics(1)], validations: [{ step: 1, loss: 3, accuracy: 0.5 }], samples: [] };

test('of a run that has no curves, none of another are shown', async () => {
  const curves = new Curves();
  const drawn = () =>
    ['loss', 'speed', 'norm', 'rate'].map((name) => byId(`chart-${name}`).querySelectorAll('.uplot').length);
  curves.show(RunCurves.of(history), []);
  await expect.poll(drawn).toEqual([1, 1, 1, 1]);
  await expect.poll(() => byId('chart-accuracy').hidden).toBe(false);
  expect(byId('chart-speed').querySelector('output')?.ariaLive).toBe('off');
  expect(byId('curves-empty').hidden).toBe(true);
  curves.show(new RunCurves(), []);
  await expect.poll(drawn).toEqual([0, 0, 0, 0]);
  expect(byId('chart-accuracy').hidden).toBe(true);
  expect(byId('curves-empty').hidden).toBe(false);
  expect(byId('chart-speed').textContent).toBe('Tokens/s');
  curves.show(RunCurves.of(history), []);
  await expect.poll(drawn).toEqual([1, 1, 1, 1]);
  expect(byId('chart-speed').querySelector('output')?.textContent).toBe('100');
});

test('a loss that is no number has no bits', async () => {
  const curves = RunCurves.of({ ...history, steps: [{ ...metrics(0), loss: Number.NaN }] });
  new Live().show({ curves, steps: 10, tokensPerStep: 1, phase: 'training' } as Training);
  await expect.poll(() => byId('now-speed').textContent).toBe('100');
  expect(byId('now-loss').nextElementSibling?.textContent).toBe('');
});

test('a prompt of any length stays within a narrow page', () => {
  const prompt = byId('next-prompt');
  document.body.style.width = '300px';
  const { right: edge } = byId('next-title').getBoundingClientRect();
  prompt.textContent = 'word '.repeat(50) + 'x'.repeat(200);
  expect(Math.max(...[...prompt.getClientRects()].map(({ right }) => right))).toBeLessThanOrEqual(edge + 1);
  prompt.textContent = document.body.style.width = '';
});

test('a text of one run says nothing above another’s, and is written no further', async () => {
  const { trainer, of } = worker({ voiceOf: { writes: true, chats: false, adapter: true } });
  const writing = new Writing(() => trainer);
  writing.show(run('a'), new RunCurves());
  await settled();
  (byId('adapters').querySelector('input[value=both]') as HTMLInputElement).checked = true;
  press('write');
  expect(of('sample')).toHaveLength(1);
  expect(byId('sample-title').textContent).toBe('writing …');
  writing.show(run('b'), new RunCurves());
  of('sample')[0]?.answer.resolve('a text');
  await settled();
  expect(byId('sample-title').textContent).toBe('no sample yet');
  expect(of('sample')).toHaveLength(1);
  expect((byId('write') as HTMLButtonElement).disabled).toBe(false);
});

test('a question to two sides that is left is not put to the second', async () => {
  const { trainer, of } = worker({ voiceOf: { writes: true, chats: true, adapter: true } });
  const writing = new Writing(() => trainer);
  writing.show(run('a'), new RunCurves());
  await settled();
  (byId('adapters').querySelector('input[value=both]') as HTMLInputElement).checked = true;
  (byId('prompt') as HTMLInputElement).value = 'who?';
  press('write');
  await settled();
  expect(of('chat')).toHaveLength(1);
  writing.show(run('b'), new RunCurves());
  of('chat')[0]?.answer.reject(new Error('of the run before'));
  await settled();
  expect(of('chat')).toHaveLength(1);
  expect(byId('sample-title').textContent).not.toContain('before');
});

test('a picture that was cleared is not told, and what went wrong with another is not said of it', async () => {
  const { trainer, of } = worker();
  const seeing = new Seeing(() => trainer);
  const hint = byId('seeing-note').textContent;
  seeing.show(run('a'), false);
  press('picture-invert');
  expect(of('classify')).toHaveLength(1);
  press('picture-clear');
  of('classify')[0]?.answer.reject(new Error('of the run before'));
  await settled();
  expect(of('classify')).toHaveLength(1);
  expect(byId('seeing-note').textContent).toBe(hint);
});

test('a text that was changed is not told by what was asked before, and none is asked of a run that trains', async () => {
  const { trainer, of } = worker({ voiceOf: TELLS });
  const telling = new Telling(() => trainer);
  const text = byId('telling-text') as HTMLTextAreaElement;
  const note = () => byId('telling-note').textContent;
  telling.show(run('a'), true);
  await settled();
  expect(byId('telling').hidden).toBe(false);
  text.value = 'one';
  press('tell');
  expect([of('classify').length, note()]).toEqual([0, 'It trains: stop it, or wait until it is done, and ask again.']);
  telling.show(run('a'), false);
  const hint = note();
  press('tell');
  expect(of('classify')).toHaveLength(1);
  text.value = 'another';
  text.dispatchEvent(new Event('input'));
  of('classify')[0]?.answer.resolve([{ name: 'a', probability: 1 }]);
  await settled();
  expect([note(), byId('classes').childElementCount]).toEqual([hint, 0]);
  telling.show(undefined, false);
  expect(byId('telling').hidden).toBe(true);
});

test('a run that learned pairs is asked for two texts, one that did not for one, and where nothing says so either will do', async () => {
  const texts = [byId('telling-text'), byId('telling-pair')] as HTMLTextAreaElement[];
  const { trainer, of } = worker();
  const telling = new Telling(() => trainer);
  const asked = async (pairs: boolean | undefined, second: string) => {
    const before = of('classify').length;
    telling.show(run(`${of('voiceOf').length}`), false);
    of('voiceOf')
      .at(-1)
      ?.answer.resolve({ ...TELLS, pairs });
    await settled();
    for (const [i, text] of texts.entries()) text.value = ['one', second][i] ?? '';
    press('tell');
    const { given, answer } = of('classify')[before] ?? {};
    answer?.reject(new Error('nothing'));
    const note = byId('telling-note').textContent;
    await settled();
    return [given?.[1], byId('telling-pair-label').hidden, note];
  };
  expect(await asked(false, 'two')).toEqual(['one', true, expect.stringMatching(/^Write a text/)]);
  expect(await asked(true, 'two')).toEqual([['one', 'two'], false, expect.stringMatching(/^Write two texts/)]);
  expect(await asked(true, ' ')).toEqual([undefined, false, 'It learned pairs of texts: write the second one, too.']);
  expect(await asked(undefined, '')).toEqual(['one', false, expect.stringMatching(/needs the second one, too\.$/)]);
  expect(await asked(undefined, 'two')).toEqual([['one', 'two'], false, expect.any(String)]);
  telling.show(undefined, false);
});

test('of weights that were brought alone the panel is there that their model has use for', async () => {
  const { trainer, of } = worker();
  const shown = { seeing: new Seeing(() => trainer), telling: new Telling(() => trainer) };
  const panels = new Panels(() => trainer, shown.seeing, shown.telling);
  const hidden = () => ['writing', 'seeing', 'telling'].filter((id) => byId(id).hidden);
  panels.show(undefined, false);
  expect(hidden()).toEqual(['seeing', 'telling']);
  panels.show(run('a'), false);
  of('voiceOf')[0]?.answer.resolve(TELLS);
  await settled();
  expect(hidden()).toEqual(['writing', 'seeing']);
  panels.show(run('b'), false);
  panels.show(run('c', { settings: { config: { model_type: 'gpt2' } } as RunSettings }), false);
  of('voiceOf')
    .at(-1)
    ?.answer.resolve({ ...TELLS, tells: 'images' });
  await settled();
  expect(hidden()).toEqual(['seeing', 'telling']);
  panels.show(run('b'), false);
  of('voiceOf')
    .at(-1)
    ?.answer.resolve({ ...TELLS, tells: 'images' });
  await settled();
  expect(hidden()).toEqual(['writing', 'telling']);
});

test('the choice of what leaves the GPU goes by its name in the field', () => {
  const [label] = (byId('policy') as HTMLSelectElement).labels;
  expect(label?.textContent).toBe('Eviction policy');
});

test('policies that were compared for one run are not shown in the view of another', async () => {
  const { trainer, of } = worker();
  const panel = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const shown: unknown[] = [];
  panel.view.compare = (figures) => void shown.push(figures);
  panel.show({ gpu: 1000 });
  const compared = panel.compare(trainer, {} as RunSettings);
  panel.clear();
  of('comparePolicies')[0]?.answer.resolve(['of the run before']);
  await compared;
  expect(shown).toEqual([]);
  expect(of('compareActivations')).toEqual([]);
});

test('a plan is worked out once it is looked at, by tier, kind and link, and that of another run is not shown', async () => {
  const { trainer, of } = worker();
  const panel = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  panel.show({ gpu: 3e6 });
  await panel.showPlan(trainer, {} as RunSettings);
  expect(of('plan')).toEqual([]);
  const details = byId('plan') as HTMLDetailsElement;
  details.open = true;
  await expect.poll(() => of('plan').length).toBe(1);
  const later = panel.showPlan(trainer, { batch: 2 } as RunSettings);
  const figures = { parameters: 1e6, gradients: 1e6, moments: 2e6, activations: 5e5, other: 1e5, all: 3e6 };
  const none = { parameters: 0, gradients: 0, moments: 0, activations: 0, other: 0, all: 0 };
  const gpu = { up: 2e6, down: 3e6, chunks: 4e6, activations: 0, fetched: 0, recovery: 1e6, bound: 3.9e6 };
  const plan = (smallest: number): RunForecast => ({
    ...{ smallest, unlimited: 9e6, comfortable: 8e6, flops: { step: 5e9, recomputed: 2.5e8 } },
    step: { seconds: 0.0642, from: 'run' },
    ...{ tiers: { gpu: figures, host: { ...none, moments: 2e6, all: 2e6 }, disk: none }, links: { gpu } },
  });
  of('plan')[1]?.answer.resolve(plan(7e5));
  await later;
  of('plan')[0]?.answer.resolve(plan(6e5));
  await settled();
  const rows = [...details.querySelectorAll('tbody tr')].map((row) =>
    [...row.children].map((cell) => cell.textContent),
  );
  expect(rows).toEqual([
    ['GPU', '1.00 MB', '1.00 MB', '2.00 MB', '500 KB', '100 KB', '3.00 MB'],
    ['host memory', '–', '–', '2.00 MB', '–', '–', '2.00 MB'],
  ]);
  expect(details.textContent).toContain(
    'Its peak on the GPU is 3.00 MB. It works within 700 KB, and takes 9.00 MB without a budget.',
  );
  expect(details.textContent).toContain(
    'A step moves 2.00 MB up to the GPU and 3.00 MB down, 1.00 MB against the loss',
  );
  expect(details.textContent).toContain(
    'It computes 5 GFLOP, 250 MFLOP of them to recompute activations. Here that takes 64.2 ms, as in a run of this shape.',
  );
  details.open = false;
});

test('runs that are compared have a colour each, also when chosen at once; one more is not ticked', async () => {
  const runs = ['a', 'b', 'c', 'd', 'e'].map((id) => run(id));
  const { list, found, problems } = await listOf(worker({ runs, history }).trainer);
  for (const box of list.querySelectorAll<HTMLInputElement>('input[type=checkbox]')) box.click();
  await settled();
  expect(new Set(found.compared.map(({ color }) => color)).size).toBe(4);
  expect(problems.join()).toMatch(/4 runs are compared already/);
  const boxes = [...list.querySelectorAll<HTMLInputElement>('input[type=checkbox]')];
  boxes.at(-1)?.click();
  await settled();
  expect(problems).toHaveLength(2);
  expect(boxes.map(({ checked }) => checked)).toEqual([true, true, true, true, false]);
  byId('runs').replaceChildren();
});

test('a run that was chosen for comparison and left out again, before its curves came, is left out', async () => {
  const { trainer, of } = worker({ runs: [run('a')] });
  const { list, found } = await listOf(trainer);
  const box = list.querySelector('input[type=checkbox]') as HTMLInputElement;
  box.click();
  box.click();
  of('history')[0]?.answer.resolve(history);
  await settled();
  expect(found.compared).toEqual([]);
});

test('what had the focus in the list has it when the list is drawn again', async () => {
  const { list, runs } = await listOf(worker({ runs: [run('a'), run('b')] }).trainer);
  const summaries = () => list.querySelectorAll('summary');
  summaries()[1]?.focus();
  const before = document.activeElement;
  runs.show('a', true);
  expect(document.activeElement).toBe(summaries()[1]);
  expect(document.activeElement).not.toBe(before);
  expect([...list.querySelectorAll('[aria-current=true]')].map(({ textContent }) => textContent)).toEqual(['a']);
});

test('a question has the focus go back to what asked it, although the list is drawn again meanwhile', async () => {
  const { list, runs } = await listOf(worker({ runs: [run('a'), run('b')] }).trainer);
  const rename = () => list.querySelector<HTMLElement>('[data-key="b Rename"]');
  for (const more of list.querySelectorAll('details')) more.open = true;
  rename()?.focus();
  rename()?.click();
  const before = rename();
  runs.show('a', true);
  byId('dialog').querySelector<HTMLElement>('button[type=button]')?.click();
  await new Promise((resolve) => byId('dialog').addEventListener('close', resolve, { once: true }));
  await settled();
  expect(document.activeElement).toBe(rename());
  expect(document.activeElement).not.toBe(before);
});

test('how long ago a run was is told anew when the list is read again', async () => {
  const { list, runs } = await listOf(worker({ runs: [run('a', { created: Date.now() })] }).trainer);
  const said = () => list.querySelector('.hint')?.textContent;
  expect(said()).toMatch(/ just now$/);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * 3600e3 });
  await runs.refresh();
  vi.useRealTimers();
  expect(said()).toMatch(/ 3 h ago$/);
});

test('what is found out of a text that was cleared is not said of what is there now', async () => {
  const shape = deferred<'messages'>();
  const data = new DataPanel(
    () => shape.promise,
    () => {},
  );
  const paste = byId('paste') as HTMLTextAreaElement;
  document.querySelector<HTMLInputElement>('#text-kinds [value=own]')?.click();
  paste.value = '{"messages": []}';
  paste.dispatchEvent(new Event('input'));
  press('clear-text');
  shape.resolve('messages');
  await data.looked;
  expect([byId('text-note').textContent, byId('records').hidden, data.records]).toEqual(['', true, undefined]);
});

test('what is chosen beside the GPU’s budget leaves that as it is, wherever the slider stands', async () => {
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const policy = byId('policy') as HTMLSelectElement;
  memory.showEstimate({ smallest: 100, unlimited: 10_000 } as Estimate);
  for (const [gpu, chosen] of [
    [1001, 'LRU'],
    [20_000, 'FIFO'],
    [50, 'LRU'],
  ] as const) {
    memory.show({ gpu });
    policy.value = chosen;
    policy.dispatchEvent(new Event('change'));
    await settled();
    expect(memory.memory).toEqual({ gpu, policy: chosen });
  }
});

test('a limit of any number of bytes stays that, however it was typed, when something else is chosen', async () => {
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const [host, disk] = ['host-limit', 'disk-limit'].map((id) => byId(id) as HTMLInputElement) as [
    HTMLInputElement,
    HTMLInputElement,
  ];
  const policy = byId('policy') as HTMLSelectElement;
  const choose = async (control: HTMLInputElement | HTMLSelectElement, value: string) => {
    control.value = value;
    control.dispatchEvent(new Event('change'));
    await settled();
  };
  memory.show({ gpu: 1001, disk: 8_123_456 });
  expect([host.value, disk.value]).toEqual(['', '8123456 B']);
  for (const [typed, bytes] of [
    ['176128', 176_128],
    ['1.5GiB', 1_610_612_736],
    ['64mb', 64_000_000],
  ] as const) {
    await choose(host, typed);
    await choose(policy, policy.value === 'LRU' ? 'FIFO' : 'LRU');
    expect([host.value, memory.memory.host, memory.memory.disk]).toEqual([typed, bytes, 8_123_456]);
  }
  // Of a run that has other ones, they are written anew.
  memory.show({ gpu: 1001, host: 1_000_000, disk: 4e9 });
  expect([host.value, disk.value]).toEqual(['1.00 MB', '4.00 GB']);
});

test('a slider that is dragged away and back says the budget that is in force', () => {
  const memory = new MemoryPanel({ wanted: async () => {}, picture: async () => undefined });
  const slider = byId('budget') as HTMLInputElement;
  const dragged = (place: string) => {
    slider.value = place;
    slider.dispatchEvent(new Event('input'));
    return byId('budget-value').textContent;
  };
  memory.showEstimate({ smallest: 100, unlimited: 10_000 } as Estimate);
  for (const [gpu, place, said] of [
    [1091, '51', '1.09 KB'],
    [20_000, '99', '20.0 KB'],
    [50, '0', '50 B'],
    [undefined, '100', 'no limit'],
  ] as const) {
    memory.show(gpu === undefined ? {} : { gpu });
    expect([slider.value, dragged('30'), dragged(place)]).toEqual([place, '399 B', said]);
  }
});

test('a run that is shown and was removed is told to be gone; one that is open is not', async () => {
  const { trainer, of } = worker();
  const { runs, found } = await listOf(trainer, of('runs'));
  runs.show('a', true);
  const refresh = async (left: RunInfo[]) => {
    const refreshed = runs.refresh();
    of('runs').at(-1)?.answer.resolve(left);
    await refreshed;
  };
  await refresh([]);
  runs.show('a', false);
  await refresh([run('a')]);
  expect(found.gone).toBe(0);
  await refresh([run('b')]);
  expect(found.gone).toBe(1);
});

/** The list of runs, with what it told; drawn, unless its runs are still to come. */
async function listOf(trainer: Trainer, toCome?: readonly Question[]) {
  const found = { compared: [] as readonly ComparedRun[], gone: 0 };
  const problems: string[] = [];
  const attempt = (work: () => Promise<unknown>) =>
    work().then(
      () => {},
      (error: Error) => void problems.push(error.message),
    );
  const events: RunListEvents = {
    look: async () => {},
    goOn: async () => {},
    use: async () => {},
    compared: (others) => {
      found.compared = others;
    },
    gone: () => {
      found.gone++;
    },
    attempt,
    say: () => {},
  };
  const runs = new RunList(() => trainer, events);
  if (!toCome) await runs.refresh();
  return { runs, list: byId('runs'), found, problems };
}
