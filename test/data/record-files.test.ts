// Data that holds records, and data that is text: told by names and by what files begin with, in folders too, where no file is
// learned as text beside records, and none that may have records is left out.

import { describe, expect, it } from 'vitest';
import { holdLabelled, recordClasses } from '../../src/data/records/labelled.ts';
import { beginsLikeRecords } from '../../src/data/records/lines.ts';
import { readDocuments } from '../../src/data/records/read-records.ts';
import { holdRecords } from '../../src/data/records/record-files.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { refusal } from './refusal.ts';

const tokenizer = new ByteTokenizer();
const jsonl = (...records: unknown[]) => `${records.map((record) => JSON.stringify(record)).join('\n')}\n`;
const json = (value: unknown) => JSON.stringify(value, null, 1);
const hostOf = (files: Record<string, string | Uint8Array>) => memoryHost(new MemoryFiles(files));
const read = (host: ReturnType<typeof hostOf>, ...sources: string[]) =>
  readDocuments(host, sources, tokenizer, { trainOn: 'answers', template: TEMPLATES.chatml });

const text = { text: 'xy' };
const question = { question: 'x', answer: 'y' };
const TYPO = '{"messages": [{"role": "user" "content": "x"}]}\n';

describe('data is records, or text', () => {
  const host = hostOf({
    'a.txt': jsonl(text),
    'b.txt': 'x y z',
    'c.json': json([text]),
    'd.json': '{"a": 1}',
    'e.jsonl': 'no JSON at all',
    'f.json': json([question]),
    'g.json': json({ items: [question, question] }),
    'h.json': '[[1, 2], [3, 4]]',
    'i.json': `${TYPO}${jsonl(text)}`,
    'all/1.jsonl': jsonl(text),
    'all/2.json': json([{ prompt: 'x', completion: 'y' }]),
    'prose/README.md': '# Prose',
    'prose/more.md': 'and no records',
    'code/package.json': json({ name: 'x', text: 'y' }),
    'code/src/a.ts': 'const a = 1;',
    'code/test/list.json': json([question]),
    'code/test/broken.json': '[{"a": 1,}]',
    'values/1.json': json({ a: 1 }),
    'values/2.json': json([question]),
    'typo/train.jsonl': `${TYPO}${jsonl(text)}`,
    'unknown/train.jsonl': jsonl(question, question),
    'half/train.jsonl': jsonl(text),
    'half/valid.jsonl': TYPO,
    'lists/train.json': json([question]),
    'list/1.json': json([text]).replace('}', '},'),
    'cut/1.jsonl': jsonl(text),
    'cut/2.json': json([text]).slice(0, -2),
  });
  it.each([
    [['a.txt'], true],
    [['b.txt'], false],
    [['c.json'], true],
    [['d.json'], false],
    [['e.jsonl'], true],
    [['f.json'], true],
    [['g.json'], false],
    [['h.json'], false],
    [['i.json'], true],
    [['a.txt', 'c.json'], true],
    [['b.txt', 'f.json'], false],
    [['all'], true],
    [['prose'], false],
    [['code'], false],
    [['values'], false],
    [['typo'], true],
    [['unknown'], true],
    [['half'], true],
    [['lists'], true],
    [['list'], true],
    [['cut'], true],
    [[], false],
    [['-'], false],
  ])('%s: %s', async (sources, wanted) => {
    expect(await holdRecords(host, sources)).toBe(wanted);
  });

  it.each([
    ['typo', 'typo/train.jsonl:1: not JSON'],
    ['unknown', 'unknown/train.jsonl:1 has fields "question, answer": no record that is known'],
    ['half', 'half/valid.jsonl:1: not JSON'],
    ['lists', 'lists/train.json[0] has fields "question, answer": no record that is known'],
    ['list', 'list/1.json: not JSON'],
    ['cut', 'cut/2.json: not JSON'],
    ['i.json', 'i.json:1: not JSON'],
  ])('%s is refused with its place, and not learned as text', async (source, wanted) => {
    expect(await refusal(read(host, source))).toContain(wanted);
  });

  it('records inside an object, or one over several lines, are refused where their file is named', async () => {
    const inside = hostOf({
      'data.json': `\uFEFF${json({ version: 1, data: [text, text] })}`,
      'one.json': json(text),
      'code/data.json': json({ data: [text] }),
      'code/main.ts': 'export {}',
      'unknown.json': json({ data: [question], empty: [] }),
    });
    expect(await refusal(holdRecords(inside, ['data.json']))).toBe(
      'data.json: its records are in the field "data"; write that list alone, or one record a line',
    );
    expect(await refusal(holdRecords(inside, ['one.json']))).toBe(
      'one.json: is one record over several lines; write it in one line, or as a list, [...]',
    );
    for (const source of ['code', 'unknown.json']) expect(await holdRecords(inside, [source])).toBe(false);
  });
});

describe('beside records in a folder', () => {
  it('what systems leave there is none of them', async () => {
    const host = hostOf({
      'left/.DS_Store': Uint8Array.of(0, 0, 0, 1),
      'left/.gitattributes': '*.jsonl text',
      'left/.git/HEAD': 'ref: main',
      'left/.cache/huggingface/download/1.jsonl.metadata': 'as the hub leaves it',
      'left/.cache/huggingface/2.jsonl': jsonl(question),
      'left/1.jsonl': jsonl({ text: 'xy', label: 'a' }),
      'left/2.jsonl.swp': Uint8Array.of(98, 0),
      'left/_SUCCESS': '',
      'left/below/._1.jsonl': 'hidden',
      'left/below/1.jsonl': jsonl({ text: 'yz', label: 'b' }),
    });
    expect(await holdRecords(host, ['left'])).toBe(true);
    const { documents, names } = await read(host, 'left');
    expect([documents.count, names]).toEqual([2, ['left/1.jsonl', 'left/below/1.jsonl']]);
    expect(await holdLabelled(host, ['left'])).toBe(true);
    expect(await recordClasses(host, ['left'])).toMatchObject({ names: ['a', 'b'] });
  });

  it('a hidden folder that is named has files of its own', async () => {
    const host = hostOf({ '.data/1.jsonl': jsonl(text), '/home/.me/data/1.jsonl': jsonl(text) });
    for (const source of ['.data', '/home/.me/data']) {
      expect(await holdRecords(host, [source])).toBe(true);
      expect((await read(host, source)).names).toHaveLength(1);
    }
  });

  it('what describes them is none of them, and is read where it is named', async () => {
    const host = hostOf({
      'described/README.md': '# Two records',
      'described/LICENSE': 'as you like',
      'described/chats.jsonl': jsonl(text),
      'described/dataset_info.json': json({ chats: { file_name: 'chats.jsonl', formatting: 'sharegpt' } }),
      'described/dataset_infos.json': json({ default: { features: {} } }),
      'described/below/1.jsonl': jsonl(text),
      'described/below/card.MD': 'more of them',
    });
    expect(await holdRecords(host, ['described'])).toBe(true);
    expect((await read(host, 'described')).names).toEqual(['described/below/1.jsonl', 'described/chats.jsonl']);
    for (const named of ['described/README.md', 'described/dataset_info.json'])
      expect(await refusal(holdRecords(host, ['described', named]))).toContain(`text in ${named}; name the files`);
  });

  it.each([
    [['a.jsonl', 'b.txt'], 'a.jsonl', 'b.txt'],
    [['code'], 'code/data/1.jsonl', 'code/src/a.ts'],
    [['mixed'], 'mixed/notes', 'mixed/more'],
    [['stats'], 'stats/train.jsonl', 'stats/figures.json'],
  ])('text is refused: %s', async (sources, records, other) => {
    const host = hostOf({
      'a.jsonl': jsonl(text),
      'b.txt': 'x y z',
      'code/data/1.jsonl': jsonl(text),
      'code/src/a.ts': 'const a = 1;',
      'mixed/more': 'prose',
      'mixed/notes': jsonl(text),
      'stats/train.jsonl': jsonl(text),
      'stats/figures.json': json({ count: 1 }),
    });
    expect(await refusal(holdRecords(host, sources))).toBe(
      `the data is records in ${records} and text in ${other}; name the files of the one or the other`,
    );
  });
});

// A search that goes back takes the square of a length: more than a test may.
it('whether a file begins like records is told of long ones', async () => {
  const long = 2 ** 20;
  const begins = (content: string) => beginsLikeRecords(new MemoryFiles({ f: content }), 'f');
  const fillers = ['\n', ' ', '{', '{a', '{ ', '{\n', '{}\n', '{"a"', '[ ', '\r\n', '{a \n'];
  for (const filler of fillers)
    await Promise.all([
      begins(filler.repeat(long / filler.length)),
      begins(`{a${filler.repeat(long / filler.length)}`),
    ]);
  expect(await begins('\ufeff [ {')).toBe(true);
  expect(await begins('{"a": 1} \r\n\r\n {')).toBe(true);
  expect(await begins('{"a":\n {')).toBe(false);
});
