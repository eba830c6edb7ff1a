// Parts of the demo page in a narrow window, and with names and lists as long as people have them: what is there can be read, and
// what is around it stays in sight.

import { afterAll, beforeEach, expect, test } from 'vitest';
import '../../demo/style.css';
import { DataPanel } from '../../demo/data.ts';
import { ask } from '../../demo/dialogs.ts';
import markup from '../../demo/index.html?raw';
import { MemoryView } from '../../demo/memory-view.ts';
import type { PolicyComparison } from '../../src/browser/index.ts';

beforeEach(() => {
  document.body.innerHTML = /<body[^>]*>([\s\S]*)<\/body>/.exec(markup)?.[1] ?? '';
  for (const script of document.body.querySelectorAll('script')) script.remove();
});
afterAll(() => document.body.replaceChildren());
const byId = (id: string) => document.getElementById(id) as HTMLElement;
const drawn = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));

test('a question about a run of any name is as wide as its dialog', async () => {
  const name = 'x'.repeat(400);
  const answer = ask(`Remove “${name}”?`, `${name} goes`, [{ label: name, value: name }], 'Remove');
  const dialog = byId('dialog') as HTMLDialogElement;
  expect(dialog.scrollWidth).toBeLessThanOrEqual(dialog.clientWidth);
  dialog.close();
  await answer;
});

test('kinds of chunks are named in full where there is room, else in short, and cut off nowhere', async () => {
  const names: string[][] = [];
  for (const width of [220, 270, 288, 308, 340, 600, 776]) {
    const host = document.createElement('div');
    host.style.width = `${width}px`;
    document.body.replaceChildren(host);
    new MemoryView(host);
    await drawn();
    const kinds = [...host.querySelectorAll<HTMLElement>('.names .kind')];
    const cut = kinds.filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth);
    expect(cut.map(({ textContent }) => `${textContent} in ${width} pixels`)).toEqual([]);
    names.push(kinds.map(({ textContent }) => textContent ?? ''));
  }
  expect(names[0]).toEqual(['params', 'grads', '1st m.', '2nd m.']);
  expect(names.at(-1)).toEqual(['P parameters', 'G gradients', 'm 1st moment', 'v 2nd moment']);
});

test('a policy’s name that takes two lines begins where the others do', async () => {
  const host = byId('view');
  host.style.width = '240px';
  const view = new MemoryView(host);
  view.onPolicy = () => {};
  const policies = (['planned', 'LRU', 'OPT', 'ZeRO-Offload split'] as const).map((name) => ({
    name,
    h2d: 9e5,
    d2h: 9e5,
  }));
  view.compare({ slots: 4, chunks: 12, policies, lp: 1e6 } satisfies PolicyComparison);
  const lefts = [...host.querySelectorAll('.policies .choice')].map((button) => {
    const words = document.createRange();
    words.selectNodeContents(button);
    return [...words.getClientRects()].map(({ left }) => Math.round(left));
  });
  expect(lefts).toHaveLength(3);
  expect(Math.max(...lefts.map(({ length }) => length))).toBe(2);
  expect(new Set(lefts.flat()).size).toBe(1);
});

const textsOf = (count: number, text: string) =>
  Array.from({ length: count }, (_, i) => {
    const name = `note ${1000 + i}.txt`;
    return { path: name, file: new File([text], name) };
  });

test('of many files the first are named, and how many more there are', async () => {
  const data = new DataPanel(
    async () => undefined,
    () => {},
  );
  const first = [0, 1, 2, 3, 4].map((i) => `note 100${i}.txt`);
  await data.take(textsOf(200, 'a text'));
  await data.looked;
  expect(byId('text-note').textContent).toBe(`${first.join(', ')} and 195 more: 1.20 KB`);
  await data.take([...textsOf(200, ''), ...textsOf(5, 'a text')]);
  await data.looked;
  const leftOut = first.map((name) => `${name}, which is empty`).join(', ');
  expect(byId('text-note').textContent).toBe(`${first.join(', ')}: 30 B (not ${leftOut} and 195 more)`);
  await data.take(textsOf(200, ''));
  const refused = first.map((name) => `${name} is empty`).join('; ');
  expect(byId('text-note').textContent).toBe(
    `${refused} and 195 more. Choose plain text in UTF-8, or save it as that.`,
  );
});
