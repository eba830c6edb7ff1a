// What a report and a summary say of several ranks: side by side, beside the least that they could have sent, and what was
// waited for by its cause.

import { expect, test } from 'vitest';
import { rankLines } from '../../src/report/rank-words.ts';
import { renderReport } from '../../src/report/report.ts';
import type { RankRecord, RankShare } from '../../src/train/run/rank-record.ts';

const share = (rank: number, network: number): RankShare => ({
  ...{ rank, sentBytes: 2e6, receivedBytes: 2e6, planned: { sent: 1e6, received: 1e6 }, bound: 0.99e6 },
  gpu: { peak: 5e6 + rank, predictedPeak: 5e6 + rank },
  exchangeMemory: { bytes: 2e5, planned: 2e5 },
  ...{ hostPeak: 3e6, diskPeak: 0, h2dBytes: 4e6, d2hBytes: 4e6 },
  waits: { down: 10, up: 5, below: 0, network: 2 * network },
  step: {
    ...{ rank, milliseconds: 200, phases: [{ name: 'forward', from: 0, to: 200 }] },
    waits: { down: 10, up: 5, below: 0, network },
    exchanges: {
      'reduce-scatter gradient': 0.5 * network,
      'all-gather parameter': 0.4 * network,
      'all-gather squares': 0.1 * network,
    },
    longest: [{ cause: 'network', label: 'reduce-scatter gradient chunk 1', from: 20, to: 20 + network }],
  },
});

const record = (...network: number[]): RankRecord => ({
  ...{
    size: network.length,
    tensorParallel: 1,
    pipelineParallel: 1,
    zero: 2,
    sentBytes: 2e6,
    receivedBytes: 2e6,
    planned: { sent: 1e6, received: 1e6 },
  },
  each: network.map((each, rank) => share(rank, each)),
});

test('the summary says what a step sent beside the least, and what of it was waited for', () => {
  expect(rankLines(record(40, 120))).toEqual([
    '2 ranks, ZeRO 2: a step sent 1.00 MB and got 1.00 MB, 1.010 x the least',
    'waiting for other ranks 20 % to 60 % of the last step (sums of gradients 20 %, parameters from their owners 16 %, ' +
      'losses and norms 4 %): more micro-batches a step (--accumulate) wait less for each token',
  ]);
  expect(rankLines({ ...record(50, 50), zero: 3 }).at(-1)).toMatch(
    /^waiting for other ranks 25 % of .*: --zero 2 gathers/,
  );
  // Next to nothing is no line, and a step that was not recorded is none either.
  expect(rankLines(record(1, 2))).toHaveLength(1);
  const { step: _, ...unseen } = share(0, 50);
  expect(rankLines({ ...record(50), each: [unseen] })).toHaveLength(1);
});

test('the report has a row and a bar for each rank', async () => {
  const content = { title: 'a run', settings: {}, summary: {}, steps: [], validations: [], samples: [] };
  const page = await renderReport({ ...content, ranks: record(40, 120) });
  expect(page).toContain('<h2>Ranks</h2>');
  expect(page.match(/<tr><th>[01]<\/th>/g)).toHaveLength(2);
  expect(page).toContain('<td>1.010</td>');
  // 120 of 200 ms.
  expect(page).toContain('<td class="wait-network" width="60.00%" title="other ranks: 120 ms"></td>');
  expect(page).toContain('<td class="wait-work" width="72.50%"');
  expect(await renderReport(content)).not.toContain('Ranks');
});
