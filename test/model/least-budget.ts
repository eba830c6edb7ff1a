// Reference cases replayed in the smallest budget that they train in: what the suites in Node, Deno and the browser share.

import { expect } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { type ReplayResult, replay } from '../../src/parity/replay-case.ts';
import { join } from '../../src/runtime/host.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';

export const REFERENCE = 'test/fixtures/reference';

const folders = await testHost.files.list(REFERENCE);
const isCase = await Promise.all(folders.map((name) => testHost.files.stat(join(REFERENCE, name, 'ref.json'))));

/** The names of all cases. */
export const CASES: readonly string[] = folders.filter((_, i) => isCase[i]);

/** An adapter. */
const FEW = ['llama-lora-all'];
/** Packed documents, an encoder. */
const MORE = ['chat-mask', 'vit-classify', ...FEW];

/** The names of those replayed in their smallest budget: all in `npm run test:all`, else more in Node, whose polls are the fastest. */
export const IN_LEAST_BUDGET: readonly string[] = EVERY_CASE ? CASES : THOROUGH ? MORE : FEW;

/** Expects the figures that the case has with all model data on the GPU, and no smaller budget to be accepted. */
export async function expectSameInLeastBudget(device: Device, name: string, resident: ReplayResult): Promise<void> {
  const reference = await loadCase(testHost, join(REFERENCE, name));
  const { model, batch, seq, accumulate, batches } = reference;
  const packed = batches[0]?.[0]?.['documents'] !== undefined;
  const gpu = smallestBudget(
    trainingWorkload(model, traceStep(model, batch, seq, { packed }), accumulate),
    limitsOf(device),
  );
  const { choices, ...figures } = resident;
  const { choices: _, ...found } = await replay(device, reference, { choices, memory: { gpu } });
  expect(found).toEqual(figures);
  expect(found.worst).toBeLessThanOrEqual(1);
  await expect(replay(device, reference, { choices, memory: { gpu: gpu - 1 } })).rejects.toThrow(`${gpu} bytes`);
}
