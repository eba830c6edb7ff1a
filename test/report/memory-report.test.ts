// The report's section on memory: figures beside the bound, and a map that holds what the history says.

import { describe, expect, test } from 'vitest';
import type { ChunkHistory } from '../../src/engine/observe/chunk-codes.ts';
import { type ReportContent, renderReport } from '../../src/report/report.ts';
import type { MemoryRecord } from '../../src/train/run/memory-record.ts';

// Codes: tier * 5 + state; 6 is in use on the GPU, 7 held there, 12 held in staging, 17 held in host memory, 0 free. Of
// activations: 25 absent, 27 and 28 kept and in use, 31 in host memory, 35 given up, 38 and 40 in use, made again and back.
const map: ChunkHistory = {
  chunkBytes: 1000,
  tensors: [],
  lists: [
    { kind: 'parameter', first: 0, chunks: 1 },
    { kind: 'gradient', first: 1, chunks: 1 },
  ],
  phases: [
    { name: 'forward', first: 0 },
    { name: 'update', first: 3 },
  ],
  operators: [0, 0, 1, 0],
  labels: ['</script><b>', 'matmul'],
  chunks: [
    [6, 1, 12, 1, 17, 1, 7, 1],
    [0, 2, 6, 2],
  ],
  staged: [0, 1, 1, 1, 0, 2],
  slots: 2,
  staging: 1,
  stagingBytes: 1000,
  activations: {
    tensors: [
      { name: 'h.0.attn.c_attn.weight', bytes: 3000 },
      { name: 'h.0.mlp.c_fc.weight before gelu', bytes: 1000 },
      { name: 'ln_f.weight', bytes: 800 },
    ],
    codes: [
      [28, 1, 31, 1, 40, 1, 25, 1],
      [28, 1, 35, 1, 38, 1, 25, 1],
      [25, 1, 28, 1, 27, 1, 28, 1],
    ],
    working: [100, 2, 200, 2],
  },
  activationBytes: 5000,
  otherBytes: 500,
};
const BYTES = { h2d: 3000, d2h: 1500, diskRead: 0, diskWrite: 0 };
const memory: MemoryRecord = {
  gpu: { budget: 9000, peak: 8500, predictedPeak: 8500 },
  host: { budget: undefined, peak: 2000 },
  disk: { budget: undefined, peak: 0 },
  bytesPerStep: BYTES,
  total: { h2d: 40000, d2h: 20000, diskRead: 0, diskWrite: 0 },
  recoveryBytesPerStep: 0,
  offloadedPerStep: 0,
  fetchedPerStep: 0,
  fit: { slots: 2, chunks: 4, chunkBytes: 500 },
  bound: { lp: 3000, milp: 4000, ratio: 1.5 },
  waits: { down: 12400, up: 3.25, below: 0, network: 0, diskRead: 0, diskWrite: 0 },
  map,
};
const run: ReportContent = { title: 'run', settings: {}, summary: {}, steps: [], validations: [], samples: [] };
const page = (record: MemoryRecord) => renderReport({ ...run, memory: record });
const row = (html: string, name: string) => new RegExp(`>${name}</th><td>([^<]*)</td>`).exec(html)?.[1];

describe('the section on memory', async () => {
  const html = await page(memory);

  test('shows peaks beside budgets, and bytes beside the bound', () => {
    expect(html).toContain('<dd>8.50 KB</dd><dd>of 9.00 KB, as predicted</dd>');
    expect(html).toContain('<dd>4.50 KB</dd><dd>1.50 × the least possible</dd>');
    expect(row(html, 'host to GPU')).toBe('3.00 KB');
    expect(row(html, 'both ways')).toBe('4.50 KB');
    expect(row(html, 'least of any schedule')).toBe('3.00 KB');
    expect(row(html, 'least in whole chunks')).toBe('4.00 KB');
    expect(row(html, 'values on their way down')).toBe('12.4 s');
    expect(row(html, 'the GPU to take what came up')).toBe('3.25 ms');
    expect(row(html, 'read from disk')).toBe(undefined);
  });

  test('a peak that was not predicted says so; copies for recovery are told apart from the schedule', async () => {
    const other = await page({ ...memory, gpu: { ...memory.gpu, predictedPeak: 8000 }, recoveryBytesPerStep: 1 });
    expect(other).toContain('of 9.00 KB, 8.00 KB predicted');
    expect(other).toContain('1.50 × the least possible, 1.50 × but for recovery');
  });

  test('says what would help, in words', async () => {
    const alternatives = [{ flag: '--gpu-memory 2MB', moved: 0, moreArithmetic: 0 }];
    const other = await page({
      ...memory,
      whatIf: { time: { computing: 1, again: 0, waiting: 0 }, moved: 4500, alternatives, hostEnough: 0 },
    });
    expect(other).toContain('<li>moving 4.50 KB a step: --gpu-memory 2MB would move nothing</li>');
    expect(html).not.toContain('<ul class="advice">');
  });

  test('draws a step over the budget, with its own budget and what was measured, and no style of its own', async () => {
    const points = [4000, 9000, 20000].map((budget, i) => ({ budget, seconds: 0.3 - 0.1 * i }));
    const other = await page({ ...memory, sweep: { points, resident: 0.1, measured: 0.25 } });
    const [svg = ''] = /<svg [^>]*class="sweep".*?<\/svg>/s.exec(other) ?? [];
    expect(svg.match(/<circle r="2.5"/g)).toHaveLength(3);
    const [, x, y] = /<circle class="ring" r="6" cx="([\d.]+)" cy="([\d.]+)"/.exec(svg) ?? [];
    expect(svg).toContain(`cx="${x}" cy="${y}"><title>9.00 KB: 200 ms</title>`);
    expect(svg).toContain('<title>measured: 250 ms</title>');
    expect(svg).toContain('a ring: the budget of this run; a cross: as measured');
    expect(svg).not.toMatch(/style|NaN|undefined|Infinity/);
    expect(other.match(/<style>/g)).toHaveLength(1);
    expect(other).toMatch(/<style>.*\.sweep \.ring.*<\/style>/s);
    expect(other).toContain('by the rates that this run was planned by.');
    expect(html).not.toContain('<svg xmlns');
    const onDisk = await page({ ...memory, sweep: { points, resident: 0.1 }, disk: { budget: undefined, peak: 1 } });
    expect(onDisk).toContain('planned by, with no wait for the disk.');
    expect(onDisk).not.toContain('as measured');
  });

  test('with a disk it has the disk, too', async () => {
    const other = await page({
      ...memory,
      disk: { budget: 5000, peak: 4000 },
      bytesPerStep: { ...BYTES, diskRead: 700 },
    });
    expect(row(other, 'read from disk')).toBe('700 B');
    expect(other).toContain('<dd>4.00 KB</dd><dd>of 5.00 KB</dd>');
  });

  test('has the map in its data, escaped, and scripts that parse', () => {
    const json = /<script type="application\/json" id="memory">(.*?)<\/script>/s.exec(html)?.[1] ?? '';
    expect(JSON.parse(json)).toEqual({ history: map, budget: 9000 });
    expect(html.match(/<\/script/g)?.length).toBe(6);
    for (const [, script = ''] of html.matchAll(/<script>(.*?)<\/script>/gs)) {
      expect(() => new Function(script)).not.toThrow();
    }
  });

  test('what the map shows is there in numbers', () => {
    const shares = [...html.matchAll(/<th scope="row">(parameters|gradients|activations)<\/th>(.*?)<\/tr>/g)].map(
      ([, , cells = '']) => [...cells.matchAll(/<td>(.*?)<\/td>/g)].map(([, text]) => text),
    );
    // Rows, on the GPU, on its way down, in host memory, nowhere, in use.
    expect(shares).toEqual([
      ['1', '50.0 %', '25.0 %', '25.0 %', '–', '25.0 %'],
      ['1', '50.0 %', '–', '–', '50.0 %', '50.0 %'],
      ['3', '58.3 %', '–', '8.3 %', '33.3 %', '50.0 %'],
    ]);
    expect(html).toMatch(/aria-label="Map of 2 chunks and 3 activations over the 4 moments of one step/);
  });

  test('says what became of the activations, and what they held at most', () => {
    const text = html.replace(/<(?:canvas|i|output)[^>]*>|<\/(?:canvas|i|output)>/g, '');
    expect(text).toContain(
      'of 3 activations 1 kept (800 B), 1 moved down and back (3.00 KB), 1 given up and made again (1.00 KB)',
    );
    expect(text).toContain('activations kept, at most 4.00 KB');
    expect(text).toContain('made again, at most 1.00 KB');
    expect(text).toContain('their gradients, and scratch, at most 200 B');
    expect(text).toMatch(/<b>Activations<\/b>(<[^>]*>)*kept on the GPU(<[^>]*>)*given up, to be made again/);
  });

  test('a step of more moments than a call takes arguments has its figures, too', async () => {
    const moments = 300_000;
    const still = (code: number) => [code, moments];
    const long: ChunkHistory = {
      ...map,
      operators: Array.from({ length: moments }, () => 1),
      chunks: [still(7), [7, moments - 1, 17, 1]],
      staged: [0, moments - 1, 1, 1],
      activations: { ...map.activations, codes: map.activations.codes.map(() => still(28)), working: [100, moments] },
    };
    const text = await page({ ...memory, map: long });
    expect(text).toContain('chunks, at most <output>2.00 KB</output>');
    expect(text).toContain('staging, at most <output>1.00 KB</output>');
    expect(text).toContain('activations kept, at most <output>4.80 KB</output>');
  });

  test('without activations it says nothing of them', async () => {
    const none = { ...map, activations: { tensors: [], codes: [], working: [0, 4] } };
    const other = await page({ ...memory, map: none });
    expect(other.replace(/<script.*?<\/script>/gs, '')).not.toMatch(/<b>Activations|made again|of 0 activations/);
  });

  test('loads nothing', () => {
    expect(html).not.toMatch(/<[^>]+\s(src|srcset)\s*=/i);
    expect(html).not.toMatch(/@import|url\(|fetch\(|XMLHttpRequest|import\(|import_/);
  });

  test('without a recorded step it has the bytes of the run, and no map; without memory no section', async () => {
    const { map: _, bytesPerStep: __, ...rest } = memory;
    const other = await page(rest);
    expect(row(other, 'host to GPU')).toBe('40.0 KB');
    expect(other).not.toContain('class="chunk-map"');
    expect(other).not.toContain('id="memory"');
    expect(await renderReport(run)).not.toContain('<h2>Memory');
  });
});
