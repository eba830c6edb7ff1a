// The report of a run that is over: written where the run lies, and by the command line or the page, not by the training loop.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { REPORT_FILE, runReport, writeReport } from '../../src/report/run-report.ts';
import type { RunSummary } from '../../src/train/run/run-events.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { memoryHost } from '../memory-files.ts';
import { CHECKPOINT, RUN, savedRun } from '../saved-run.ts';

const SUMMARY: RunSummary = {
  steps: 3,
  finalLoss: 1.25,
  validationLoss: Number.NaN,
  tokensPerSecond: 4321,
  parameters: 1234,
  peakGpuBytes: 5678,
  activations: { arenas: 3456, alive: 3200 },
  skippedSteps: 0,
  adapter: 'an adapter',
  checkpoint: CHECKPOINT,
  interrupted: true,
};

test('a run that is over has its report in its folder, with what only its end knows', async () => {
  const { files } = await savedRun();
  const host = memoryHost(files);
  const state = await savedState(host, RUN);
  await writeReport(host, RUN, SUMMARY, state);
  const written = new TextDecoder().decode(await files.read(`${RUN}/${REPORT_FILE}`));
  expect(written).toBe(await runReport(host, state, SUMMARY));
  expect(written).toContain('<dt>tokens/s</dt><dd>4\u202f321</dd>');
  expect(written).toContain('<dt>activations</dt><dd>3.46 KB (liveness bound 3.20 KB)</dd>');
  expect(written).toContain('<dt>peak GPU memory</dt><dd>5.68 KB</dd>');
  const summary = /<dl class="summary">[\s\S]*?<\/dl>/.exec(written)?.[0];
  expect(summary).toContain('<dt>skipped steps</dt>');
  expect(summary).not.toMatch(/<dt>[^<]*[a-z][A-Z]/);
  expect(await runReport(host, state)).not.toContain('peak GPU memory');
});

test('no file of train names HTML', () => {
  const folder = path.join(import.meta.dirname, '../../src/train');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  expect(files.length).toBeGreaterThan(5);
  for (const name of files) expect(readFileSync(path.join(folder, name), 'utf8'), name).not.toMatch(/html/i);
});
